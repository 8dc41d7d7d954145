"""Adapter of the Responses API, whose input and output are lists of items (OpenAI API reference, Responses)."""

from __future__ import annotations

from harmony_conformance.apis.api import Api
from harmony_conformance.apis.responses.request_reader import chat_request
from harmony_conformance.apis.responses.request_writer import spelled
from harmony_conformance.apis.responses.response_reader import completion
from harmony_conformance.apis.responses.stream_reader import chunks

RESPONSES = Api(
    name="responses",
    title="Responses",
    path="/v1/responses",
    write_request=spelled,
    read_request=chat_request,
    read_response=completion,
    read_events=chunks,
    answer_member="output: […]",
)

__all__ = ["RESPONSES"]
