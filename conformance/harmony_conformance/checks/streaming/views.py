"""What the checks of this family read of chunks."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, at, items, members
from harmony_conformance.prompts.chat_request import REASONING_FIELDS


def deltas(x: Exchange) -> Iterator[Json]:
    """The deltas of the first choice, in order."""
    return (told.delta for told in x.chunk_choices if told.is_first)


def is_error(value: Json) -> bool:
    """Whether the value of an event is an error."""
    return members(value).get("error") is not None or at(value, "object") == "error"


def says(delta: Json) -> bool:
    """Whether a delta says something: text, reasoning, or a part of a call."""
    return any(bool(at(delta, member)) for member in ("content", *REASONING_FIELDS, "tool_calls"))


def is_annotation(value: Json) -> bool:
    """Whether an event is one of those in which Azure tells what its filters found: its id and kind are empty, and it says nothing of the answer."""
    held = members(value)
    unnamed = held.get("object") == "" and held.get("id") == "" and isinstance(held.get("choices"), list)
    if not unnamed or held.get("usage") is not None:  # as nearly all are, told before anything is walked
        return False
    return not any(says(at(one, "delta")) or at(one, "finish_reason") for one in items(held.get("choices")))
