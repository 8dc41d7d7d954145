"""The items of a Responses stream as they were emitted. Rewritten events continue their numbers, indexes and texts."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace

from harmony_conformance.checks.responses.views import TEXT_KIND_BY_EVENT, TEXT_MEMBER_BY_KIND, part_of, texts_of
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_proxy.repair.responses.server_events import FUNCTION_CALL, ITEM_ADDED, ITEM_DONE

ItemTextKey = tuple[str, int]
"""Key of a text of an item: kind (`output_text`, `reasoning_text`, `summary_text`, `arguments`) and part."""

FIRST_TEXT_KEYS: dict[str, ItemTextKey] = {
    "message": ("output_text", 0),
    "reasoning": ("reasoning_text", 0),
    FUNCTION_CALL: ("arguments", 0),
}
"""The text that an item of each type has."""

_STEMS = {kind: stem for stem, kind in TEXT_KIND_BY_EVENT.items()}
_DELTAS = {f"{stem}.delta": kind for stem, kind in TEXT_KIND_BY_EVENT.items()}
_WHOLES = {f"{stem}.done": kind for stem, kind in TEXT_KIND_BY_EVENT.items()}
_PART_ADDED = {
    "response.content_part.added": {"output_text": "output_text", "reasoning_text": "reasoning_text"},
    "response.reasoning_summary_part.added": {"summary_text": "summary_text"},
}
_JUDGE_INDEX = 10_000
"""First index of items for the judge that could collide with an index of the server."""


@dataclass(kw_only=True)
class EmittedItem:
    """An emitted item.

    Attributes:
        index: Position in the output.
        source: Place of the server's item that it comes from.
        value: Announced item.
        text_key: Key of the text that grows.
        parts: Announced parts.
        texts: Fragments of the emitted texts.
        end: Finished item; None before the end.
        is_rewritten: True if its texts were rewritten.
        is_indexed: True if it was announced with its index. Without an index, its id identifies it.
    """

    index: int
    source: int
    value: JsonObject
    text_key: ItemTextKey
    parts: dict[ItemTextKey, JsonObject] = field(default_factory=dict[ItemTextKey, JsonObject])
    texts: dict[ItemTextKey, list[str]] = field(default_factory=dict[ItemTextKey, list[str]])
    end: JsonObject | None = None
    is_rewritten: bool = False
    is_indexed: bool = True

    @property
    def kind(self) -> str:
        """Return the type of the item."""
        return text(self.value.get("type"))

    @property
    def id(self) -> str:
        """Return the id of the item."""
        return text(self.value.get("id"))

    def emitted_text(self) -> str:
        """Return the emitted part of the text that grows."""
        fragments = self.texts.setdefault(self.text_key, [])
        fragments[:] = ["".join(fragments)]
        return fragments[0]

    def event(self, stem: str, **more: Json) -> JsonObject:
        """Return an event about the text that grows."""
        kind, part = self.text_key
        name = {"summary_text": "summary_index", "arguments": ""}.get(kind, "content_index")
        position: JsonObject = {name: part} if name else {}
        return {"type": f"response.{stem}", "item_id": self.id, **self._index_member, **position, **more}

    @property
    def _index_member(self) -> JsonObject:
        return {"output_index": self.index} if self.is_indexed else {}

    def as_item(self, ending: str, value: JsonObject) -> JsonObject:
        """Return an event with the complete item."""
        return {"type": f"response.output_item.{ending}", **self._index_member, "item": value}

    def delta(self, fragment: str) -> JsonObject:
        """Add a fragment to the text, and return its event."""
        self.texts.setdefault(self.text_key, []).append(fragment)
        return self.event(stem_of(self.text_key) + ".delta", delta=fragment, **_logprobs(self.text_key))

    def text_done_event(self, **more: Json) -> JsonObject:
        """Return the event that ends the text."""
        member = TEXT_MEMBER_BY_KIND.get(self.text_key[0], "text")
        return self.event(
            stem_of(self.text_key) + ".done", **more, **{member: self.emitted_text()}, **_logprobs(self.text_key)
        )

    def part(self, ending: str, content: str) -> JsonObject:
        """Return the event that begins or ends the part."""
        stem = "reasoning_summary_part" if self.text_key[0] == "summary_text" else "content_part"
        return self.event(f"{stem}.{ending}", part=self.part_with_text(content))

    def part_with_text(self, content: str) -> JsonObject:
        """Return the part with this text."""
        extra: JsonObject = {"annotations": [], "logprobs": []} if self.text_key[0] == "output_text" else {}
        return {**extra, **self.parts.get(self.text_key, {}), "type": self.text_key[0], "text": content}


def stem_of(key: ItemTextKey) -> str:
    """Return the common part of the names of a text's events."""
    return _STEMS[key[0]].removeprefix("response.")


def _logprobs(key: ItemTextKey) -> JsonObject:
    return {"logprobs": []} if key[0] == "output_text" else {}


