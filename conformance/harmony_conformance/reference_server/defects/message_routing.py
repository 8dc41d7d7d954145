"""Defects of routing: messages that are parsed but appear in no field of the response."""

from harmony_conformance.reference_server.defects.event_changes import by_header, dropping
from harmony_conformance.reference_server.defects.stages import Defect, OnEvents
from harmony_conformance.reference_server.model.output_header import CHANNELS, OutputHeader


def _has_unknown_channel(header: OutputHeader) -> bool:
    is_for_user = header.role == "assistant" and header.recipient is None
    return header.complete and is_for_user and header.channel not in CHANNELS


DEFECTS = (
    Defect(
        "unknown-channel-dropped",
        "A message on an unknown channel, or without a channel, is dropped without an error.",
        OnEvents(dropping(by_header(_has_unknown_channel))),
        ("P12",),
    ),
    Defect(
        "typed-final-dropped",
        "The content type of a final message is parsed as its recipient, and the answer is dropped as a call.",
        OnEvents(dropping(by_header(lambda header: header.channel == "final" and header.content_type is not None))),
    ),
)
