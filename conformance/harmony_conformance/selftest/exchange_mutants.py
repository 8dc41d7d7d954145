"""Blind mutants: correct exchanges with one error in the response or in the prompt, built without knowledge of the checks.

Only parts with a meaning are changed: texts, names, arguments, finish reason, counts, events and prompt tokens.
Ids, times and fingerprints remain unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES
from harmony_conformance.json_value import Json, JsonObject, dumps, items, members, value_at
from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.transport.messages import Chunk
from harmony_conformance.transport.sse import Event
from harmony_ref import tokens

_MESSAGE_TEXTS = ("content", "reasoning")
_PROMPT_STRIDE = 7


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A changed exchange, with the kind of the change and the changed part (`where`)."""

    kind: str
    where: str
    exchange: Exchange


def mutants(x: Exchange) -> Iterator[Mutant]:
    """Yield all mutants of an exchange with a valid request and a complete response."""
    if x.turn is None or x.response is None or x.failure is not None or x.validity in REFUSABLE_VALIDITIES:
        return
    if x.stream is not None:
        yield from _stream_mutants(x, x.stream.events)
    else:
        for kind, where, body in _body_mutants(x.chat_completion):
            yield Mutant(kind=kind, where=where, exchange=_with_body(x, body))
        yield from _prompt_mutants(x)


def _body_mutants(body: Json) -> Iterator[tuple[str, str, Json]]:
    """Yield changes of one member of a response without streaming."""
    message = members(value_at(body, "choices", 0, "message"))
    for name in _MESSAGE_TEXTS:
        value = message.get(name)
        if not isinstance(value, str) or not value:
            continue
        for kind, changed in _text_mutants(value):
            yield kind, f"message/{name}", _set(body, ("choices", 0, "message", name), changed)
        yield "dropped", f"message/{name}", _set(body, ("choices", 0, "message", name), None)
    content, reasoning = message.get("content"), message.get("reasoning")
    if isinstance(content, str) and isinstance(reasoning, str) and content != reasoning:
        swapped = _set(body, ("choices", 0, "message", "content"), reasoning)
        swapped = _set(swapped, ("choices", 0, "message", "reasoning"), content)
        yield "swapped", "message/content and reasoning", swapped
        yield "moved", "message/reasoning", _set(body, ("choices", 0, "message", "content"), reasoning + content)
    calls = items(message.get("tool_calls"))
    for index, call in enumerate(calls):
        path = ("choices", 0, "message", "tool_calls", index, "function")
        for name in ("name", "arguments"):
            value = value_at(call, "function", name)
            if isinstance(value, str) and value:
                for kind, changed in _text_mutants(value):
                    yield kind, f"call/{name}", _set(body, (*path, name), changed)
        yield "dropped", "call/id", _set(body, (*path[:-1], "id"), None)
        yield "dropped", "call", _set(body, path[:-2], [*calls[:index], *calls[index + 1 :]])
        yield "doubled", "call", _set(body, path[:-2], [*calls, call])
    finish = value_at(body, "choices", 0, "finish_reason")
    for other in ("stop", "length", "tool_calls", None):
        if other != finish:
            yield f"altered to {other}", "finish_reason", _set(body, ("choices", 0, "finish_reason"), other)
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        if isinstance(count := value_at(body, "usage", name), int):
            yield "altered by 1", f"usage/{name}", _set(body, ("usage", name), count + 1)
    yield "dropped", "usage", _set(body, ("usage",), None)


def _text_mutants(value: str) -> Iterator[tuple[str, str]]:
    middle = len(value) // 2
    if len(value) > 1:
        yield "one character dropped", value[:middle] + value[middle + 1 :]
    yield "one character doubled", value[: middle + 1] + value[middle:]
    yield "one character altered", value[:middle] + ("x" if value[middle] != "x" else "y") + value[middle + 1 :]
    swapped = value[:middle] + value[middle + 1 : middle + 2] + value[middle : middle + 1] + value[middle + 2 :]
    if swapped != value:
        yield "two characters swapped", swapped


