"""Requests that ask for no words, so that the answer to them has none: nothing is told of its end, and nothing is counted."""

from __future__ import annotations

from harmony_conformance.apis.registry import OLLAMA, OLLAMA_GENERATE, RESPONSES
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import at

_CONTENT = {OLLAMA.name: "messages", OLLAMA_GENERATE.name: "prompt"}


def only_loads(x: Exchange) -> bool:
    """Whether a request to Ollama has nothing to answer, so that it only loads the model, or unloads it (docs/api.md of Ollama)."""
    return x.api in _CONTENT and not at(x.request.json, _CONTENT[x.api])


def is_awaited(x: Exchange) -> bool:
    """Whether a Response was asked for that is made in the background, and this is the receipt."""
    asked = x.api == RESPONSES.name and at(x.request.json, "background") is True
    return asked and at(x.response_json, "status") in ("queued", "in_progress")


def says_nothing(x: Exchange) -> bool:
    """Whether the answer is none yet, or never will be."""
    return only_loads(x) or is_awaited(x)
