"""Requests without a generated answer. Their responses need neither a finish reason nor usage."""

from __future__ import annotations

from harmony_conformance.apis.registry import OLLAMA, OLLAMA_GENERATE, RESPONSES
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import value_at

_CONTENT = {OLLAMA.name: "messages", OLLAMA_GENERATE.name: "prompt"}


def is_load_request(x: Exchange) -> bool:
    """Return True for a request to Ollama without messages or prompt, which only loads or unloads the model (docs/api.md of Ollama)."""
    return x.api in _CONTENT and not value_at(x.request.json, _CONTENT[x.api])


def is_background_receipt(x: Exchange) -> bool:
    """Return True for the receipt of a Responses request that runs in the background."""
    in_background = x.api == RESPONSES.name and value_at(x.request.json, "background") is True
    return in_background and value_at(x.response_json, "status") in ("queued", "in_progress")


def is_about_stored(x: Exchange) -> bool:
    """Return True for a request of the Responses API that retrieves, cancels or deletes, and one to /v1/conversations."""
    path = x.request.path.partition("?")[0]
    return x.api == RESPONSES.name and (
        x.request.method != "POST" or path.endswith("/cancel") or "/conversations" in path
    )


def has_no_answer(x: Exchange) -> bool:
    """Return True if the response cannot have an answer, or not yet."""
    return is_load_request(x) or is_background_receipt(x) or is_about_stored(x)