def _stream_mutants(x: Exchange, events: Sequence[Event]) -> Iterator[Mutant]:
    """Drop one event of a stream, double it, or swap it with the next."""
    data = [event.data for event in events]
    for index, event in enumerate(events):
        if (kind := _event_kind(event)) is None:
            continue
        yield Mutant(kind="dropped", where=kind, exchange=_with_events(x, [*data[:index], *data[index + 1 :]]))
        yield Mutant(kind="doubled", where=kind, exchange=_with_events(x, [*data[: index + 1], *data[index:]]))
        following = _event_kind(events[index + 1]) if index + 1 < len(events) else None
        if following is not None and events[index + 1].data != event.data:
            swapped = [*data[:index], data[index + 1], data[index], *data[index + 2 :]]
            yield Mutant(kind="swapped with the next", where=f"{kind}, {following}", exchange=_with_events(x, swapped))


def _event_kind(event: Event) -> str | None:
    """Return the meaning of an event, or None if it has none for a client."""
    if event.is_done:
        return "[DONE]"
    delta = members(value_at(event.value, "choices", 0, "delta"))
    for name in (*_MESSAGE_TEXTS, "tool_calls", "role"):
        if delta.get(name):
            return f"delta/{name}"
    if value_at(event.value, "choices", 0, "finish_reason") is not None:
        return "finish_reason"
    return "usage" if isinstance(value_at(event.value, "usage"), dict) else None


def _prompt_mutants(x: Exchange) -> Iterator[Mutant]:
    """Drop one token of the prompt, double it, or swap it with the next, at every seventh position."""
    if x.turn is None or (ids := x.turn.prompt_ids) is None:
        return
    for index in range(0, len(ids) - 1, _PROMPT_STRIDE):
        changes = (
            ("token dropped", (*ids[:index], *ids[index + 1 :])),
            ("token doubled", (*ids[: index + 1], *ids[index:])),
            ("tokens swapped", (*ids[:index], ids[index + 1], ids[index], *ids[index + 2 :])),
        )
        before = [token for token in ids[:index] if token in (tokens.START, tokens.MESSAGE)]
        where = f"prompt {'header' if before[-1:] == [tokens.START] else 'text'}: {format_ids((ids[index],))!r}"
        for kind, changed in changes:
            if changed != ids:
                body = _set(x.chat_completion, ("prompt_token_ids",), [*changed])
                body = _set(body, ("usage", "prompt_tokens"), len(changed))
                completion = value_at(body, "usage", "completion_tokens")
                if isinstance(completion, int):  # only the prompt is wrong, not the sum
                    body = _set(body, ("usage", "total_tokens"), len(changed) + completion)
                yield Mutant(kind=kind, where=where, exchange=_with_body(x, body))


def _set(value: Json, path: Sequence[str | int], new: Json) -> Json:
    changed = deepcopy(value)
    parent, last = value_at(changed, *path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[str(last)] = new
    elif isinstance(parent, list) and isinstance(last, int):
        parent[last] = new
    return changed


def _with_body(x: Exchange, body: Json) -> Exchange:
    last = x.response.chunks[-1].arrival_time if x.response is not None else 0.0
    return _with_chunks(x, (Chunk(arrival_time=last, data=dumps(body).encode()),))


def _with_events(x: Exchange, data: Sequence[str]) -> Exchange:
    events = (f"data: {event}\n\n".encode() for event in data)
    return _with_chunks(x, tuple(Chunk(arrival_time=index / 1000, data=event) for index, event in enumerate(events)))


def _with_chunks(x: Exchange, chunks: tuple[Chunk, ...]) -> Exchange:
    return replace(x, response=replace(x.response, chunks=chunks)) if x.response is not None else x


def mutant_to_json(mutant: Mutant) -> JsonObject:
    """Return the JSON form of a mutant, for the list of survivors."""
    return {"exchange": mutant.exchange.id, "kind": mutant.kind, "where": mutant.where}
