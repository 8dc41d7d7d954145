"""Events of the Responses API that tell a text again: where one tells another text than its deltas did, and that leaks, it is told as it was told first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harmony_conformance.checks.responses.views import ENDS, TEXTS, WHOLE_IN, part_of
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_conformance.judge.check import Finding
from harmony_proxy.repair.responses.emitted_items import EmittedItem, What
from harmony_proxy.repair.responses.server_events import DONE
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.text.leak_prefixes import MARKER, SEAM

_SHOWN = frozenset({"output_text", "refusal"})
_WHOLES = {f"{stem}.done": said for stem, said in TEXTS.items() if said in _SHOWN}
_PART_DONE = "response.content_part.done"


def may_leak(piece: RawEvent) -> bool:
    """Whether an event tells a text again in which a leak may stand."""
    kind = text(at(piece.value, "type"))
    return (kind in _WHOLES or kind in (_PART_DONE, DONE) or kind in ENDS) and _has_needle(piece.data or "")


def stand_beside(found: Mapping[str, Iterable[Finding]]) -> bool:
    """Whether something was found in an error, or in what was told again: what else is said does not undo that."""
    places = (finding.at for findings in found.values() for finding in findings)
    return any(place.endswith("error") or "retold_" in place for place in places)


def as_told(event: JsonObject, item: EmittedItem) -> JsonObject:
    """An event that tells a text again, with the text that was told of the item."""
    kind = text(event.get("type"))
    if kind in _WHOLES:
        return _as_told(event, (_WHOLES[kind], part_of(event)), item)
    if kind == _PART_DONE:
        part = members(event.get("part"))
        return {**event, "part": _as_told(part, (text(part.get("type")), part_of(event)), item)}
    return {**event, "item": item_as_told(members(event.get("item")), item)} if kind == DONE else event


def item_as_told(value: JsonObject, item: EmittedItem) -> JsonObject:
    """An item as it was finished, with the texts that were told of it."""
    parts = [members(part) for part in items(value.get("content"))]
    told: list[Json] = [_as_told(part, (text(part.get("type")), place), item) for place, part in enumerate(parts)]
    return {**value, "content": told} if told else value


def _as_told(holder: JsonObject, what: What, item: EmittedItem) -> JsonObject:
    member = WHOLE_IN.get(what[0], "text")
    pieces = item.texts.get(what) if what[0] in _SHOWN else None
    is_told = pieces is None or not _has_needle(text(holder.get(member)))
    return holder if is_told else {**holder, member: "".join(pieces or ())}


def _has_needle(told: str) -> bool:
    return MARKER.search(told) is not None or SEAM.search(told) is not None
