"""The items of a Responses stream as the client was told of them. What is told anew goes on from there: the next number, the next index, the texts so far."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace

from harmony_conformance.checks.responses.views import TEXTS, WHOLE_IN, part_of, texts_of
from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text
from harmony_proxy.repair.responses.server_events import ADDED, CALL, DONE

What = tuple[str, int]
"""A text of an item: what it is (`output_text`, `reasoning_text`, `summary_text`, `arguments`), and its part."""

FIRST: dict[str, What] = {"message": ("output_text", 0), "reasoning": ("reasoning_text", 0), CALL: ("arguments", 0)}
"""The text that an item of each type has."""

_STEMS = {said: stem for stem, said in TEXTS.items()}
_DELTAS = {f"{stem}.delta": said for stem, said in TEXTS.items()}
_WHOLES = {f"{stem}.done": said for stem, said in TEXTS.items()}
_PART_ADDED = {
    "response.content_part.added": {"output_text": "output_text", "reasoning_text": "reasoning_text"},
    "response.reasoning_summary_part.added": {"summary_text": "summary_text"},
}
_ELSEWHERE = 10_000
"""From here on, items are numbered for the judge where the server may use their index for another one."""


@dataclass(kw_only=True)
class EmittedItem:
    """State: one item.

    Attributes:
        index: where it stands in the output.
        source: which of the server's items it comes from.
        value: as it was announced.
        what: the text that goes on.
        parts: its parts, as they were announced.
        texts: what was told of it, in pieces.
        end: as it was finished, None where it is not.
        is_ours: whether its texts were told anew.
        is_indexed: whether it was announced under its index. Where the server leaves that out, an item is known by its id.
    """

    index: int
    source: int
    value: JsonObject
    what: What
    parts: dict[What, JsonObject] = field(default_factory=dict[What, JsonObject])
    texts: dict[What, list[str]] = field(default_factory=dict[What, list[str]])
    end: JsonObject | None = None
    is_ours: bool = False
    is_indexed: bool = True

    @property
    def kind(self) -> str:
        """Its type."""
        return text(self.value.get("type"))

    @property
    def id(self) -> str:
        """Its id."""
        return text(self.value.get("id"))

    def said(self) -> str:
        """The text that goes on, as far as it was told."""
        pieces = self.texts.setdefault(self.what, [])
        pieces[:] = ["".join(pieces)]
        return pieces[0]

    def event(self, stem: str, **told: Json) -> JsonObject:
        """An event about its text."""
        kind, part = self.what
        name = {"summary_text": "summary_index", "arguments": ""}.get(kind, "content_index")
        place: JsonObject = {name: part} if name else {}
        return {"type": f"response.{stem}", "item_id": self.id, **self._placed, **place, **told}

    @property
    def _placed(self) -> JsonObject:
        return {"output_index": self.index} if self.is_indexed else {}

    def as_item(self, ending: str, value: JsonObject) -> JsonObject:
        """An event with the whole item."""
        return {"type": f"response.output_item.{ending}", **self._placed, "item": value}

    def delta(self, said: str) -> JsonObject:
        """Its text goes on."""
        self.texts.setdefault(self.what, []).append(said)
        return self.event(stem_of(self.what) + ".delta", delta=said, **_logprobs(self.what))

    def whole(self, **told: Json) -> JsonObject:
        """Its text is done."""
        member = WHOLE_IN.get(self.what[0], "text")
        return self.event(stem_of(self.what) + ".done", **told, **{member: self.said()}, **_logprobs(self.what))

    def part(self, ending: str, said: str) -> JsonObject:
        """Its part begins or ends."""
        stem = "reasoning_summary_part" if self.what[0] == "summary_text" else "content_part"
        return self.event(f"{stem}.{ending}", part=self.told_part(said))

    def told_part(self, said: str) -> JsonObject:
        """The part that holds its text."""
        more: JsonObject = {"annotations": [], "logprobs": []} if self.what[0] == "output_text" else {}
        return {**more, **self.parts.get(self.what, {}), "type": self.what[0], "text": said}


def stem_of(what: What) -> str:
    """What the events of a text are called."""
    return _STEMS[what[0]].removeprefix("response.")


def _logprobs(what: What) -> JsonObject:
    return {"logprobs": []} if what[0] == "output_text" else {}


class EmittedItems:
    """State: the items, the number of the next event, the ids of the tokens; and the bytes, where the whole stream is judged at its end."""

    def __init__(self, *, keeps_bytes: bool) -> None:
        self.raw: list[bytes] = []
        self.all: list[EmittedItem] = []
        self.number = 0
        self.is_numbered = False
        self.ids: list[Json] = []
        self._keeps_bytes = keeps_bytes

    @property
    def next_index(self) -> int:
        """Where the next item stands."""
        return max((item.index for item in self.all), default=-1) + 1

    def of(self, source: int) -> EmittedItem | None:
        """The last item that was made of one of the server's."""
        return next((item for item in reversed(self.all) if item.source == source), None)

    def keep(self, raw: bytes) -> None:
        """These bytes went out."""
        if self._keeps_bytes:
            self.raw.append(raw)

    def count(self, event: JsonObject) -> None:
        """An event went out, under its number."""
        sent = number(event.get("sequence_number"))
        if sent is not None:
            self.number, self.is_numbered = sent + 1, True
        if "token_ids" in event:
            self.ids += items(event["token_ids"])

    def note(self, event: JsonObject, source: int | None) -> None:
        """What an event says that the server wrote."""
        self.count(event)
        kind = text(event.get("type"))
        if source is None:
            return
        item = self.of(source)
        if kind == ADDED or item is None:
            item = self._announced(event, source)
        if (said := _DELTAS.get(kind)) is not None:
            item.what = (said, part_of(event))
            item.texts.setdefault(item.what, []).append(text(event.get("delta")))
        elif (said := _WHOLES.get(kind)) is not None:
            item.texts.setdefault((said, part_of(event)), [text(event.get(WHOLE_IN.get(said, "text")))])
        elif kind in _PART_ADDED:
            part = members(event.get("part"))
            what = (_PART_ADDED[kind].get(text(part.get("type")), ""), part_of(event))
            if what[0]:
                item.what = what
                item.parts[what] = part
        elif kind == DONE:
            self.finish(item, members(event.get("item")))

    def grow(self, raw: bytes, item: EmittedItem, what: What, said: str, number_: int | None) -> None:
        """An event went out in which nothing but a text went on that began before."""
        self.keep(raw)
        if number_ is not None:
            self.number = number_ + 1
        item.texts[what].append(said)

    def note_last(self, value: JsonObject, source: int) -> None:
        """An item that only the last response tells."""
        self.finish(self._announced({"item": value}, source), value)

    def finish(self, item: EmittedItem, value: JsonObject) -> None:
        """An item is done."""
        item.end = value
        for what, part, said in texts_of(value):
            item.texts.setdefault((what, part), [said])

    def add(self, source: int, value: JsonObject) -> EmittedItem:
        """One more item, of ours."""
        index = self.next_index
        made = EmittedItem(index=index, source=source, value=value, what=FIRST[text(value.get("type"))], is_ours=True)
        self.all.append(made)
        return made

    def _announced(self, event: JsonObject, source: int) -> EmittedItem:
        value = members(event.get("item")) or {"id": text(event.get("item_id"))}
        index = number(event.get("output_index"))
        what = FIRST.get(text(value.get("type")), ("", 0))
        place = self.next_index if index is None else index
        made = EmittedItem(index=place, source=source, value=value, what=what, is_indexed=index is not None)
        self.all.append(made)
        return made

    def events(self, indices: dict[int, int | None] | None = None) -> Iterator[JsonObject]:
        """Events that say the same, each text in one. `indices`: what the server calls those of its items that go on."""
        if self.ids:
            yield {"type": "response.in_progress", "token_ids": [*self.ids]}
        for item in self.all:
            own = (indices or {}).get(item.source) if item.end is None else None
            shown = replace(item, index=_ELSEWHERE + item.index if own is None else own, is_indexed=True)
            yield shown.as_item("added", _emptied(item.value))
            for what, pieces in item.texts.items():
                if what[0] in _STEMS:
                    pieces[:] = ["".join(pieces)]
                    yield replace(shown, what=what).event(stem_of(what) + ".delta", delta=pieces[0])

    def copy(self) -> EmittedItems:
        """The same, to go back to."""
        other = copy(self)
        other.raw, other.ids = list(self.raw), list(self.ids)
        other.all = [
            replace(item, parts=dict(item.parts), texts={what: [*pieces] for what, pieces in item.texts.items()})
            for item in self.all
        ]
        return other


def _emptied(value: JsonObject) -> JsonObject:
    """An item without its texts."""
    empty: JsonObject = {"content": [], "summary": [], "arguments": ""}
    return {**value, **{name: nothing for name, nothing in empty.items() if name in value}}


def item_of(response: JsonObject, name: str, kind: str) -> JsonObject | None:
    """The item of a response that has an id and a type."""
    return next(
        (
            members(item)
            for item in items(response.get("output"))
            if name and at(item, "id") == name and at(item, "type") == kind
        ),
        None,
    )
