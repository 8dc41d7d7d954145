"""Consistency of a stream's repeated content: deltas, the event that ends a text, the item, and the last response."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.checks.helpers.value_diff import lacks_cut_character, text_difference
from harmony_conformance.checks.responses import views
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, members, text, value_at
from harmony_conformance.judge.check import MUST, Finding, check, cited, mismatch, ruled
from harmony_conformance.judge.rulings import CUT_CHARACTERS
from harmony_conformance.redactable_text import Location, RedactableText, quote

_KIND_OF_PART = frozenset({"output_text", "refusal", "reasoning_text", "summary_text"})
_Key = tuple[int | str, str, int]


@check(MUST, spec="responses#output-index", when=views.STREAM_CONDITIONS)
def events_name_their_item(x: Exchange) -> Iterator[Finding]:
    """Each event about an item has its announced `output_index` and id, and each text delta its `content_index`.

    The official client adds a delta to `output[output_index].content[content_index]`, and raises without them.
    """
    announced: dict[int, str] = {}
    unannounced: set[int] = set()
    for place, (event, announced_at) in enumerate(views.events_by_item(x)):
        kind = text(event.get("type"))
        is_item = kind in (views.ITEM_ADDED, views.ITEM_DONE)
        stem = kind.removesuffix(".delta").removesuffix(".done")
        is_text = stem in views.TEXT_KIND_BY_EVENT or kind.startswith("response.content_part.")
        if not is_item and not is_text:
            continue
        index, name = integer(event.get("output_index")), views.id_of(event)
        missing: list[LiteralString] = [] if index is not None else ["output_index"]
        if not is_item and not text(event.get("item_id")):
            missing.append("item_id")
        if views.text_kind(event, ".delta") == "output_text" and integer(event.get("content_index")) is None:
            missing.append("content_index")
        if missing:
            message = f"an event about an item has no {' and no '.join(missing)}"
            yield mismatch(message, f"event {place}", " and ".join(missing), RedactableText("nothing, in {}", kind))
            return
        if index != announced_at or (index or 0) < 0:
            message = "an item has another output_index than it was announced with, or a negative one"
            expected = quote(announced_at) if index != announced_at else "0 or more"
            yield mismatch(message, f"event {place}", expected, quote(index))
            return
        if index is not None and kind.endswith(".done") and index not in announced:
            unannounced.add(index)
        if index is not None and name and announced.setdefault(index, name) != name:
            message = "an event has another item id than was announced at its output_index"
            if index in unannounced:
                message = "an event has another item id than the item at its output_index, which was never announced, only finished"
            yield mismatch(message, f"event {place}", quote(announced[index]), quote(name))
            return


_CONSTANT: tuple[LiteralString, ...] = ("type", "id", "call_id", "name", "namespace", "role")
"""The members of an item that must not change after its announcement. A missing or empty one may come later."""


@check(MUST, spec="responses#events", when=views.STREAM_CONDITIONS)
def items_stay_as_announced(x: Exchange) -> Iterator[Finding]:
    """A finished item has its announced type, id, `call_id`, name and role, and parts of the announced types; the response id is constant.

    The official client builds the answer from the announcements. If a call's `call_id` changes, the client sends its result
    under an id that the server does not know. A part whose type changes is an error.
    """
    announced: dict[tuple[int | str, int | None, LiteralString], str] = {}
    items_with_events: set[int | str | None] = set()
    unannounced: set[int | str | None] = set()
    added: set[tuple[int | str | None, int | None]] = set()
    places: dict[str, int | str | None] = {}
    for place, (event, item) in enumerate(views.events_by_item(x)):
        kind = text(event.get("type"))
        if kind.endswith(".done") and item not in items_with_events:
            unannounced.add(item)
        if kind == views.ITEM_ADDED:  # a second item at one place is a fault of the order of events
            announced = {key: value for key, value in announced.items() if key[0] != item}
            unannounced.discard(item)
        items_with_events.add(item)
        name = text(value_at(event.get("item"), "id"))
        if kind == views.ITEM_ADDED and name:
            places[name] = item
        if kind == views.ITEM_DONE and places.get(name, item) != item:
            continue  # an item that was announced at another place: its index is wrong
        if kind == "response.content_part.added":
            added.add((item, views.part_of(event)))
        for key, value in _identifiers(event, item):
            if value and announced.setdefault(key, value) != value and item not in unannounced:
                is_of_deltas = key[2] == "type of the part" and key[:2] not in added
                origin = "of its first delta" if is_of_deltas else "that was announced"
                message = RedactableText(f"the {{}} is not the one {origin}", RedactableText(key[2]))
                yield mismatch(message, f"event {place}", quote(announced[key]), quote(value))
                return


def _identifiers(
    event: JsonObject, place: int | str | None
) -> Iterator[tuple[tuple[int | str, int | None, LiteralString], str]]:
    """Yield the identifying values of an event: of the response, of an item, and of its part."""
    kind = text(event.get("type"))
    if isinstance(event.get("response"), dict):
        yield ("", None, "id of the response"), text(value_at(event["response"], "id"))
    if place is None:
        return
    if kind in (views.ITEM_ADDED, views.ITEM_DONE):
        for member in _CONSTANT:
            yield (place, None, f"{member} of the item"), text(value_at(event.get("item"), member))
    elif kind in ("response.content_part.added", "response.content_part.done"):
        yield (place, views.part_of(event), "type of the part"), text(value_at(event.get("part"), "type"))
    elif kind == "response.function_call_arguments.done":
        yield (place, None, "name of the item"), text(event.get("name"))
    elif (delta_kind := views.text_kind(event, ".delta") or "") in _KIND_OF_PART:
        yield (place, views.part_of(event), "type of the part"), delta_kind if delta_kind != "summary_text" else ""


@check(MUST, spec="responses#text-done", when=views.STREAM_CONDITIONS)
def texts_are_told_alike(x: Exchange) -> Iterator[Finding]:
    """The joined deltas of a text equal the text in its `done` events, its part and its item.

    One client shows the deltas, another the finished item: their users get different answers.
    """
    deltas: dict[_Key, list[str]] = defaultdict(list)
    stems: dict[_Key, str] = {}
    for event, place in views.events_by_item(x):
        kind = views.text_kind(event, ".delta")
        if place is not None and kind is not None:
            key = place, kind, views.part_of(event)
            deltas[key].append(text(event.get("delta")))
            stems[key] = text(event.get("type")).removesuffix(".delta")
    lesser: Finding | None = None
    for index, (event, item) in enumerate(views.events_by_item(x)):
        for key, whole in _whole_texts(event, item):
            pieces = deltas.get(key, [] if key[1] in views.VISIBLE_TEXT_KINDS else None)
            parts = (of[2] for of, found in deltas.items() if of[:2] == key[:2] and "".join(found) == whole)
            if whole and not pieces and (elsewhere := next(parts, None)) is not None:
                message = RedactableText("the deltas of a text have another index than its item's {}", Location(key[1]))
                part, shown = RedactableText("{}", key[2]), RedactableText("{}", elsewhere)
                yield cited(mismatch(message, f"event {index}", part, shown), "responses#output-index")
                return
            if pieces is None or (joined := "".join(pieces)) == whole:
                continue
            both = RedactableText("deltas: {}, event: {}", *text_difference(joined, whole))
            template = "the {} of `{}` differs from the joined deltas"
            message = RedactableText(template, Location(key[1]), text(event.get("type")))
            stem = stems.get(key) or _STEM_BY_TEXT_KIND[key[1]]
            finding = cited(mismatch(message, f"event {index}", "the same in both", both), views.CLAUSE_BY_EVENT[stem])
            if not lacks_cut_character(whole, joined):
                yield finding
                return
            lesser = lesser or ruled(finding, CUT_CHARACTERS)
    if lesser is not None:
        yield lesser


_STEM_BY_TEXT_KIND = {
    kind: event for event, kind in views.TEXT_KIND_BY_EVENT.items() if kind in views.VISIBLE_TEXT_KINDS
}
"""The prefix of the events of a text without deltas."""


def _whole_texts(event: JsonObject, place: int | str | None) -> Iterator[tuple[_Key, str]]:
    kind = text(event.get("type"))
    if place is None:
        return
    if (done := views.text_kind(event, ".done")) is not None:
        yield (place, done, views.part_of(event)), text(event.get(views.TEXT_MEMBER_BY_KIND.get(done, "text")))
    elif kind in ("response.content_part.done", "response.reasoning_summary_part.done"):
        part = members(event.get("part"))
        if (part_kind := text(part.get("type"))) in _KIND_OF_PART:
            yield (
                (place, part_kind, views.part_of(event)),
                text(part.get(views.TEXT_MEMBER_BY_KIND.get(part_kind, "text"))),
            )
    elif kind == views.ITEM_DONE:
        yield from (((place, of_item, part), whole) for of_item, part, whole in views.texts_of(event.get("item")))


@check(MUST, spec="responses#completed", when=(*views.STREAM_CONDITIONS, views.has_response_object))
def last_event_has_the_items(x: Exchange) -> Iterator[Finding]:
    """The output of the last event's response has the finished items, in order: the same types, ids, names and texts.

    Clients that wait for the end read the answer there, and send those items back.
    """
    events = [event for event in views.json_events(x) if text(event.get("type")) == views.ITEM_DONE]
    indexes = [integer(event.get("output_index")) for event in events]
    if None not in indexes:
        events = [event for _, event in sorted(zip(indexes, events, strict=True), key=lambda one: one[0] or 0)]
    done, last = [event.get("item") for event in events], views.output(x)
    if len(done) != len(last):
        message = "the last response has another number of items than were finished"
        yield mismatch(message, "/response/output", quote(_types(done)), quote(_types(last)))
        return
    for place, (one, other) in enumerate(zip(map(_identity, done), map(_identity, last), strict=True)):
        if one != other:
            expected, actual = text_difference(dumps(one), dumps(other))
            message = "an item of the last response differs from the finished one"
            yield mismatch(message, f"/response/output/{place}", expected, actual)


def _types(items_: list[Json]) -> str:
    return ", ".join(text(value_at(item, "type")) or "no type" for item in items_) or "none"


def _identity(item: Json) -> list[Json]:
    """Return the values that two copies of an item have to share."""
    texts: list[Json] = [[kind, place, content] for kind, place, content in views.texts_of(item)]
    return [
        *(value_at(item, member) for member in ("type", "id", "call_id", "name", "namespace", "action", "operation")),
        texts,
    ]
