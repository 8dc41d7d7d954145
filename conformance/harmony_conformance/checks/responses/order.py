"""The order of a stream's events, as a state machine: announced, open and finished items and parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import LiteralString

from harmony_conformance.checks.responses import views
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject, dumps, pointer, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, cited, mismatch
from harmony_conformance.judge.condition import evidence
from harmony_conformance.redactable_text import RedactableText, ReportText, quote, shorten
from harmony_ref import text_of

_BEGINNINGS = ("response.created", "response.queued", "response.in_progress")
_PARTS = {"response.content_part": "content", "response.reasoning_summary_part": "summary"}


@check(SHOULD, spec="responses#sequence-number", when=views.STREAM_CONDITIONS)
def events_are_numbered(x: Exchange) -> Iterator[Finding]:
    """The events of a stream are numbered from 0 without a gap (`sequence_number`).

    A client that lost its connection requests the events after the last number received.
    """
    for place, event in enumerate(views.json_events(x)):
        if (number := event.get("sequence_number")) is None:
            yield mismatch("an event has no sequence_number", f"event {place}", quote(place), "nothing")
            return
        if number != place:
            message = "an event has a sequence_number other than its position"
            yield mismatch(message, f"event {place}", quote(place), quote(dumps(number)))
            return


@check(MUST, spec="responses#events", when=views.STREAM_CONDITIONS)
def events_follow_the_grammar(x: Exchange) -> Iterator[Finding]:
    """A stream begins with `response.created`, announces each item and message part before its events, finishes each item, and ends once.

    The official client builds the response from these events. It raises on events about unannounced items or parts, and waits for a missing
    end (defects V11, V35).
    """
    machine = _Machine()
    for place, (event, item) in enumerate(views.events_by_item(x)):
        for problem, expected in machine.process_event(event, item):
            actual = shorten(text(event.get("type")) or dumps(event))
            clause = "responses#custom-input-events" if problem == _ARGUMENTS_FOR_INPUT else ""
            yield replace(mismatch(problem, f"event {place}", expected, actual), clause=clause)
    for problem, expected in machine.end():
        yield Finding(message=problem, location="stream", expected=expected)


_ARGUMENTS_FOR_INPUT: LiteralString = "the input of a custom tool's call comes in events of function arguments"
_Faults = Iterator[tuple[LiteralString, ReportText]]
_Place = int | str


@dataclass(kw_only=True)
class _ItemState:
    name: str = ""
    is_announced: bool = True
    is_done: bool = False
    open_parts: set[int] = field(default_factory=set[int])
    type: str = ""
    has_wrong_events: bool = False


class _Machine:
    """The state of a response in a client. Each fault is reported once."""

    def __init__(self) -> None:
        self._begun: list[str] = []
        self._items: dict[_Place, _ItemState] = {}
        self._end = ""

    def process_event(self, event: JsonObject, place: _Place | None) -> _Faults:
        """Process the next event. Yield each problem with the expected event."""
        kind = text(event.get("type"))
        if self._end:
            yield "an event comes after the one that ends the stream", RedactableText("nothing after {}", self._end)
            return
        if kind in _BEGINNINGS:
            if self._items or kind in self._begun:
                yield "the response is announced twice", "one beginning"
        elif _BEGINNINGS[0] not in self._begun:
            yield "the stream does not begin with `response.created`", "response.created"
            self._begun.append(_BEGINNINGS[0])
        self._begun.append(kind)
        if kind in views.STATUS_BY_FINAL_EVENT:
            self._end = kind
            if any(not item.is_done for item in self._items.values()) and kind != "response.failed":
                yield "the response ends with an item that is not done", f"{views.ITEM_DONE} for each item"
        else:
            yield from self._about_item(event, place, kind)

    def _about_item(self, event: JsonObject, place: _Place | None, kind: str) -> _Faults:
        if place is None:
            return
        item = self._items.get(place)
        if kind == views.ITEM_ADDED:
            name = text(value_at(event.get("item"), "id"))
            if item is not None and item.is_announced and name and item.name not in ("", name):
                yield "two items are announced at one output_index", "an output_index that no other item has"
            elif item is not None and item.is_announced:
                yield "an item is announced twice", f"one {views.ITEM_ADDED} for each item"
            elif item is not None and item.is_done:
                message = "an item is announced at the output_index of one that was never announced, only finished"
                yield message, "an output_index that no other item has"
            elif item is not None:
                yield "an item is announced after its first event", f"{views.ITEM_ADDED} first"
            self._items[place] = _ItemState(name=name, type=text(value_at(event, "item", "type")))
        elif item is None:
            yield "an event is about an item that was not announced", views.ITEM_ADDED
            is_done = kind == views.ITEM_DONE
            self._items[place] = _ItemState(is_announced=False, is_done=is_done, open_parts={views.part_of(event)})
        elif item.is_done:
            if item.is_announced and text(event.get("item_id")) not in ("", item.name):
                yield "an event has the output_index of another item, which is done", "the output_index of its item"
            elif item.is_announced:  # else the event may be about another item, never announced either
                yield "an event is about an item that is done", f"nothing after {views.ITEM_DONE}"
        elif kind == views.ITEM_DONE:
            item.is_done = True
        else:
            yield from self._about_part(item, event, kind)

    def _about_part(self, item: _ItemState, event: JsonObject, kind: str) -> _Faults:
        part = views.part_of(event)
        if kind == "response.content_part.added":
            item.open_parts.add(part)
        elif views.text_kind(event, ".delta") in views.VISIBLE_TEXT_KINDS and part not in item.open_parts:
            yield "a text delta is about a part that was not announced", "response.content_part.added"
            item.open_parts.add(part)
        elif views.text_kind(event, ".delta") == "arguments" and item.type == "custom_tool_call":
            if not item.has_wrong_events:
                yield _ARGUMENTS_FOR_INPUT, "response.custom_tool_call_input.delta"
            item.has_wrong_events = True

    def end(self) -> _Faults:
        """Yield the problems at the end of the stream."""
        if not self._end:
            yield "no event ends the stream", "response.completed, response.incomplete or response.failed"


@check(SHOULD, spec="responses#text-done", when=views.STREAM_CONDITIONS)
def texts_begin_and_end(x: Exchange) -> Iterator[Finding]:
    """Each text, including reasoning and arguments, comes between the event that adds its part and the events that end text and part.

    Clients close a text on its `done` event; without these events they can only guess.
    """
    added: set[tuple[_Place, str, int]] = set()
    done: set[tuple[_Place, str, int]] = set()
    ended: set[tuple[_Place, str, int]] = set()
    begun: dict[tuple[_Place, LiteralString, int], tuple[int, str]] = {}
    for number, (event, place) in enumerate(views.events_by_item(x)):
        stem, _, ending = text(event.get("type")).rpartition(".")
        if place is None:
            continue
        if stem in _PARTS:
            (added if ending == "added" else done).add((place, _PARTS[stem], views.part_of(event)))
        elif (content := views.text_kind(event, ".delta")) is not None:
            begun.setdefault((place, content, views.part_of(event)), (number, stem))
        elif (content := views.text_kind(event, ".done")) is not None:
            ended.add((place, content, views.part_of(event)))
    is_broken = x.error is not None  # then no text of it has an end
    for (place, content, part), (number, stem) in begun.items():
        is_summary, has_part = content == "summary_text", content not in ("arguments", "input", "code")
        key = (place, "summary" if is_summary else "content", part)
        part_event = "response.reasoning_summary_part" if is_summary else "response.content_part"
        steps: tuple[tuple[bool, LiteralString, str], ...] = (
            (is_broken or (place, content, part) in ended, "ends their text", f"{stem}.done"),
            (not has_part or key in added, "adds their part", f"{part_event}.added"),
            (is_broken or not has_part or key in done, "ends their part", f"{part_event}.done"),
        )
        roles: list[LiteralString] = [role for is_there, role, _ in steps if not is_there]
        if roles:
            expected = quote(" and ".join(event for is_there, _, event in steps if not is_there))
            message = f"deltas of {content} come without the event that {' and that '.join(roles)}"
            finding = mismatch(message, f"event {number}", expected, "no such event")
            lacks_end = not steps[0][0]
            yield cited(finding, views.CLAUSE_BY_EVENT[stem] if lacks_end or is_summary else "responses#content-part")


_KIND_BY_ITEM_TYPE = {"reasoning": "analysis", "message": "shown", "function_call": "called"}
"""The kind of output message by item type. Other items belong to tools of the API."""


@evidence
def order_is_known(x: Exchange) -> bool:
    """answers whose output tokens are known and well-formed"""
    return x.expected_output is not None and bool(views.output_messages(x))


def _kinds_and_texts(x: Exchange) -> list[tuple[str, str]]:
    """Return the kind and the text of each message of the model's output."""
    return [
        (
            "called" if message.recipient is not None else "analysis" if message.channel == "analysis" else "shown",
            text_of(message).strip(),
        )
        for message in views.output_messages(x)
    ]


