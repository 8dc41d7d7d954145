"""Conversations for APIs that take a prompt: written in Harmony by us, as the official library writes it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from harmony_conformance.apis.api import UnsupportedByApiError
from harmony_conformance.apis.request_fields import refuse_others, without
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.prompts.conversation import RequestReading, conversation_of
from harmony_ref import decode, encode_with_special_tokens, render_conversation_for_completion

_DATE = "2025-06-28"
"""What the prompts tell as the current date: that of two runs is the same."""
_OF_THE_CONVERSATION = frozenset({"messages", "tools", "tool_choice", "reasoning_effort", "parallel_tool_calls"})

_NEUTRAL: Mapping[str, tuple[Json, ...]] = MappingProxyType(
    {"response_format": (None, {"type": "text"}), "tool_choice": (None, "auto", "none")}
)
"""What binds the sampler, and no prompt asks for, with the values that do not."""


def prompt_ids(request: JsonObject) -> list[int]:
    """The prompt of a chat request.

    Raises:
        NotSpelled: it asks for JSON, or for a call, which is no matter of the prompt alone.
    """
    refuse_others(request, _NEUTRAL)
    return list(render_conversation_for_completion(conversation_of(request, RequestReading(), date=_DATE)))


def prompt_text(request: JsonObject) -> str:
    """The same as a text that spells the special tokens.

    Raises:
        NotSpelled: a text of the conversation spells some too, and could not be told from them.
    """
    ids = prompt_ids(request)
    written = decode(ids)
    if encode_with_special_tokens(written) != ids:
        raise UnsupportedByApiError("way to tell markers from their spelling")
    return written


def settings(request: JsonObject) -> JsonObject:
    """All of a chat request but the conversation."""
    return without(request, _OF_THE_CONVERSATION)
