"""Defects of where a message goes: one that the parser read, and has no place for."""

from harmony_conformance.reference_server.defects.event_changes import dropping, on
from harmony_conformance.reference_server.defects.stages import Defect, OnEvents
from harmony_conformance.reference_server.model.output_header import CHANNELS, OutputHeader


def _is_homeless(header: OutputHeader) -> bool:
    is_for_nobody = header.role == "assistant" and header.recipient is None
    return header.complete and is_for_nobody and header.channel not in CHANNELS


def _is_typed_final(header: OutputHeader) -> bool:
    return header.channel == "final" and header.content_type is not None


DEFECTS = (
    Defect(
        id="unknown-channel-dropped",
        catalogue=("P12",),
        summary="A message on a channel that does not exist, or on none, is dropped without an error.",
        change=OnEvents(dropping(on(_is_homeless))),
    ),
    Defect(
        id="typed-final-dropped",
        catalogue=(),
        summary="The content type of a final message is read as its recipient, and the answer is dropped as a call of nobody.",
        change=OnEvents(dropping(on(_is_typed_final))),
    ),
)
