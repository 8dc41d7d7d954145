"""Writes the content of a server's item as new items: one per kind of text, with all events that the API requires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from harmony_conformance.json_value import Json, JsonObject, items, text, value_at
from harmony_proxy.repair.answer.fixes import new_id
from harmony_proxy.repair.responses.emitted_items import EmittedItem, EmittedItems
from harmony_proxy.repair.responses.server_events import FUNCTION_CALL, ServerEvents
from harmony_proxy.repair.text.annotations import move_annotations
from harmony_proxy.repair.text.api_dialects import join
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind

_ID_PREFIXES = {"message": "msg", "reasoning": "rs", FUNCTION_CALL: "fc"}
_ITEM_TYPES = {TextKind.CONTENT: "message", TextKind.REASONING: "reasoning"}


class ItemWriter:
    """Writes the items of a rewritten stream. Most attributes have one entry per item of the server.

    Attributes:
        items: Emitted items.
        announced: Announced items of the server that were not emitted yet.
        parts: Their parts.
        open: Position of the emitted item that is not finished.
        spaces: White space that waits for text after it.
        moved_reasoning: Fragments of reasoning that were parsed in items of another type.
        server_fragments: Fragments of text from the server.
        annotations: Annotations from the server since the repair began.
    """

    def __init__(self, sources: ServerEvents, body: bytes, *, keeps_bytes: bool) -> None:
        self.items = EmittedItems(keeps_bytes=keeps_bytes)
        self.announced: dict[int, JsonObject] = {}
        self.parts: dict[int, JsonObject] = {}
        self.open: dict[int, int] = {}
        self.moved_reasoning: list[str] = []
        self.space: dict[int, str] = {}
        self.server_fragments: dict[int, list[str]] = {}
        self.annotations: dict[int, list[Json]] = {}
        self._new_items = 0
        self._sources, self._body = sources, body

    def copy(self) -> ItemWriter:
        """Return a copy to roll back to."""
        other = copy(self)
        other.items, other.moved_reasoning = self.items.copy(), list(self.moved_reasoning)
        other.announced, other.parts = dict(self.announced), dict(self.parts)
        other.open, other.space = dict(self.open), dict(self.space)
        other.server_fragments = {source: list(one) for source, one in self.server_fragments.items()}
        other.annotations = {source: list(one) for source, one in self.annotations.items()}
        return other

    def start_rewriting(self, source: int) -> None:
        """Rewrite an item of the server from here on. If it was emitted already and is unfinished, it continues."""
        item = self.items.find_by_source(source)
        if item is not None and item.end is None:
            self.open[source] = self.items.emitted_items.index(item)
            self.server_fragments[source] = [item.emitted_text()] if item.kind == "message" else []

    def write_texts(self, source: int, texts: Sequence[ParsedText]) -> Iterator[JsonObject]:
        """Yield the events for these parsed texts of a server's item."""
        for one in join(texts):
            if one.kind is not TextKind.CALL:
                yield from self._add_text(source, _ITEM_TYPES[one.kind], one.text)
                continue
            if one.name is not None:
                identity = new_id(self._body, source, self._new_items)
                value: JsonObject = {
                    "id": "",
                    "type": FUNCTION_CALL,
                    "call_id": identity,
                    "name": one.name,
                    "arguments": "",
                }
                yield from self._open(source, value)
            if one.text and (item := self._open_item(source)) is not None:
                yield item.delta(one.text)

    def _add_text(self, source: int, kind: str, fragment: str) -> Iterator[JsonObject]:
        item = self._open_item(source)
        if item is None or item.kind != kind:
            fragment = self.space.pop(source, "") + fragment
            if not fragment.strip():
                self.space[source] = fragment
                return
            more: JsonObject = {"role": "assistant"} if kind == "message" else {"summary": []}
            value: JsonObject = {"id": "", "type": kind, **more}
            if self.announced.get(source, {}).get("type") == kind:
                value = self.announced.pop(source)
            yield from self._open(source, value)
            item = self._open_item(source)
        if item is not None:
            if kind == "reasoning" and self._sources.server_items[source].kind != kind:
                self.moved_reasoning.append(fragment)
            yield item.delta(fragment)

    def _open_item(self, source: int) -> EmittedItem | None:
        position = self.open.get(source)
        return self.items.emitted_items[position] if position is not None else None

    def _open(self, source: int, value: JsonObject) -> Iterator[JsonObject]:
        yield from self.close(source, {})
        kind = text(value.get("type"))
        item = self.items.add(source, {**value, "id": text(value.get("id")) or self._new_id(source, kind)})
        self.open[source] = len(self.items.emitted_items) - 1
        part = self.parts.get(source, {})
        if part.get("type") in ("summary_text", item.text_key[0]):
            item.text_key = (text(part["type"]), 0)
            item.parts[item.text_key] = part
        empty: JsonObject = {} if kind == FUNCTION_CALL else {"content": []}
        yield item.as_item("added", {**item.value, **empty, "status": "in_progress"})
        if kind != FUNCTION_CALL:
            item.parts.setdefault(item.text_key, {})
            yield item.part("added", "")

    def _new_id(self, source: int, kind: str) -> str:
        """Return an id for a new item, derived from that of the server's item."""
        self._new_items += 1
        return f"{_ID_PREFIXES[kind]}_{self._sources.server_items[source].id.rpartition('_')[2]}r{self._new_items}"

    def close(self, source: int, item: JsonObject) -> Iterator[JsonObject]:
        """Yield the events that finish the item that is open for a server's item. `item`: that item as the server finished it."""
        emitted = self._open_item(source)
        if emitted is None:
            return
        del self.open[source]
        emitted.is_rewritten = True
        if not emitted.texts:
            emitted.texts[emitted.text_key] = [""]
        yield from self._move_annotations(source, emitted, item)
        yield emitted.text_done_event(**({"name": emitted.value["name"]} if emitted.kind == FUNCTION_CALL else {}))
        if emitted.text_key in emitted.parts:
            yield emitted.part("done", emitted.emitted_text())
        is_same = text(item.get("id")) == emitted.id and item.get("type") == emitted.kind
        value = {**emitted.value, **(item if is_same else {}), "status": text(item.get("status")) or "completed"}
        if emitted.kind == FUNCTION_CALL:
            value["arguments"] = emitted.emitted_text()
        else:
            holder, other = ("summary", "content") if emitted.text_key[0] == "summary_text" else ("content", "summary")
            if items(value.get(other)):  # it was not emitted, and could repeat the leak
                value[other] = []
            value[holder] = [
                {**part, "text": "".join(emitted.texts.get(key, ()))}
                if key != emitted.text_key
                else emitted.part_with_text(emitted.emitted_text())
                for key, part in emitted.parts.items() or ((emitted.text_key, {}),)
            ]
            if is_same and _is_plain_text(item):
                value["encrypted_content"] = emitted.emitted_text()
        self.items.finish(emitted, value)
        yield emitted.as_item("done", value)

    def _move_annotations(self, source: int, emitted: EmittedItem, item: JsonObject) -> Iterator[JsonObject]:
        """Yield events for the annotations that still apply. Those that were announced before are only in the finished item."""
        pending = self.annotations.get(source, [])
        if emitted.kind != "message" or not (pending or items(value_at(item, "content", 0, "annotations"))):
            return
        announced = items(value_at(item, "content", emitted.text_key[1], "annotations")) or pending
        remaining = move_annotations(announced, "".join(self.server_fragments.get(source, ())), emitted.emitted_text())
        annotations: list[Json] = [one for _, one in remaining]
        emitted.parts[emitted.text_key] = {**emitted.parts.get(emitted.text_key, {}), "annotations": annotations}
        for index, (position, one) in enumerate(remaining):
            if announced[position] in pending:
                yield emitted.event("output_text.annotation.added", annotation_index=index, annotation=one)


def _is_plain_text(item: JsonObject) -> bool:
    """Return True if the `encrypted_content` of an item is in fact its plain text."""
    content = "".join(text(value_at(part, "text")) for name in ("content", "summary") for part in items(item.get(name)))
    return content != "" and item.get("encrypted_content") == content
