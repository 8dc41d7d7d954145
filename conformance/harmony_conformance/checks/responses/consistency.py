"""What a stream tells several times: in deltas, in the event that ends a text, in the item, and in the last response."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.checks.responses.views import (
    ADDED,
    TEXTS,
    WHOLE_IN,
    id_of,
    is_responses,
    output,
    part_of,
    placed_events,
    text_kind,
    texts_of,
    told_a_response,
    told_events,
)
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, at, dumps, members, number, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, check
from harmony_conformance.redactable_text import Location, RedactableText, quote

_STREAMED = (is_responses, on.was_streamed, on.ended_well)
_ITEM_DONE = "response.output_item.done"
_KIND_OF_PART = frozenset({"output_text", "refusal", "reasoning_text", "summary_text"})
_Key = tuple[int | str, str, int]


@check(MUST, spec="responses#output-index", when=_STREAMED)
def events_name_their_item(x: Exchange) -> Iterator[Finding]:
    """Each event about an item says where it stands in the output and which it is, and deltas of text which part, as they were announced.

    The official client adds a delta to `output[output_index].content[content_index]`, and raises without them.
    """
    announced: dict[int, str] = {}
    for place, (event, announced_at) in enumerate(placed_events(x)):
        kind = text(event.get("type"))
        is_item = kind in (ADDED, _ITEM_DONE)
        if not is_item and not _is_about_a_text(kind):
            continue
        index, name = number(event.get("output_index")), id_of(event)
        missing: list[LiteralString] = [] if index is not None else ["output_index"]
        if not is_item and not text(event.get("item_id")):
            missing.append("item_id")
        if text_kind(event, ".delta") == "output_text" and number(event.get("content_index")) is None:
            missing.append("content_index")
        if missing:
            yield Finding(
                message=f"an event about an item has no {' and no '.join(missing)}",
                at=f"event {place}",
                expected=" and ".join(missing),
                actual=quote(kind),
            )
            return
        if index != announced_at or (index or 0) < 0:
            yield Finding(
                message="an item stands at another place than it was announced at, or at none",
                at=f"event {place}",
                expected=quote(announced_at) if index != announced_at else "0 or more",
                actual=quote(index),
            )
            return
        if index is not None and name and announced.setdefault(index, name) != name:
            yield Finding(
                message="an event names another item than stands at its place",
                at=f"event {place}",
                expected=quote(announced[index]),
                actual=quote(name),
            )
            return


def _is_about_a_text(kind: str) -> bool:
    return kind.removesuffix(".delta").removesuffix(".done") in TEXTS or kind.startswith("response.content_part.")


_LASTING: tuple[LiteralString, ...] = ("type", "id", "call_id", "name", "role")
"""The members of an item that stay as they were announced; one that is missing or empty at first may come later."""


@check(MUST, spec="responses#events", when=_STREAMED)
def items_stay_as_announced(x: Exchange) -> Iterator[Finding]:
    """An item is finished as it was added: with its type, id, `call_id`, name and role, its parts with their types, within one response of one id.

    The official client builds the answer from what was added: a call that is given another `call_id` on the way is answered under a name that the server
    does not know, and a part that becomes another one is an error.
    """
    announced: dict[tuple[int | str, int | None, LiteralString], str] = {}
    for place, (event, item) in enumerate(placed_events(x)):
        for key, said in _named(event, item):
            if said and announced.setdefault(key, said) != said:
                yield Finding(
                    message=RedactableText("the {} is not the one that was announced", RedactableText(key[2])),
                    at=f"event {place}",
                    expected=quote(announced[key]),
                    actual=quote(said),
                )
                return


def _named(
    event: JsonObject, place: int | str | None
) -> Iterator[tuple[tuple[int | str, int | None, LiteralString], str]]:
    """What an event calls the response, an item, and a part of one."""
    kind = text(event.get("type"))
    if isinstance(event.get("response"), dict):
        yield ("", None, "id of the response"), text(at(event["response"], "id"))
    if place is None:
        return
    if kind in (ADDED, _ITEM_DONE):
        for member in _LASTING:
            yield (place, None, f"{member} of the item"), text(at(event.get("item"), member))
    elif kind in ("response.content_part.added", "response.content_part.done"):
        yield (place, part_of(event), "type of the part"), text(at(event.get("part"), "type"))
    elif kind == "response.function_call_arguments.done":
        yield (place, None, "name of the item"), text(event.get("name"))
    elif (said := text_kind(event, ".delta") or "") in _KIND_OF_PART:
        yield (place, part_of(event), "type of the part"), said if said != "summary_text" else ""


@check(MUST, spec="responses#text-done", when=_STREAMED)
def texts_are_told_alike(x: Exchange) -> Iterator[Finding]:
    """The deltas of a text, joined, are the text that its `done` events, its part and its item have.

    One client shows the deltas, another the finished item: their users are given different answers.
    """
    joined: dict[_Key, list[str]] = defaultdict(list)
    for event, place in placed_events(x):
        said = text_kind(event, ".delta")
        if place is not None and said is not None:
            joined[place, said, part_of(event)].append(text(event.get("delta")))
    for number_, (event, item) in enumerate(placed_events(x)):
        for key, whole in _wholes(event, item):
            pieces = joined.get(key, [] if key[1] in _SHOWN else None)
            if pieces is not None and "".join(pieces) != whole:
                expected, actual = text_difference("".join(pieces), whole)
                yield Finding(
                    message=RedactableText(
                        "the {} of `{}` is not what the deltas told", Location(key[1]), text(event.get("type"))
                    ),
                    at=f"event {number_}",
                    expected=expected,
                    actual=actual,
                )
                return


_SHOWN = frozenset({"output_text", "refusal"})
"""Texts that are the answer. A thought may be told at its end alone, by a server that hides or sums it up, and arguments, which nobody reads along."""


def _wholes(event: JsonObject, place: int | str | None) -> Iterator[tuple[_Key, str]]:
    """The whole texts that an event has, each with what it is."""
    kind = text(event.get("type"))
    if place is None:
        return
    if (said := text_kind(event, ".done")) is not None:
        yield (place, said, part_of(event)), text(event.get(WHOLE_IN.get(said, "text")))
    elif kind in ("response.content_part.done", "response.reasoning_summary_part.done"):
        part = members(event.get("part"))
        if (said := text(part.get("type"))) in _KIND_OF_PART:
            yield (place, said, part_of(event)), text(part.get(WHOLE_IN.get(said, "text")))
    elif kind == _ITEM_DONE:
        yield from (((place, said, part), whole) for said, part, whole in texts_of(event.get("item")))


@check(MUST, spec="responses#completed", when=(*_STREAMED, told_a_response))
def last_event_has_the_items(x: Exchange) -> Iterator[Finding]:
    """The output of the last event's response is the items that were finished, in order: the same types, ids, names and texts.

    Clients that wait for the end read the answer there, and send those items back.
    """
    done = [event.get("item") for event in told_events(x) if text(event.get("type")) == _ITEM_DONE]
    places = [number(event.get("output_index")) for event in told_events(x) if text(event.get("type")) == _ITEM_DONE]
    if None not in places:
        done = [item for _, item in sorted(zip(places, done, strict=True), key=lambda one: one[0] or 0)]
    last = output(x)
    if len(done) != len(last):
        yield Finding(
            message="the last response has another number of items than were finished",
            at="/response/output",
            expected=quote(_types(done)),
            actual=quote(_types(last)),
        )
        return
    for place, (told, kept) in enumerate(zip(done, last, strict=True)):
        if _identity(told) != _identity(kept):
            expected, actual = text_difference(dumps(_identity(told)), dumps(_identity(kept)))
            yield Finding(
                message="an item of the last response is not the one that was finished",
                at=f"/response/output/{place}",
                expected=expected,
                actual=actual,
            )


def _types(told: list[Json]) -> str:
    return ", ".join(text(at(item, "type")) or "no type" for item in told) or "none"


def _identity(item: Json) -> list[Json]:
    """What makes an item the one that it is."""
    named: list[Json] = [at(item, member) for member in ("type", "id", "call_id", "name", "action")]
    texts: list[Json] = [[kind, place, said] for kind, place, said in texts_of(item)]
    return [*named, texts]
