"""The server's events of a Responses stream: the item that each event belongs to, and its content in the form of Chat Completions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from harmony_conformance.apis.responses.request_reader import reasoning_text
from harmony_conformance.checks.responses.views import (
    STATUS_BY_FINAL_EVENT,
    TEXT_KIND_BY_EVENT,
    TEXT_MEMBER_BY_KIND,
    texts_of,
)
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_proxy.repair.text.api_dialects import ChoiceContent

ITEM_ADDED = "response.output_item.added"
ITEM_DONE = "response.output_item.done"
FUNCTION_CALL = "function_call"
MEMBERS = {
    "output_text": "content",
    "reasoning_text": "reasoning",
    "summary_text": "reasoning",
    "arguments": "arguments",
}
"""The member of Chat Completions for each text of an item. Refusals and the code of built-in tools are not rewritten."""

_DELTAS = {f"{stem}.delta": kind for stem, kind in TEXT_KIND_BY_EVENT.items() if kind in MEMBERS}
_WHOLES = {f"{stem}.done": kind for stem, kind in TEXT_KIND_BY_EVENT.items() if kind in MEMBERS}
_PARTS = frozenset(
    f"response.{stem}.{ending}" for stem in ("content_part", "reasoning_summary_part") for ending in ("added", "done")
)


@dataclass(kw_only=True)
class ServerItem:
    """An item of the server.

    Attributes:
        place: Position among all items.
        index: `output_index`; None if the server omits it.
        id: Id; empty if the server omits it.
        kind: Type.
        is_named: True if its function name was received.
        is_done: True if it is complete.
        reasoning_kind: Kind of the text that has the reasoning. A text of the other kind repeats it, and is not read again.
        received_members: Members whose text was received.
    """

    place: int
    index: int | None
    id: str
    kind: str = ""
    is_named: bool = False
    is_done: bool = False
    reasoning_kind: str = ""
    received_members: set[str] = field(default_factory=set[str])


class ServerEvents:
    """Reads the events of the server, and stores its items."""

    def __init__(self) -> None:
        self.server_items: list[ServerItem] = []
        self._by_index: dict[int, ServerItem] = {}
        self._by_id: dict[str, ServerItem] = {}

    def read(self, value: Json) -> tuple[ServerItem | None, tuple[ChoiceContent, ...]]:
        """Return the item of an event, and the content of the event. Must be called once per event, in order."""
        event = members(value)
        kind = text(event.get("type"))
        if kind in _DELTAS:
            source = self._find(event)
            return source, (self._content(source, _DELTAS[kind], text(event.get("delta")), event),)
        if kind in (ITEM_ADDED, ITEM_DONE):
            source = self._find(event, is_new=kind == ITEM_ADDED)
            return source, tuple(self._read_item(source, members(event.get("item")), event, is_done=kind == ITEM_DONE))
        if kind in _WHOLES:
            source, text_kind = self._find(event), _WHOLES[kind]
            is_new = MEMBERS[text_kind] not in source.received_members
            whole = text(event.get(TEXT_MEMBER_BY_KIND.get(text_kind, "text"))) if is_new else ""
            return source, (self._content(source, text_kind, whole, event),) if whole else ()
        if kind in STATUS_BY_FINAL_EVENT:
            return None, tuple(self._read_response(members(event.get("response")), event))
        is_about_one = kind in _PARTS or integer(event.get("output_index")) is not None or text(event.get("item_id"))
        return (self._find(event) if is_about_one else None), ()

    def _find(self, event: JsonObject, *, is_new: bool = False) -> ServerItem:
        """Return the item by index, by id, or the last one. Servers omit the index, the id, or both."""
        index, name = (
            integer(event.get("output_index")),
            text(event.get("item_id")) or text(value_at(event, "item", "id")),
        )
        known = self._by_index.get(index) if index is not None else self._by_id.get(name) if name else None
        if known is None and index is None and not name and self.server_items:
            known = self.server_items[-1]
        return self._new(index, name) if known is None or is_new else known

    def _new(self, index: int | None, name: str) -> ServerItem:
        item = ServerItem(place=len(self.server_items), index=index, id=name)
        self.server_items.append(item)
        if index is not None:
            self._by_index[index] = item
        if name:
            self._by_id[name] = item
        return item

    def _content(self, source: ServerItem, kind: str, fragment: str, event: JsonObject) -> ChoiceContent:
        source.received_members.add(MEMBERS[kind])
        ids = items(event.get("token_ids"))
        if kind == "arguments":
            more: Json = {"index": 0, "function": {"arguments": fragment}}
            return ChoiceContent(choice=source.place, message={"tool_calls": [more]}, ids=ids)
        if MEMBERS[kind] == "reasoning":
            source.reasoning_kind = source.reasoning_kind or kind
            if kind != source.reasoning_kind:
                return ChoiceContent(choice=source.place, message={}, ids=ids)
        return ChoiceContent(choice=source.place, message={MEMBERS[kind]: fragment}, ids=ids)

    def _read_item(
        self, source: ServerItem, item: JsonObject, event: JsonObject, *, is_done: bool
    ) -> Iterator[ChoiceContent]:
        source.kind = text(item.get("type")) or source.kind
        message: JsonObject = {}
        if source.kind == FUNCTION_CALL and not source.is_named:
            source.is_named = bool(text(item.get("name")))
            function: JsonObject = {
                "name": item.get("name"),
                "arguments": self._unread_text(source, item, is_done=is_done),
            }
            call: Json = {"index": 0, "id": item.get("call_id"), "type": "function", "function": function}
            message = {"tool_calls": [call]}
        elif is_done and (whole := self._unread_text(source, item, is_done=True)):
            rest: Json = {"index": 0, "function": {"arguments": whole}}
            message = (
                {"tool_calls": [rest]} if source.kind == FUNCTION_CALL else {_TEXT_MEMBERS.get(source.kind, ""): whole}
            )
        source.is_done = source.is_done or is_done
        if message or is_done:
            finish = "stop" if is_done else None
            yield ChoiceContent(choice=source.place, message=message, finish=finish, ids=items(event.get("token_ids")))

    def _unread_text(self, source: ServerItem, item: JsonObject, *, is_done: bool) -> str:
        """Return the text of a finished item that no other event had."""
        member = "arguments" if source.kind == FUNCTION_CALL else _TEXT_MEMBERS.get(source.kind, "")
        if not is_done or member in source.received_members:
            return ""
        if member == "reasoning":
            return reasoning_text(item)
        return "".join(fragment for kind, _, fragment in texts_of(item) if MEMBERS.get(kind) == member)

    def _read_response(self, response: JsonObject, event: JsonObject) -> Iterator[ChoiceContent]:
        """Yield the content of items that only the last response has."""
        for index, item in enumerate(items(response.get("output"))):
            name = text(value_at(item, "id"))
            if (self._by_id.get(name) if name else self._by_index.get(index)) is None:
                yield from self._read_item(self._new(index, name), members(item), event, is_done=True)


_TEXT_MEMBERS = {"message": "content", "reasoning": "reasoning", FUNCTION_CALL: "arguments"}
