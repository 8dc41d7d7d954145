"""Views of chunks shared by the checks of this family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from harmony_conformance.apis.stream_choices import ChunkChoice
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, items, members, value_at
from harmony_conformance.judge.check import Finding
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.runtime.caching import cached_view


@cached_view
def deltas(x: Exchange) -> tuple[Json, ...]:
    """Return the deltas of the first choice, in order."""
    return tuple([piece.delta for piece in x.chunk_choices if not piece.choice_index])


def in_pieces(x: Exchange, find: Callable[[Sequence[ChunkChoice]], Iterator[Finding]]) -> Iterator[Finding]:
    """Yield the findings on the choices of all chunks. Most streams have none in their joined pieces, which are few, and so none."""
    if any(True for _ in find(x.joined_choices)):
        yield from find(x.chunk_choices)


def ends_with_done_alone(x: Exchange) -> bool:
    """Return True if the last event is `[DONE]`, and all events before it are JSON: nearly all streams."""
    events = x.stream.events if x.stream is not None else ()
    return bool(events) and events[-1].is_done and x.joined_events.without_value == (len(events) - 1,)


def is_error(value: Json) -> bool:
    """Return True if the value of an event is an error."""
    return members(value).get("error") is not None or value_at(value, "object") == "error"


def has_output(delta: Json) -> bool:
    """Return True if a delta has text, reasoning, or a part of a call."""
    return any(bool(value_at(delta, member)) for member in ("content", *REASONING_FIELDS, "tool_calls"))


def is_content_filter_event(value: Json) -> bool:
    """Return True if an event has the results of Azure's content filters: `id` and `object` are empty, and no output."""
    event = members(value)
    is_unnamed = event.get("object") == "" and event.get("id") == "" and isinstance(event.get("choices"), list)
    if not is_unnamed or event.get("usage") is not None:  # fast path for nearly all events
        return False
    choices = items(event.get("choices"))
    return not any(has_output(value_at(one, "delta")) or value_at(one, "finish_reason") for one in choices)
