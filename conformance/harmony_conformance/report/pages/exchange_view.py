"""Exchanges as a page shows them: request, prompt, output of the model, and the answer with its events on a time axis."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import InvalidJsonError, Json, items, loads, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import failures
from harmony_conformance.transport.sse import Event
from harmony_ref import decode

MOST_EXCHANGES = 150
"""Largest number of exchanges of a page."""
MOST_EVENTS = 200
"""Largest number of events that are listed for an exchange."""


class EventKind(StrEnum):
    """The content of an event: reasoning, answer, call, or none of them."""

    REASONING = "reasoning"
    ANSWER = "answer"
    CALL = "call"
    OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class EventView:
    """An event of a stream: its arrival in milliseconds after the request, its place on the axis from 0 to 1, and its text."""

    milliseconds: float
    place: float
    kind: EventKind
    text: str


@dataclass(frozen=True, kw_only=True)
class ExchangeView:
    """An exchange as texts. Empty texts are not known: the prompt that a server does not show, a script that was not sent."""

    id: str
    request_line: str
    request: str
    prompt: str
    script: str
    result: str
    body: str
    events: tuple[EventView, ...]


def shown_exchanges(report: Report) -> tuple[str, ...]:
    """Return the ids of the exchanges that a page shows: the examples of the causes, then the first failure of each result."""
    examples = (text(value_at(cause, "example", "exchange")) for cause in report.causes)
    first = (text(value_at(found, "exchange")) for result in report.results for found in failures(result)[:1])
    return tuple(dict.fromkeys(name for name in chain(examples, first) if name))[:MOST_EXCHANGES]


def exchange_views(
    ids: Iterable[str], exchanges: Iterable[Exchange], mask: Callable[[str], str]
) -> Mapping[str, ExchangeView]:
    """Return the views of the exchanges that are known, by id and in the order of `ids`. `mask` is applied to each text."""
    by_id = {x.id: x for x in exchanges}
    return {name: _view(by_id[name], mask) for name in ids if name in by_id}


def _view(x: Exchange, mask: Callable[[str], str]) -> ExchangeView:
    response = x.response
    status = f"HTTP {response.status}" if response is not None else "no response"
    seconds = response.chunks[-1].arrival_time if response is not None and response.chunks else None
    took = f" after {seconds:.3f} s" if seconds is not None else ""
    failure = f"; {x.failure.kind.value}: {x.failure.detail}" if x.failure is not None else ""
    return ExchangeView(
        id=x.id,
        request_line=f"{x.request.method} {x.request.path}",
        request=mask(_pretty(x.request.body)),
        prompt=mask(decode(x.prompt.ids)) if x.prompt.ids is not None else "",
        script=mask(decode(x.script)) if x.script is not None else "",
        result=mask(f"{status}{took}{failure}"),
        body=mask(_pretty(response.body)) if response is not None else "",
        events=tuple(_events(x, mask)),
    )


def _pretty(body: bytes) -> str:
    """Return JSON with a member on each line, other bodies as they are."""
    try:
        value = loads(body)
    except InvalidJsonError:
        return body.decode("utf-8", "replace")
    return json.dumps(value, ensure_ascii=False, indent=1)


def _events(x: Exchange, mask: Callable[[str], str]) -> Iterator[EventView]:
    if x.events is None or x.stream is None:
        return
    raw, translated = x.events.events, x.stream.events
    last = raw[-1].arrival_time if raw else 0.0
    for place, event in enumerate(raw[:MOST_EVENTS]):
        value = translated[place].value if len(translated) == len(raw) else event.value
        yield EventView(
            milliseconds=1000 * event.arrival_time,
            place=event.arrival_time / last if last > 0 else 0.0,
            kind=_kind(value),
            text=mask(_event_text(event)),
        )


def _event_text(event: Event) -> str:
    return event.data if event.name == "message" else f"{event.name}: {event.data}"


def _kind(value: Json) -> EventKind:
    delta = value_at(next(iter(items(value_at(value, "choices"))), None), "delta")
    if any(text(value_at(delta, name)) for name in REASONING_FIELDS):
        return EventKind.REASONING
    if items(value_at(delta, "tool_calls")):
        return EventKind.CALL
    return EventKind.ANSWER if text(value_at(delta, "content")) else EventKind.OTHER
