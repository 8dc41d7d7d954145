"""What one of the server's items says, told as items of ours: each kind of text in one of its own, announced, told and finished as the API wants it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import copy

from harmony_conformance.json_value import Json, JsonObject, at, items, text
from harmony_proxy.repair.answer.fixes import new_id
from harmony_proxy.repair.responses.emitted_items import EmittedItem, EmittedItems
from harmony_proxy.repair.responses.server_events import CALL, ServerEvents
from harmony_proxy.repair.text.annotations import moved
from harmony_proxy.repair.text.api_dialects import join
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind

_BEFORE_ID = {"message": "msg", "reasoning": "rs", CALL: "fc"}
_KINDS = {TextKind.CONTENT: "message", TextKind.REASONING: "reasoning"}


class ItemWriter:
    """State: the items that the client was told of, and of those that are told anew what is open.

    Attributes:
        items: what the client was told.
        announced: the server's items that the client was not told of yet, as they were announced.
        parts: their parts.
        open: the item that is being told of each.
        space: white space that waits for the text behind it.
        thought: the reasoning that was found in other places.
        heard: what the server said of each, in pieces.
        annotations: what it annotated since they are told anew.
    """

    def __init__(self, sources: ServerEvents, body: bytes, *, keeps_bytes: bool) -> None:
        self.items = EmittedItems(keeps_bytes=keeps_bytes)
        self.announced: dict[int, JsonObject] = {}
        self.parts: dict[int, JsonObject] = {}
        self.open: dict[int, int] = {}
        self.thought: list[str] = []
        self.space: dict[int, str] = {}
        self.heard: dict[int, list[str]] = {}
        self.annotations: dict[int, list[Json]] = {}
        self._made = 0
        self._sources, self._body = sources, body

    def copy(self) -> ItemWriter:
        """The same, to go back to."""
        other = copy(self)
        other.items, other.thought = self.items.copy(), list(self.thought)
        other.announced, other.parts = dict(self.announced), dict(self.parts)
        other.open, other.space = dict(self.open), dict(self.space)
        other.heard = {source: list(one) for source, one in self.heard.items()}
        other.annotations = {source: list(one) for source, one in self.annotations.items()}
        return other

    def take_over(self, source: int) -> None:
        """From here on, an item is told anew; where the client was told of it, that goes on."""
        told = self.items.of(source)
        if told is not None and told.end is None:
            self.open[source] = self.items.all.index(told)
            self.heard[source] = [told.said()] if told.kind == "message" else []

    def say(self, source: int, said: Sequence[ParsedText]) -> Iterator[JsonObject]:
        """The events that say this of one of the server's items."""
        for one in join(said):
            if one.kind is not TextKind.CALL:
                yield from self._grown(source, _KINDS[one.kind], one.text)
                continue
            if one.name is not None:
                identity = new_id(self._body, source, self._made)
                value: JsonObject = {"call_id": identity, "name": one.name, "arguments": ""}
                yield from self._open(source, {"id": "", "type": CALL, **value})
            if one.text and (told := self._told_of(source)) is not None:
                yield told.delta(one.text)

    def _grown(self, source: int, kind: str, said: str) -> Iterator[JsonObject]:
        told = self._told_of(source)
        if told is None or told.kind != kind:
            said = self.space.pop(source, "") + said
            if not said.strip():
                self.space[source] = said
                return
            native = self.announced.pop(source, None)
            is_native = native is not None and native.get("type") == kind
            if native is not None and not is_native:
                self.announced[source] = native
            bare: JsonObject = {
                "id": "",
                "type": kind,
                **({"role": "assistant"} if kind == "message" else {"summary": []}),
            }
            yield from self._open(source, native if native is not None and is_native else bare)
            told = self._told_of(source)
        if told is not None:
            if kind == "reasoning" and self._sources.all[source].kind != kind:
                self.thought.append(said)
            yield told.delta(said)

    def _told_of(self, source: int) -> EmittedItem | None:
        place = self.open.get(source)
        return self.items.all[place] if place is not None else None

    def _open(self, source: int, value: JsonObject) -> Iterator[JsonObject]:
        yield from self.close(source, {})
        kind = text(value.get("type"))
        told = self.items.add(source, {**value, "id": text(value.get("id")) or self._new_id(source, kind)})
        self.open[source] = len(self.items.all) - 1
        part = self.parts.get(source, {})
        if part.get("type") in ("summary_text", told.what[0]):
            told.what = (text(part["type"]), 0)
            told.parts[told.what] = part
        begun: JsonObject = {} if kind == CALL else {"content": []}
        yield told.as_item("added", {**told.value, **begun, "status": "in_progress"})
        if kind != CALL:
            told.parts.setdefault(told.what, {})
            yield told.part("added", "")

    def _new_id(self, source: int, kind: str) -> str:
        """An id for an item that the server did not make, by that of the one which it comes from."""
        self._made += 1
        return f"{_BEFORE_ID[kind]}_{self._sources.all[source].id.rpartition('_')[2]}r{self._made}"

    def close(self, source: int, item: JsonObject) -> Iterator[JsonObject]:
        """Finish the item that is being told of one of the server's; `item` is how that was finished."""
        told = self._told_of(source)
        if told is None:
            return
        del self.open[source]
        told.is_ours = True
        if not told.texts:
            told.texts[told.what] = [""]
        yield from self._annotated(source, told, item)
        yield told.whole(**({"name": told.value["name"]} if told.kind == CALL else {}))
        if told.what in told.parts:
            yield told.part("done", told.said())
        is_it = text(item.get("id")) == told.id and item.get("type") == told.kind
        value = {**told.value, **(item if is_it else {}), "status": text(item.get("status")) or "completed"}
        if told.kind == CALL:
            value["arguments"] = told.said()
        else:
            holder, other = ("summary", "content") if told.what[0] == "summary_text" else ("content", "summary")
            if items(value.get(other)):  # whose text was not told: it would hold what was taken out
                value[other] = []
            value[holder] = [
                {**part, "text": "".join(told.texts.get(what, ()))}
                if what != told.what
                else told.told_part(told.said())
                for what, part in told.parts.items() or ((told.what, {}),)
            ]
            if isinstance(value.get("encrypted_content"), str) and value["encrypted_content"]:
                value["encrypted_content"] = told.said() if is_it and _is_open(item) else value["encrypted_content"]
        self.items.finish(told, value)
        yield told.as_item("done", value)

    def _annotated(self, source: int, told: EmittedItem, item: JsonObject) -> Iterator[JsonObject]:
        """Tell which annotations of its text still hold, and where; those that were announced before stand in the finished item."""
        new = self.annotations.get(source, [])
        if told.kind != "message" or not (new or items(at(item, "content", 0, "annotations"))):
            return
        all_ = items(at(item, "content", told.what[1], "annotations")) or new
        kept = moved(all_, "".join(self.heard.get(source, ())), told.said())
        annotations: list[Json] = [one for _, one in kept]
        told.parts[told.what] = {**told.parts.get(told.what, {}), "annotations": annotations}
        for index, (place, one) in enumerate(kept):
            if all_[place] in new:
                yield told.event("output_text.annotation.added", annotation_index=index, annotation=one)


def _is_open(item: JsonObject) -> bool:
    """Whether the encrypted content of an item is its text, which is not encrypted at all."""
    thought = "".join(text(at(part, "text")) for name in ("content", "summary") for part in items(item.get(name)))
    return item.get("encrypted_content") == thought
