"""An answer of the Responses API as it was told: the response object, its items, and the events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import condition, only_on

ENDS: dict[str, LiteralString] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
"""The events that end a stream, and the status that each stands for."""

ADDED = "response.output_item.added"
"""The event that announces an item."""

TEXTS: dict[str, LiteralString] = {
    "response.output_text": "output_text",
    "response.refusal": "refusal",
    "response.reasoning_text": "reasoning_text",
    "response.reasoning_summary_text": "summary_text",
    "response.function_call_arguments": "arguments",
    "response.code_interpreter_call_code": "code",
}
"""What has `.delta` and `.done` events, and the part of an item that they tell."""

WHOLE_IN = {"refusal": "refusal", "arguments": "arguments", "code": "code"}
"""The member of a `.done` event that has the whole, where it is not `text`."""


@only_on(RESPONSES.name)
@condition
def is_responses(x: Exchange) -> bool:
    """ordinary exchanges on the Responses API"""
    return x.api == RESPONSES.name and on.is_conversation.holds(x)


@condition
def told_a_response(x: Exchange) -> bool:
    """answers that are a response object, or a stream whose last event has one"""
    return bool(response(x))


def response(x: Exchange) -> JsonObject:
    """The response object: the answer, or what the last event has; empty where there is none."""
    if x.events is None:
        return members(x.response_json)
    ends = [event for event in told_events(x) if text(event.get("type")) in ENDS]
    return members(ends[-1].get("response")) if ends else {}


def output(x: Exchange) -> list[Json]:
    """The items of the response object."""
    return items(response(x).get("output"))


def told_events(x: Exchange) -> list[JsonObject]:
    """The events in order, as they were on the wire; what is no JSON is left out."""
    return [members(event.value) for event in x.events.events if event.value is not None] if x.events else []


def placed_events(x: Exchange) -> list[tuple[JsonObject, int | str | None]]:
    """The events as `told_events`, each with the item that it is about: its index in the output, else its id; None for an event about no item.

    Where nothing was announced at an event's index, but an item of its id elsewhere, it is about that one: that its index is wrong is the fault of one check.
    """
    announced: dict[str, int] = {}
    placed: list[tuple[JsonObject, int | str | None]] = []
    for event in told_events(x):
        index, name = number(event.get("output_index")), id_of(event)
        if index is not None and name and text(event.get("type")) == ADDED:
            announced[name] = index
        if index is not None and index not in announced.values():
            index = announced.get(name, index)
        placed.append((event, index if index is not None else name or None))
    return placed


def id_of(event: JsonObject) -> str:
    """The id of the item that an event is about, or that of a call that has no other; empty where it names none."""
    item = event.get("item")
    return text(event.get("item_id")) or text(at(item, "id")) or text(at(item, "call_id"))


def part_of(event: JsonObject) -> int:
    """Which part of an item an event is about."""
    return next((one for name in ("content_index", "summary_index") if (one := number(event.get(name))) is not None), 0)


def text_kind(event: JsonObject, ending: str) -> LiteralString | None:
    """What an event `….delta` or `….done` tells, None where it is about no text."""
    kind = text(event.get("type"))
    return TEXTS.get(kind.removesuffix(ending)) if kind.endswith(ending) else None


def texts_of(item: Json) -> Iterator[tuple[str, int, str]]:
    """The texts of an item: what each is, the part it stands in, and the text."""
    for member in ("content", "summary"):
        for place, part in enumerate(items(at(item, member))):
            kind = text(at(part, "type"))
            yield kind, place, text(at(part, WHOLE_IN.get(kind, "text")))
    for member in ("arguments", "code"):
        if isinstance(at(item, member), str):
            yield member, 0, text(at(item, member))
