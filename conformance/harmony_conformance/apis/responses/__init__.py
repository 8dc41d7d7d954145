"""The Responses API, items in and items out, read as Chat Completions (OpenAI API reference, Responses)."""

from __future__ import annotations

from harmony_conformance.apis.api import Api
from harmony_conformance.apis.responses.answer import completion
from harmony_conformance.apis.responses.asking import spelled
from harmony_conformance.apis.responses.events import chunks
from harmony_conformance.apis.responses.reading import chat_request

RESPONSES = Api(
    name="responses",
    title="Responses",
    path="/v1/responses",
    spell=spelled,
    asked=chat_request,
    whole=completion,
    chunks=chunks,
    answer="output: […]",
)

__all__ = ["RESPONSES"]
