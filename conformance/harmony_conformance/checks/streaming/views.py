"""Views of chunks shared by the checks of this family."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, at, items, members
from harmony_conformance.prompts.chat_request import REASONING_FIELDS


def deltas(x: Exchange) -> Iterator[Json]:
    """Yield the deltas of the first choice, in order."""
    return (piece.delta for piece in x.chunk_choices if piece.is_first)


def is_error(value: Json) -> bool:
    """Return True if the value of an event is an error."""
    return members(value).get("error") is not None or at(value, "object") == "error"


def says(delta: Json) -> bool:
    """Return True if a delta has text, reasoning, or a part of a call."""
    return any(bool(at(delta, member)) for member in ("content", *REASONING_FIELDS, "tool_calls"))


def is_annotation(value: Json) -> bool:
    """Return True if an event has the results of Azure's content filters: `id` and `object` are empty, and no output."""
    event = members(value)
    is_unnamed = event.get("object") == "" and event.get("id") == "" and isinstance(event.get("choices"), list)
    if not is_unnamed or event.get("usage") is not None:  # fast path for nearly all events
        return False
    return not any(says(at(one, "delta")) or at(one, "finish_reason") for one in items(event.get("choices")))