class EmittedItems:
    """Stores the items, the next sequence number, the token ids, and the raw bytes if the complete stream is judged at its end."""

    def __init__(self, *, keeps_bytes: bool) -> None:
        self.raw: list[bytes] = []
        self.emitted_items: list[EmittedItem] = []
        self.number = 0
        self.is_numbered = False
        self.ids: list[Json] = []
        self._keeps_bytes = keeps_bytes

    @property
    def next_index(self) -> int:
        """Return the index of the next item."""
        return max((item.index for item in self.emitted_items), default=-1) + 1

    def find_by_source(self, source: int) -> EmittedItem | None:
        """Return the last item that comes from an item of the server."""
        return next((item for item in reversed(self.emitted_items) if item.source == source), None)

    def record_bytes(self, raw: bytes) -> None:
        """Record emitted bytes."""
        if self._keeps_bytes:
            self.raw.append(raw)

    def count(self, event: JsonObject) -> None:
        """Record the sequence number and the token ids of an emitted event."""
        sequence_number = integer(event.get("sequence_number"))
        if sequence_number is not None:
            self.number, self.is_numbered = sequence_number + 1, True
        if "token_ids" in event:
            self.ids += items(event["token_ids"])

    def record_event(self, event: JsonObject, source: int | None) -> None:
        """Record an emitted event of the server."""
        self.count(event)
        kind = text(event.get("type"))
        if source is None:
            return
        item = self.find_by_source(source)
        if kind == ITEM_ADDED or item is None:
            item = self._add_announced(event, source)
        if (text_kind := _DELTAS.get(kind)) is not None:
            item.text_key = (text_kind, part_of(event))
            item.texts.setdefault(item.text_key, []).append(text(event.get("delta")))
        elif (text_kind := _WHOLES.get(kind)) is not None:
            item.texts.setdefault(
                (text_kind, part_of(event)), [text(event.get(TEXT_MEMBER_BY_KIND.get(text_kind, "text")))]
            )
        elif kind in _PART_ADDED:
            part = members(event.get("part"))
            key = (_PART_ADDED[kind].get(text(part.get("type")), ""), part_of(event))
            if key[0]:
                item.text_key = key
                item.parts[key] = part
        elif kind == ITEM_DONE:
            self.finish(item, members(event.get("item")))

    def grow(self, raw: bytes, item: EmittedItem, key: ItemTextKey, fragment: str, sequence_number: int | None) -> None:
        """Record an emitted event that only continues a known text."""
        self.record_bytes(raw)
        if sequence_number is not None:
            self.number = sequence_number + 1
        item.texts[key].append(fragment)

    def record_final_item(self, value: JsonObject, source: int) -> None:
        """Record an item that only the last response has."""
        self.finish(self._add_announced({"item": value}, source), value)

    def finish(self, item: EmittedItem, value: JsonObject) -> None:
        """Record the end of an item."""
        item.end = value
        for kind, part, fragment in texts_of(value):
            item.texts.setdefault((kind, part), [fragment])

    def add(self, source: int, value: JsonObject) -> EmittedItem:
        """Add a new item, which the server did not send."""
        first = FIRST_TEXT_KEYS[text(value.get("type"))]
        self.emitted_items.append(
            EmittedItem(index=self.next_index, source=source, value=value, text_key=first, is_rewritten=True)
        )
        return self.emitted_items[-1]

    def _add_announced(self, event: JsonObject, source: int) -> EmittedItem:
        value = members(event.get("item")) or {"id": text(event.get("item_id"))}
        index = integer(event.get("output_index"))
        key = FIRST_TEXT_KEYS.get(text(value.get("type")), ("", 0))
        place = self.next_index if index is None else index
        self.emitted_items.append(
            EmittedItem(index=place, source=source, value=value, text_key=key, is_indexed=index is not None)
        )
        return self.emitted_items[-1]

    def events(self, indices: dict[int, int | None] | None = None) -> Iterator[JsonObject]:
        """Yield events with the same content, each text in one delta. `indices`: the server's indexes of its unfinished items."""
        if self.ids:
            yield {"type": "response.in_progress", "token_ids": [*self.ids]}
        empty: JsonObject = {"content": [], "summary": [], "arguments": ""}
        for item in self.emitted_items:
            server_index = (indices or {}).get(item.source) if item.end is None else None
            item_event = replace(
                item, index=_JUDGE_INDEX + item.index if server_index is None else server_index, is_indexed=True
            )
            yield item_event.as_item("added", {name: empty.get(name, value) for name, value in item.value.items()})
            for key, fragments in item.texts.items():
                if key[0] in _STEMS:
                    fragments[:] = ["".join(fragments)]
                    yield replace(item_event, text_key=key).event(stem_of(key) + ".delta", delta=fragments[0])

    def copy(self) -> EmittedItems:
        """Return a copy to roll back to."""
        other = copy(self)
        other.raw, other.ids = list(self.raw), list(self.ids)
        other.emitted_items = [
            replace(item, parts=dict(item.parts), texts={key: [*fragments] for key, fragments in item.texts.items()})
            for item in self.emitted_items
        ]
        return other


def item_of(response: JsonObject, name: str, kind: str) -> JsonObject | None:
    """Return the item of a response with this id and type, if any."""
    matching = (
        one for one in items(response.get("output")) if value_at(one, "id") == name and value_at(one, "type") == kind
    )
    return next(map(members, matching), None) if name else None
