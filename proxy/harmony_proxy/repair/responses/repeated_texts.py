"""Events of the Responses API that repeat a text. If a repeated text leaks, and differs from its deltas, the emitted text replaces it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from harmony_conformance.checks.responses.views import (
    STATUS_BY_FINAL_EVENT,
    TEXT_KIND_BY_EVENT,
    TEXT_MEMBER_BY_KIND,
    part_of,
)
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.judge.check import Finding
from harmony_proxy.repair.responses.emitted_items import EmittedItem, ItemTextKey
from harmony_proxy.repair.responses.server_events import ITEM_DONE
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.text.leak_prefixes import MARKER, SEAM

_SHOWN = frozenset({"output_text", "refusal"})
_WHOLES = {f"{stem}.done": kind for stem, kind in TEXT_KIND_BY_EVENT.items() if kind in _SHOWN}
_PART_DONE = "response.content_part.done"


def may_leak(piece: RawEvent) -> bool:
    """Return True if an event repeats a text that may have a leak."""
    kind = text(value_at(piece.value, "type"))
    return (kind in _WHOLES or kind in (_PART_DONE, ITEM_DONE) or kind in STATUS_BY_FINAL_EVENT) and _may_have_leak(
        piece.data or ""
    )


def has_permanent_finding(found: Mapping[str, Iterable[Finding]]) -> bool:
    """Return True if a finding refers to an error or to a repeated text. Later events cannot undo such a finding."""
    places = (finding.location for findings in found.values() for finding in findings)
    return any(place.endswith("error") or "retold_" in place for place in places)


def replace_repeated_text(event: JsonObject, item: EmittedItem) -> JsonObject:
    """Return an event that repeats a text, with the emitted text of the item."""
    kind = text(event.get("type"))
    if kind in _WHOLES:
        return _with_emitted_text(event, (_WHOLES[kind], part_of(event)), item)
    if kind == _PART_DONE:
        part = members(event.get("part"))
        return {**event, "part": _with_emitted_text(part, (text(part.get("type")), part_of(event)), item)}
    return {**event, "item": replace_item_texts(members(event.get("item")), item)} if kind == ITEM_DONE else event


def replace_item_texts(value: JsonObject, item: EmittedItem) -> JsonObject:
    """Return a finished item with its emitted texts."""
    parts = [members(part) for part in items(value.get("content"))]
    content: list[Json] = [
        _with_emitted_text(part, (text(part.get("type")), index), item) for index, part in enumerate(parts)
    ]
    return {**value, "content": content} if content else value


def _with_emitted_text(holder: JsonObject, what: ItemTextKey, item: EmittedItem) -> JsonObject:
    member = TEXT_MEMBER_BY_KIND.get(what[0], "text")
    fragments = item.texts.get(what) if what[0] in _SHOWN else None
    is_same = fragments is None or not _may_have_leak(text(holder.get(member)))
    return holder if is_same else {**holder, member: "".join(fragments or ())}


def _may_have_leak(data: str) -> bool:
    return MARKER.search(data) is not None or SEAM.search(data) is not None
