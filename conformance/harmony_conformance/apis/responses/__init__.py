"""Adapter of the Responses API, whose input and output are lists of items (OpenAI API reference, Responses)."""

from __future__ import annotations

from harmony_conformance.apis.api import Api
from harmony_conformance.apis.responses.request_reader import read_request
from harmony_conformance.apis.responses.request_writer import write_request
from harmony_conformance.apis.responses.response_reader import read_response
from harmony_conformance.apis.responses.stream_reader import read_events

RESPONSES = Api(
    name="responses",
    title="Responses",
    path="/v1/responses",
    write_request=write_request,
    read_request=read_request,
    read_response=read_response,
    read_events=read_events,
    answer_member="output: […]",
)

__all__ = ["RESPONSES"]