@check(
    MUST,
    spec="responses#output",
    when=(views.is_responses, on.is_complete_answer, views.has_response_object, order_is_known),
)
def items_stand_in_order(x: Exchange) -> Iterator[Finding]:
    """The items of the output are in the order in which the model wrote them: reasoning before its result.

    Clients send them back in this order. In another order the model reads an answer before the reasoning for it.
    """
    messages = _kinds_and_texts(x)
    last = 0
    for place, item in enumerate(views.output(x)):
        kind = _KIND_BY_ITEM_TYPE.get(text(value_at(item, "type")), "")
        # if one item joins several messages, the first text represents all
        content = next((one.strip() for _, _, one in views.texts_of(item) if one.strip()), "")
        matches = [index for index, (of, one) in enumerate(messages) if of == kind and content and content in one]
        if not matches:
            continue
        after = [index for index in matches if index >= last]
        if not after:
            message = "an item comes after one that the model wrote later"
            actual = quote(", ".join(text(value_at(one, "type")) or "no type" for one in views.output(x)))
            types = {kind: name for name, kind in _KIND_BY_ITEM_TYPE.items()}
            yield mismatch(
                message, pointer("output", place), quote(", ".join(types[kind] for kind, _ in messages)), actual
            )
            return
        last = after[0]
