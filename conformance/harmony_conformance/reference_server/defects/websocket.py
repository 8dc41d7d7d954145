"""Defects of the Responses API over a WebSocket."""

from collections.abc import Iterator
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import drop_members
from harmony_conformance.reference_server.defects.stages import Defect, OnWebSocket

_LOST = 3
"""Each third delta of a text is lost."""


def _without_deltas(events: Iterator[Json], _earlier: tuple[Json, ...]) -> Iterator[Json]:
    count = 0
    for event in events:
        is_delta = text(value_at(event, "type")).endswith(".delta")
        count += is_delta
        if not is_delta or count % _LOST:
            yield event


def _with_an_earlier_event(events: Iterator[Json], earlier: tuple[Json, ...]) -> Iterator[Json]:
    stale = next((event for event in earlier if text(value_at(event, "type")) == "response.in_progress"), None)
    for place, event in enumerate(events):
        if place == 1 and stale is not None:
            yield stale
        yield event


def _without_its_code(event: JsonObject) -> JsonObject:
    return {**event, "error": {**members(event.get("error")), "code": None}}


DEFECTS = (
    Defect(
        "websocket-responses-forgotten",
        "A response with `store: false` cannot be continued on its WebSocket connection.",
        OnWebSocket(lambda behaviour: replace(behaviour, remembers=False)),
    ),
    Defect(
        "websocket-closes-after-error",
        "A WebSocket connection is closed after an error.",
        OnWebSocket(lambda behaviour: replace(behaviour, survives_errors=False)),
    ),
    Defect(
        "websocket-errors-without-type",
        "An error over a WebSocket has no `type`.",
        OnWebSocket(lambda behaviour: replace(behaviour, error=drop_members("type"))),
    ),
    Defect(
        "websocket-errors-without-code",
        "The error about an unknown previous response has no code over a WebSocket.",
        OnWebSocket(lambda behaviour: replace(behaviour, error=_without_its_code)),
    ),
    Defect(
        "websocket-warm-up-answered",
        "A request over a WebSocket with `generate: false` is answered.",
        OnWebSocket(lambda behaviour: replace(behaviour, warms_up=False)),
    ),
    Defect(
        "websocket-events-lost",
        "Some deltas of a text are not sent over a WebSocket.",
        OnWebSocket(lambda behaviour: replace(behaviour, events=_without_deltas)),
    ),
    Defect(
        "websocket-answers-alternate",
        "Requests in flight on one WebSocket connection are answered at the same time.",
        OnWebSocket(lambda behaviour: replace(behaviour, is_sequential=False)),
    ),
    Defect(
        "websocket-turns-cross",
        "An event of the turn before arrives in the next turn of a WebSocket connection.",
        OnWebSocket(lambda behaviour: replace(behaviour, events=_with_an_earlier_event)),
    ),
)
"""The defects of this module."""
