"""The Responses API over a WebSocket: continuation on the connection, errors, and turns that follow each other.

The events of an answer are judged by the checks of streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from harmony_conformance.checks.responses import views
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import Json, dumps, integer, text, value_at
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, variant
from harmony_conformance.judge.condition import condition, series_only
from harmony_conformance.redactable_text import RedactableText, quote, shorten
from harmony_conformance.transport.messages import FailureKind
from harmony_conformance.transport.websocket import is_error

_NOT_FOUND = "previous_response_not_found"
_LOST = frozenset({FailureKind.RESET, FailureKind.CUT})


def _turns(series: Series) -> list[Exchange]:
    """Return the requests over WebSockets that were sent after the answer to the one before."""
    return [x for x in series.exchanges.values() if x.websocket is not None and not _is_together(x)]


def _is_together(x: Exchange) -> bool:
    return x.concurrency is not None and x.concurrency > 1


def _previous(x: Exchange) -> str:
    return text(value_at(x.request.json, "previous_response_id"))


def _errors(x: Exchange) -> list[tuple[int, Json]]:
    """Return the error events of an answer, with their places."""
    if x.websocket is None or x.response is None:
        return []
    if not x.response.is_success:
        return [(0, x.response_json)]
    return [(place, event) for place, event in enumerate(views.json_events(x)) if is_error(event)]


def _response_ids(x: Exchange) -> frozenset[str]:
    named = (text(value_at(event, "response", "id")) for event in views.json_events(x))
    return frozenset(filter(None, (text(value_at(x.response_json, "id")), *named)))


def _continued(series: Series) -> Iterator[Exchange]:
    """Yield answered requests that continue the last response of their connection. A failed one ends the chain."""
    last: dict[int, str] = {}
    for x in _turns(series):
        connection = x.websocket or 0
        continues = bool(_previous(x)) and _previous(x) == last.get(connection)
        if continues and x.response is not None:
            yield x
        if text(views.response(x).get("id")):
            last[connection] = text(views.response(x).get("id"))
        elif continues:
            del last[connection]


@series_only
@condition
def has_continued_connection(series: Series) -> bool:
    """requests over a WebSocket that continue the last response of their connection"""
    return any(True for _ in _continued(series))


@comparison(MUST, spec="responses#websocket-continuation", when=has_continued_connection)
def websocket_continues_the_last_response(series: Series) -> Iterator[Finding]:
    """A WebSocket connection continues its last response by `previous_response_id`, also with `store: false`.

    An agent sends only the new items of each turn. Without the continuation it has to send everything again.
    An error after the response began is not about the continuation.
    """
    for x in _continued(series):
        for place, event in _errors(x)[:1] if not _response_ids(x) else ():
            message = "the last response of a WebSocket connection cannot be continued on it"
            actual = quote(text(value_at(event, "error", "code"))) or shorten(dumps(event))
            yield mismatch(message, f"event {place}", "an answer", actual, exchange=x.id)


def _unknown(series: Series) -> Iterator[tuple[Exchange, Json]]:
    """Yield refused requests that continue a response which the series did not create, with the error event.

    Before the first created response nothing is known: a log can begin in the middle of a conversation.
    """
    created: set[str] = set()
    for x in series.exchanges.values():
        for _, event in _errors(x)[:1]:
            if created and _previous(x) and _previous(x) not in created:
                yield x, event
        created |= _response_ids(x)


@series_only
@condition
def has_unknown_previous_response(series: Series) -> bool:
    """requests over a WebSocket that continue an unknown response, and are refused"""
    return any(True for _ in _unknown(series))


@comparison(SHOULD, spec="responses#websocket-not-found", when=has_unknown_previous_response)
def websocket_names_the_unknown_response(series: Series) -> Iterator[Finding]:
    """A WebSocket request that continues an unknown response is refused with the code `previous_response_not_found`.

    By this code clients decide to send the whole conversation again, as after a new connection.
    """
    for x, event in _unknown(series):
        code = value_at(event, "error", "code")
        if code != _NOT_FOUND:
            message = "the error about an unknown previous response has another code"
            yield mismatch(message, "/error/code", _NOT_FOUND, quote(code), exchange=x.id)


@condition
def has_websocket_error(x: Exchange) -> bool:
    """answers over a WebSocket with an error"""
    return bool(_errors(x))


@check(MUST, spec="responses#websocket-errors", when=has_websocket_error)
def websocket_errors_are_events(x: Exchange) -> Iterator[Finding]:
    """An error over a WebSocket is an event of the type `error`, whose member `error` has the message.

    A client skips a message without a type, and waits for the answer until its time limit. An event without `status` is a variant:
    Codex waits after it too.
    """
    for place, event in _errors(x):
        if value_at(event, "type") != "error":
            message = "an error over a WebSocket is not an event of the type error"
            yield mismatch(message, f"event {place}, /type", "error", quote(value_at(event, "type")))
        elif not text(value_at(event, "error", "message")):
            message = "an error event over a WebSocket has no error with a message"
            yield mismatch(message, f"event {place}, /error/message", "a text", shorten(dumps(event)))
        elif integer(value_at(event, "status")) is None:
            yield variant("an error event over a WebSocket has no status", where=f"event {place}")


@condition
def warms_up(x: Exchange) -> bool:
    """answered requests over a WebSocket with `generate: false`"""
    is_answered = x.response is not None and x.response.is_success and not _errors(x)
    return x.websocket is not None and is_answered and value_at(x.request.json, "generate") is False


@check(SHOULD, spec="responses#websocket-warm-up", when=(warms_up, views.has_response_object))
def websocket_warm_up_generates_nothing(x: Exchange) -> Iterator[Finding]:
    """A request over a WebSocket with `generate: false` prepares the next one, and generates nothing.

    Codex sends one at each start. A server that answers it generates a text that is never shown, and the first question waits.
    """
    if views.output(x) or integer(value_at(views.response(x), "usage", "output_tokens")):
        kinds = ", ".join(text(value_at(item, "type")) for item in views.output(x)) or "output tokens"
        message = "a request that should generate nothing has an answer"
        yield mismatch(message, "/response/output", "no items", quote(kinds))


def _after_errors(series: Series) -> Iterator[Exchange]:
    """Yield requests that are sent on a connection directly after an error."""
    failed: set[int] = set()
    for x in _turns(series):
        connection = x.websocket or 0
        if connection in failed:
            yield x
        failed.discard(connection)
        if _errors(x):
            failed.add(connection)


@series_only
@condition
def has_turn_after_error(series: Series) -> bool:
    """requests that are sent on a WebSocket connection after an error"""
    return any(True for _ in _after_errors(series))


@comparison(SHOULD, spec="responses#websocket", when=has_turn_after_error)
def websocket_survives_an_error(series: Series) -> Iterator[Finding]:
    """A WebSocket connection stays open after a refused request, and answers the next one.

    With the connection the client loses the responses that only the connection has.
    """
    for x in _after_errors(series):
        if x.response is None and x.failure is not None and x.failure.kind in _LOST:
            message = "a WebSocket connection ends after an error"
            yield mismatch(
                message, "connection", "an answer to the next request", quote(x.failure.detail), exchange=x.id
            )


def _later_turns(series: Series) -> Iterator[tuple[Exchange, frozenset[str]]]:
    """Yield answers that are not the first of their connection, with the ids of its earlier responses."""
    ids: dict[int, frozenset[str]] = {}
    for x in _turns(series):
        connection = x.websocket or 0
        own = _response_ids(x)
        if connection in ids and x.events is not None:
            yield x, ids[connection]
        ids[connection] = ids.get(connection, frozenset()) | own


@series_only
@condition
def has_later_turn(series: Series) -> bool:
    """several answers on one WebSocket connection"""
    return any(True for _ in _later_turns(series))


@comparison(MUST, spec="responses#websocket", when=has_later_turn)
def websocket_turns_are_separate(series: Series) -> Iterator[Finding]:
    """The answers of a WebSocket connection follow each other: no event of an earlier response arrives in a later one.

    A client takes each event for one of the answer that it waits for, and shows the wrong text.
    """
    for x, earlier in _later_turns(series):
        for place, event in enumerate(views.json_events(x)):
            if text(value_at(event, "response", "id")) in earlier:
                message = "an event of an earlier response arrives in a later answer of the connection"
                actual = quote(text(event.get("type")))
                yield mismatch(message, f"event {place}", "an event of this response", actual, exchange=x.id)
                break


def _in_flight(series: Series) -> list[list[Exchange]]:
    """Return the requests that were sent at the same time on one connection, in the order of their messages."""
    by_connection: dict[int, list[Exchange]] = {}
    for x in series.exchanges.values():
        if x.websocket is not None and _is_together(x):
            by_connection.setdefault(x.websocket, []).append(x)
    return [group for group in by_connection.values() if len(group) > 1]


@series_only
@condition
def has_requests_in_flight(series: Series) -> bool:
    """requests that are sent on a WebSocket connection before the answer to another one is complete"""
    return bool(_in_flight(series))


@comparison(MUST, spec="responses#websocket", when=has_requests_in_flight)
def websocket_answers_follow_each_other(series: Series) -> Iterator[Finding]:
    """Two requests that are in flight on one WebSocket connection are answered one after the other.

    Most events do not name their response, so a client takes alternating events for those of one answer. A server that refuses the second request by an
    error event is a variant.
    """
    for group in _in_flight(series):
        ids = [text(value_at(event, "response", "id")) for x in group for event in views.json_events(x)]
        changes = [name for name, _ in groupby(filter(None, ids))]
        lost = next((x for x in group if x.failure is not None), None)
        if len(changes) > len(set(changes)):
            message = "the events of two answers alternate on a WebSocket connection"
            actual = RedactableText("{} changes between {} responses", len(changes) - 1, len(set(changes)))
            yield mismatch(message, "response.id", "one answer after the other", actual, exchange=group[0].id)
        elif any(_errors(x) for x in group):
            yield variant("a second request is refused while the first one is answered", where="connection")
        elif lost is not None and lost.failure is not None:
            message = "a request in flight is not answered on a WebSocket connection"
            yield mismatch(message, "connection", "an answer", quote(lost.failure.detail), exchange=lost.id)
