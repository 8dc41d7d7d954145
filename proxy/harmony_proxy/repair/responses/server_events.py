"""The events of a Responses stream as the server tells them: which item each is about, and what it says in the words of chat. State: the items so far."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from harmony_conformance.apis.responses.request_reader import thought_of
from harmony_conformance.checks.responses.views import ENDS, TEXTS, WHOLE_IN, texts_of
from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text
from harmony_proxy.repair.text.api_dialects import ChoiceContent

ADDED = "response.output_item.added"
DONE = "response.output_item.done"
CALL = "function_call"
MEMBERS = {
    "output_text": "content",
    "reasoning_text": "reasoning",
    "summary_text": "reasoning",
    "arguments": "arguments",
}
"""What each text of an item is, in the words of chat. A refusal and the code of built-in tools are left as they are."""

_DELTAS = {f"{stem}.delta": said for stem, said in TEXTS.items() if said in MEMBERS}
_WHOLES = {f"{stem}.done": said for stem, said in TEXTS.items() if said in MEMBERS}
_PARTS = frozenset(
    f"response.{stem}.{ending}" for stem in ("content_part", "reasoning_summary_part") for ending in ("added", "done")
)


@dataclass(kw_only=True)
class ItemSource:
    """An item as the server tells it: its place among them, its index and id as far as it has them, and which texts of it were told.

    `thought` is where a reasoning has its text. What it has in the other place as well is told beside it, and not a second time.
    """

    place: int
    index: int | None
    id: str
    kind: str = ""
    is_named: bool = False
    is_done: bool = False
    thought: str = ""
    told: set[str] = field(default_factory=set[str])


class ServerEvents:
    """State: the items."""

    def __init__(self) -> None:
        self.all: list[ItemSource] = []
        self._at: dict[int, ItemSource] = {}
        self._named: dict[str, ItemSource] = {}

    def read(self, value: Json) -> tuple[ItemSource | None, tuple[ChoiceContent, ...]]:
        """The item that an event is about, and what the event says. To be asked once for each event, in order."""
        event = members(value)
        kind = text(event.get("type"))
        if kind in _DELTAS:
            source = self._find(event)
            return source, (self._goes_on(source, _DELTAS[kind], text(event.get("delta")), event),)
        if kind in (ADDED, DONE):
            source = self._find(event, is_new=kind == ADDED)
            return source, tuple(self._item(source, members(event.get("item")), event, is_done=kind == DONE))
        if kind in _WHOLES:
            source, said = self._find(event), _WHOLES[kind]
            is_new = MEMBERS[said] not in source.told
            whole = text(event.get(WHOLE_IN.get(said, "text"))) if is_new else ""
            return source, (self._goes_on(source, said, whole, event),) if whole else ()
        if kind in ENDS:
            return None, tuple(self._last(members(event.get("response")), event))
        is_about_one = kind in _PARTS or number(event.get("output_index")) is not None or text(event.get("item_id"))
        return (self._find(event) if is_about_one else None), ()

    def _find(self, event: JsonObject, *, is_new: bool = False) -> ItemSource:
        """The item at that index; else the one of that id, else the last one. Servers leave out one or the other, or both."""
        index, name = number(event.get("output_index")), text(event.get("item_id")) or text(at(event, "item", "id"))
        known = self._at.get(index) if index is not None else self._named.get(name) if name else None
        if known is None and index is None and not name and self.all:
            known = self.all[-1]
        return self._new(index, name) if known is None or is_new else known

    def _new(self, index: int | None, name: str) -> ItemSource:
        made = ItemSource(place=len(self.all), index=index, id=name)
        self.all.append(made)
        if index is not None:
            self._at[index] = made
        if name:
            self._named[name] = made
        return made

    def _goes_on(self, source: ItemSource, said: str, piece: str, event: JsonObject) -> ChoiceContent:
        source.told.add(MEMBERS[said])
        ids = items(event.get("token_ids"))
        if said == "arguments":
            more: Json = {"index": 0, "function": {"arguments": piece}}
            return ChoiceContent(choice=source.place, said={"tool_calls": [more]}, ids=ids)
        if MEMBERS[said] == "reasoning":
            source.thought = source.thought or said
            if said != source.thought:
                return ChoiceContent(choice=source.place, said={}, ids=ids)
        return ChoiceContent(choice=source.place, said={MEMBERS[said]: piece}, ids=ids)

    def _item(
        self, source: ItemSource, item: JsonObject, event: JsonObject, *, is_done: bool
    ) -> Iterator[ChoiceContent]:
        source.kind = text(item.get("type")) or source.kind
        said: JsonObject = {}
        if source.kind == CALL and not source.is_named:
            source.is_named = bool(text(item.get("name")))
            function: JsonObject = {"name": item.get("name"), "arguments": self._untold(source, item, is_done=is_done)}
            begun: Json = {"index": 0, "id": item.get("call_id"), "type": "function", "function": function}
            said = {"tool_calls": [begun]}
        elif is_done and (untold := self._untold(source, item, is_done=True)):
            more: Json = {"index": 0, "function": {"arguments": untold}}
            said = {"tool_calls": [more]} if source.kind == CALL else {_MEMBER.get(source.kind, ""): untold}
        source.is_done = source.is_done or is_done
        if said or is_done:
            finish = "stop" if is_done else None
            yield ChoiceContent(choice=source.place, said=said, finish=finish, ids=items(event.get("token_ids")))

    def _untold(self, source: ItemSource, item: JsonObject, *, is_done: bool) -> str:
        """What of a finished item was not told by other events."""
        what = "arguments" if source.kind == CALL else _MEMBER.get(source.kind, "")
        if not is_done or what in source.told:
            return ""
        if what == "reasoning":
            return thought_of(item)
        return "".join(said for kind, _, said in texts_of(item) if MEMBERS.get(kind) == what)

    def _last(self, response: JsonObject, event: JsonObject) -> Iterator[ChoiceContent]:
        """What only the last response tells: its items that no event told."""
        for index, item in enumerate(items(response.get("output"))):
            name = text(at(item, "id"))
            if (self._named.get(name) if name else self._at.get(index)) is None:
                yield from self._item(self._new(index, name), members(item), event, is_done=True)


_MEMBER = {"message": "content", "reasoning": "reasoning", CALL: "arguments"}
