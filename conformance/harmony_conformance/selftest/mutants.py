"""Blind mutants: a correct exchange with one thing wrong in its answer or in its prompt, made without knowing any check.

What may be changed is what the script, or the request, proves to have a meaning: texts, names, arguments, finish reason, counts, the events of a stream,
the tokens of the prompt. Ids, times and fingerprints have none and are left alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

from harmony_conformance.evidence.exchange import ODD, Exchange
from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members
from harmony_conformance.prompts.prompt_parser import show
from harmony_conformance.transport.messages import Chunk, Response
from harmony_conformance.transport.sse import Event
from harmony_ref import tokens

_MESSAGE_TEXTS = ("content", "reasoning")
_PROMPT_STRIDE = 7


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """A changed exchange; `kind` says what was done, `where` to what."""

    kind: str
    where: str
    exchange: Exchange


def mutants(x: Exchange) -> Iterator[Mutant]:
    """All mutants of an answer to a request that is neither wrong nor odd, and that was read to its end."""
    if x.turn is None or x.response is None or x.failure is not None or x.validity in ODD:
        return
    if x.stream is not None:
        yield from _stream_mutants(x, x.stream.events)
    else:
        for kind, where, body in _body_mutants(x.chat_completion):
            yield Mutant(kind=kind, where=where, exchange=_with_body(x, body))
        yield from _prompt_mutants(x)


def _body_mutants(body: Json) -> Iterator[tuple[str, str, Json]]:
    """Changes of one member of a whole answer."""
    message = members(at(body, "choices", 0, "message"))
    for name in _MESSAGE_TEXTS:
        value = message.get(name)
        if not isinstance(value, str) or not value:
            continue
        for kind, changed in _text_mutants(value):
            yield kind, f"message/{name}", _set(body, ("choices", 0, "message", name), changed)
        yield "dropped", f"message/{name}", _set(body, ("choices", 0, "message", name), None)
    content, reasoning = message.get("content"), message.get("reasoning")
    if isinstance(content, str) and isinstance(reasoning, str) and content != reasoning:
        swapped = _set(
            _set(body, ("choices", 0, "message", "content"), reasoning), ("choices", 0, "message", "reasoning"), content
        )
        yield "swapped", "message/content and reasoning", swapped
        yield "moved", "message/reasoning", _set(body, ("choices", 0, "message", "content"), reasoning + content)
    calls = items(message.get("tool_calls"))
    for index, call in enumerate(calls):
        path = ("choices", 0, "message", "tool_calls", index, "function")
        for name in ("name", "arguments"):
            value = at(call, "function", name)
            if isinstance(value, str) and value:
                for kind, changed in _text_mutants(value):
                    yield kind, f"call/{name}", _set(body, (*path, name), changed)
        yield "dropped", "call/id", _set(body, (*path[:-1], "id"), None)
        yield "dropped", "call", _set(body, path[:-2], [*calls[:index], *calls[index + 1 :]])
        yield "doubled", "call", _set(body, path[:-2], [*calls, call])
    finish = at(body, "choices", 0, "finish_reason")
    for other in ("stop", "length", "tool_calls", None):
        if other != finish:
            yield f"altered to {other}", "finish_reason", _set(body, ("choices", 0, "finish_reason"), other)
    for name in ("prompt_tokens", "completion_tokens", "total_tokens"):
        count = at(body, "usage", name)
        if isinstance(count, int):
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
    """One event of a stream dropped, doubled, or swapped with the next."""
    data = [event.data for event in events]
    for index, event in enumerate(events):
        what = _event_kind(event)
        if what is None:
            continue
        yield Mutant(kind="dropped", where=what, exchange=_with_events(x, [*data[:index], *data[index + 1 :]]))
        yield Mutant(kind="doubled", where=what, exchange=_with_events(x, [*data[: index + 1], *data[index:]]))
        following = _event_kind(events[index + 1]) if index + 1 < len(events) else None
        if following is not None and events[index + 1].data != event.data:
            swapped = [*data[:index], data[index + 1], data[index], *data[index + 2 :]]
            yield Mutant(kind="swapped with the next", where=f"{what}, {following}", exchange=_with_events(x, swapped))


def _event_kind(event: Event) -> str | None:
    """What an event says, None where it says nothing to a client."""
    if event.is_done:
        return "[DONE]"
    delta = members(at(event.value, "choices", 0, "delta"))
    for name in (*_MESSAGE_TEXTS, "tool_calls", "role"):
        if delta.get(name):
            return f"delta/{name}"
    if at(event.value, "choices", 0, "finish_reason") is not None:
        return "finish_reason"
    return "usage" if isinstance(at(event.value, "usage"), dict) else None


def _prompt_mutants(x: Exchange) -> Iterator[Mutant]:
    """One token of the prompt dropped, doubled, or swapped with the next; every seventh position."""
    ids = x.turn.prompt_ids if x.turn is not None else None
    if ids is None:
        return
    for index in range(0, len(ids) - 1, _PROMPT_STRIDE):
        changes = (
            ("token dropped", (*ids[:index], *ids[index + 1 :])),
            ("token doubled", (*ids[: index + 1], *ids[index:])),
            ("tokens swapped", (*ids[:index], ids[index + 1], ids[index], *ids[index + 2 :])),
        )
        before = [token for token in ids[:index] if token in (tokens.START, tokens.MESSAGE)]
        part = "header" if before[-1:] == [tokens.START] else "text"
        where = f"prompt {part}: {show((ids[index],))!r}"
        for kind, changed in changes:
            if changed != ids:
                listed: list[Json] = list(changed)
                body = _set(
                    _set(x.chat_completion, ("prompt_token_ids",), listed), ("usage", "prompt_tokens"), len(changed)
                )
                yield Mutant(kind=kind, where=where, exchange=_with_body(x, _balanced(body)))


def _balanced(body: Json) -> Json:
    """The body with a total that fits its parts: the prompt is what is wrong, not the sum."""
    prompt, completion = at(body, "usage", "prompt_tokens"), at(body, "usage", "completion_tokens")
    if isinstance(prompt, int) and isinstance(completion, int):
        return _set(body, ("usage", "total_tokens"), prompt + completion)
    return body


def _set(value: Json, path: Sequence[str | int], new: Json) -> Json:
    changed = deepcopy(value)
    holder = at(changed, *path[:-1])
    last = path[-1]
    if isinstance(holder, dict):
        holder[str(last)] = new
    elif isinstance(holder, list) and isinstance(last, int):
        holder[last] = new
    return changed


def _with_body(x: Exchange, body: Json) -> Exchange:
    if x.response is None:
        return x
    chunk = Chunk(at=x.response.chunks[-1].at, data=dumps(body).encode())
    return replace(x, response=_copy(x.response, (chunk,)))


def _with_events(x: Exchange, data: Sequence[str]) -> Exchange:
    if x.response is None:
        return x
    chunks = tuple(Chunk(at=index / 1000, data=f"data: {event}\n\n".encode()) for index, event in enumerate(data))
    return replace(x, response=_copy(x.response, chunks))


def _copy(response: Response, chunks: tuple[Chunk, ...]) -> Response:
    return Response(status=response.status, headers=response.headers, chunks=chunks)


def described(mutant: Mutant) -> JsonObject:
    """A mutant in words, for a list of survivors."""
    return {"exchange": mutant.exchange.id, "kind": mutant.kind, "where": mutant.where}
