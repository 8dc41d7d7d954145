"""The order of a stream's events, as a state machine: the message, and its blocks one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.checks.messages import views
from harmony_conformance.checks.responses.views import json_events
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject, dumps, integer, items, members, text, value_at
from harmony_conformance.judge.check import MUST, Finding, check, mismatch, variant
from harmony_conformance.redactable_text import RedactableText, ReportText, quote, shorten
from harmony_conformance.transport.sse import DONE

_START, _DELTA, _STOP = "content_block_start", "content_block_delta", "content_block_stop"
_OF_BLOCKS = (_START, _DELTA, _STOP)
_DELTAS = {
    "text_delta": "text",
    "citations_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
"""The type of the block that each delta extends. `server_tool_use` has the input of `tool_use`."""


@check(MUST, spec="messages#events", when=views.STREAMED)
def events_follow_the_grammar(x: Exchange) -> Iterator[Finding]:
    """A stream is `message_start`, blocks that each start and stop, `message_delta`, `message_stop`; names equal types.

    The official client raises on an event before `message_start`, dispatches by the event's name, and waits for `message_stop`. A `ping` may come
    anywhere. A `[DONE]` after the end is a variant. Blocks that overlap are one too: joined by index they are right, but some clients show the first one late.
    """
    machine = _Machine()
    for place, event in enumerate(x.events.events if x.events is not None else ()):
        if event.data.strip() == DONE and machine.has_ended:
            yield variant("a [DONE] of Chat Completions follows the last event", where=f"event {place}")
            continue
        kind = text(value_at(event.value, "type"))
        if kind and event.name != kind and not x.from_log:  # logs may lack the names
            yield mismatch("an event has another name than type", f"event {place}", quote(kind), shorten(event.name))
        for problem, expected in machine.process_event(kind, integer(value_at(event.value, "index"))):
            yield mismatch(problem, f"event {place}", expected, shorten(kind or event.data))
    if machine.overlaps:
        yield variant("a block starts before the one before it stops", where="stream")
    for problem, expected in machine.end():
        yield Finding(message=problem, location="stream", expected=expected)


_Faults = Iterator[tuple[LiteralString, ReportText]]


class _Machine:
    """The state of a message in a client."""

    def __init__(self) -> None:
        self._has_begun = False
        self._open: list[int | None] = []  # indexes of blocks
        self._has_delta = False
        self.has_ended = self.overlaps = False

    def process_event(self, kind: str, index: int | None) -> _Faults:
        """Process the next event. Yield each problem with the expected event."""
        if kind == "ping":
            return
        if self.has_ended:
            yield "an event comes after message_stop", "nothing"
        elif kind == "message_start":
            if self._has_begun:
                yield "the message starts twice", "one message_start"
            self._has_begun = True
        elif not self._has_begun:
            yield "the stream does not begin with message_start", "message_start"
            self._has_begun = True
        if kind in _OF_BLOCKS:
            yield from self._process_block(kind, index)
        elif kind in ("message_delta", "message_stop"):
            if self._open:
                yield "the message ends within a block", _STOP
                self._open.clear()
            if kind == "message_stop" and not self._has_delta:
                yield "the message stops without its stop reason", "message_delta"
            self._has_delta = True
            self.has_ended = self.has_ended or kind == "message_stop"
        elif kind != "message_start":
            yield "an event has a type that the API does not have", "an event of Messages"

    def _process_block(self, kind: str, index: int | None) -> _Faults:
        if self._has_delta and not self.has_ended:
            yield "a block comes after message_delta", "message_stop"
        if kind == _START:
            self.overlaps = self.overlaps or bool(self._open)
            self._open.append(index)
        elif not self._open:
            yield "an event is about a block that is not open", _START
            self._open += [index] if kind == _DELTA else []
        elif kind == _STOP:
            self._open.remove(index if index in self._open else self._open[-1])  # a wrong index has a separate check

    def end(self) -> _Faults:
        """Yield the problem of a stream that lacks its end."""
        if not self.has_ended:
            yield "the stream ends without message_stop", "message_stop"


@check(MUST, spec="messages#events", when=views.STREAMED)
def blocks_are_numbered(x: Exchange) -> Iterator[Finding]:
    """Blocks have the indexes 0, 1, 2, …, and each delta and stop has the index of an open block.

    The official client reads `content[index]`: with another index it raises, or adds the text to another block.
    """
    started, stopped = 0, set[int | None]()
    for place, event in enumerate(json_events(x)):
        kind, index = event.get("type"), integer(event.get("index"))
        if kind not in _OF_BLOCKS:
            continue
        is_open = index is not None and 0 <= index < started and index not in stopped
        if index != started if kind == _START else not is_open:
            message = "an event has another index than its block"
            expected = started if kind == _START else max(started - 1, 0)
            yield mismatch(message, f"event {place}/index", quote(expected), shorten(dumps(event.get("index"))))
            return
        started += kind == _START
        stopped |= {index} if kind == _STOP else set()


@check(MUST, spec="messages#deltas", when=views.STREAMED)
def deltas_fit_their_block(x: Exchange) -> Iterator[Finding]:
    """A block starts empty, and gets only deltas of its type: text, thinking and then its signature, or pieces of the input.

    The official client ignores a delta of another type, and repeats what the start of a block already had.
    """
    started: list[JsonObject] = []
    signed = set[int]()
    for place, event in enumerate(json_events(x)):
        kind, delta, index = event.get("type"), members(event.get("delta")), integer(event.get("index"))
        if kind == "message_start" and items(value_at(event, "message", "content")):
            actual = shorten(dumps(value_at(event, "message", "content")))
            yield mismatch("message_start has content", f"event {place}/message/content", "[]", actual)
        if kind == _START:
            block = members(event.get("content_block"))
            started.append(block)
            filled = [name for name in ("text", "thinking", "input") if block.get(name)]
            if filled:
                message = RedactableText("a block starts with its {}", filled[0])
                actual = shorten(dumps(block[filled[0]]))
                yield mismatch(message, f"event {place}/content_block/{filled[0]}", "nothing yet", actual)
        elif kind == _DELTA and started:
            index = index if index is not None and 0 <= index < len(started) else len(started) - 1
            name, fits = text(delta.get("type")), text(started[index].get("type"))
            fits = "tool_use" if fits.endswith("_tool_use") else fits
            if _DELTAS.get(name) != fits:
                expected = " or ".join(one for one, type_ in _DELTAS.items() if type_ == fits) or "no delta"
                where = f"event {place}/delta/type"
                yield mismatch("a delta does not fit its block", where, quote(expected), shorten(name))
                return
            if index in signed:
                yield mismatch("a delta comes after the signature", f"event {place}", _STOP, shorten(name))
                return
            signed |= {index} if name == "signature_delta" else set()
