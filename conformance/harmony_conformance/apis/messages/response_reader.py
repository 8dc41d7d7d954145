"""Translate a message, a list of content blocks, to a chat completion.

Texts of one kind from several blocks are concatenated, as clients do. All other members of the blocks are copied to the message's member
`blocks`, so that checks see them too. A signature is opaque and left out.
"""

from __future__ import annotations

from collections.abc import Mapping

from harmony_conformance.apis.adapter_helpers import omit_members, token_counts
from harmony_conformance.apis.messages.request_reader import read_call
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at

FINISH_REASONS: Mapping[str, str] = {
    **dict.fromkeys(("end_turn", "stop_sequence"), "stop"),
    **dict.fromkeys(("max_tokens", "model_context_window_exceeded"), "length"),
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""The finish reasons of Chat Completions by stop reason. Others are passed through."""

_SHOWN_ELSEWHERE: Mapping[str, frozenset[str]] = {
    "text": frozenset({"text"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input"}),
}
"""The members of a block that are translated or opaque, by its type. Other types belong to tools of the server."""


def read_response(body: Json) -> Json:
    """Translate a message to a `chat.completion`. Return any other body unchanged."""
    if not isinstance(body, dict) or not (isinstance(body.get("content"), list) or body.get("type") == "message"):
        return body
    blocks = items(body.get("content"))  # Ollama 0.34 has null for no block
    choice: JsonObject = {"index": 0, "message": read_content(blocks), "finish_reason": finish_reason(body)}
    if "token_ids" in body:
        choice["token_ids"] = body["token_ids"]
    usage = members(body.get("usage"))
    return {
        **identity(body, "chat.completion"),
        "choices": [choice],
        **({"usage": translate_usage(usage)} if usage else {}),
    }


def identity(message: JsonObject, kind: str) -> JsonObject:
    """Return id, model and prompt ids of a message under their names in a chat completion; `kind` becomes `object`."""
    prompt: JsonObject = {"prompt_token_ids": message["prompt_token_ids"]} if "prompt_token_ids" in message else {}
    return {"id": message.get("id"), "object": kind, "model": message.get("model"), **prompt}


def finish_reason(value: JsonObject) -> Json:
    """Return the finish reason for the `stop_reason` of a message or of its last delta."""
    reason = value.get("stop_reason")
    return FINISH_REASONS.get(reason, reason) if isinstance(reason, str) else None


def translate_usage(usage: JsonObject) -> JsonObject:
    """Return the token counts. Tokens read from or written to a cache are input tokens too."""
    cached = [integer(usage.get(name)) or 0 for name in ("cache_creation_input_tokens", "cache_read_input_tokens")]
    prompt, thinking = integer(usage.get("input_tokens")), value_at(usage, "output_tokens_details", "thinking_tokens")
    details: JsonObject = {"completion_tokens_details": {"reasoning_tokens": thinking}} if thinking is not None else {}
    counts = token_counts(None if prompt is None else prompt + sum(cached), integer(usage.get("output_tokens")))
    return {**counts, **details}


def read_content(blocks: list[Json]) -> JsonObject:
    """Return the assistant message of content blocks."""
    texts = [text(value_at(block, "text")) for block in blocks if value_at(block, "type") == "text"]
    thoughts = [text(value_at(block, "thinking")) for block in blocks if value_at(block, "type") == "thinking"]
    calls: list[Json] = [read_call(block) for block in blocks if value_at(block, "type") == "tool_use"]
    return {
        "role": "assistant",
        "content": "".join(texts) if texts else None,
        **({"reasoning": "".join(thoughts)} if any(thoughts) else {}),
        **({"tool_calls": calls} if calls else {}),
        "blocks": [{"index": place, **untranslated_members(members(block))} for place, block in enumerate(blocks)],
    }


def untranslated_members(block: JsonObject) -> JsonObject:
    """Return the members of a block that are not translated otherwise."""
    return omit_members(block, _SHOWN_ELSEWHERE.get(text(block.get("type")), frozenset()))
