"""Render conversations for APIs that take a prompt, in Harmony as the official library writes it."""

from __future__ import annotations

from collections.abc import Mapping

from harmony_conformance.apis.adapter_helpers import omit_members, reject_unsupported
from harmony_conformance.apis.api import UnsupportedByApiError
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.prompts.conversation import ConversationOptions, conversation_of
from harmony_ref import decode, encode_with_special_tokens, render_conversation_for_completion

_DATE = "2025-06-28"
"""The current date in these prompts, fixed so that all runs send the same."""
_CONVERSATION_MEMBERS = frozenset({"messages", "tools", "tool_choice", "reasoning_effort", "parallel_tool_calls"})

_NEUTRAL: Mapping[str, tuple[Json, ...]] = {
    "response_format": (None, {"type": "text"}),
    "tool_choice": (None, "auto", "none"),
}
"""Members that constrain sampling, which a prompt cannot do, with the values that constrain nothing."""


def prompt_ids(request: JsonObject) -> list[int]:
    """Return the token ids of a chat request's prompt, up to and including `<|start|>assistant`.

    Raises:
        UnsupportedByApiError: The request requires JSON or a call, which needs more than a prompt.
    """
    reject_unsupported(request, _NEUTRAL)
    return list(render_conversation_for_completion(conversation_of(request, ConversationOptions(), date=_DATE)))


def prompt_text(request: JsonObject) -> str:
    """Return the same prompt as text, special tokens spelled (`<|start|>`).

    Raises:
        UnsupportedByApiError: As for `prompt_ids`; or the conversation contains the spelling of a special token.
    """
    ids = prompt_ids(request)
    prompt = decode(ids)
    if encode_with_special_tokens(prompt) != ids:
        raise UnsupportedByApiError("way to distinguish special tokens from their spelling")
    return prompt


def generation_settings(request: JsonObject) -> JsonObject:
    """Return a chat request without the members that its prompt expresses."""
    return omit_members(request, _CONVERSATION_MEMBERS)
