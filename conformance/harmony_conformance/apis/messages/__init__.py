"""Adapter of Anthropic's Messages, whose content is a list of blocks (Anthropic API reference, Messages; types of the `anthropic` package)."""

from __future__ import annotations

from harmony_conformance.apis.api import Api
from harmony_conformance.apis.messages.request_reader import read_request
from harmony_conformance.apis.messages.request_writer import write_request
from harmony_conformance.apis.messages.response_reader import read_response
from harmony_conformance.apis.messages.stream_reader import read_events

MESSAGES = Api(
    name="messages",
    title="Messages",
    path="/v1/messages",
    write_request=write_request,
    read_request=read_request,
    read_response=read_response,
    read_events=read_events,
    answer_member='type: "message", content: […]',
    has_text_arguments=False,
    counts_reasoning=False,
)

__all__ = ["MESSAGES"]
