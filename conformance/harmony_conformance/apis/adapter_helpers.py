"""Shared helpers of the adapters: refuse, drop and translate members."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from harmony_conformance.apis.api import UnsupportedByApiError
from harmony_conformance.json_value import Json, JsonObject, text, value_at

_NEUTRAL: Mapping[str, tuple[Json, ...]] = {
    **dict.fromkeys(("top_logprobs", "reasoning_format", "functions", "function_call"), (None,)),
    **dict.fromkeys(("logprobs", "ignore_eos"), (None, False)),
    **dict.fromkeys(("parallel_tool_calls", "skip_special_tokens"), (None, True)),
    **dict.fromkeys(("logit_bias", "chat_template_kwargs"), (None, {})),
    "n": (None, 1),
    "tool_choice": (None, "auto"),
}


def neutral_values(*names: str) -> Mapping[str, tuple[Json, ...]]:
    """Return the values without effect of some members of a chat request, by member."""
    return {name: _NEUTRAL[name] for name in names}


def reject_unsupported(request: JsonObject, neutral: Mapping[str, tuple[Json, ...]]) -> None:
    """Check that members the API lacks are absent or have a value without effect. `neutral_values` lists these values by member.

    Raises:
        UnsupportedByApiError: A member has another value.
    """
    for name, values in neutral.items():
        requested = request.get(name)
        if not any(requested == value and isinstance(requested, bool) == isinstance(value, bool) for value in values):
            raise UnsupportedByApiError(f"`{name}`")


def omit_members(value: JsonObject, names: Collection[str]) -> JsonObject:
    """Return the object without the members of these names."""
    return {name: member for name, member in value.items() if name not in names}


def translate_error(body: Json) -> Json:
    """Translate `{"error": "message"}` to the error object of Chat Completions. Return any other body unchanged."""
    message = value_at(body, "error")
    if not isinstance(message, str):
        return body
    return {"error": {"message": message, "type": value_at(body, "error_type"), "param": None, "code": None}}


def token_counts(prompt: int | None, output: int | None) -> JsonObject:
    """Return a `usage` of Chat Completions. It has a total if both counts are known."""
    total: JsonObject = {"total_tokens": prompt + output} if prompt is not None and output is not None else {}
    return {"prompt_tokens": prompt, "completion_tokens": output, **total}


def join_text_parts(content: Json) -> Json:
    """Join a content of parts to one text. Return an empty text for null, and a malformed content unchanged.

    Raises:
        UnsupportedByApiError: A part is not text.
    """
    if content is None:
        return ""
    if not isinstance(content, list):
        return content
    for part in content:
        if not isinstance(value_at(part, "text"), str):
            raise UnsupportedByApiError(f"content parts of the type {text(value_at(part, 'type'))}")
    return "".join(text(value_at(part, "text")) for part in content)
