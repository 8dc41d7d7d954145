"""The events of a Responses stream as chunks of a chat completion: one for each.

The API tells every text several times: in deltas, whole when its part is done, whole again in the item, and again in the last response. A client needs it
once. What came in deltas is told by them; what came without is told by the first event that has it whole. A text for the user that is another one there
is told beside it (`retold_1`), since some clients read that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from harmony_conformance.apis.responses.request_reader import thought_of
from harmony_conformance.apis.responses.response_reader import (
    BETWEEN_ITEMS,
    call,
    failure,
    finish_reason,
    identity,
    logprobs,
    rest_of,
    shared,
)
from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text

_DELTAS = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning",
    "response.reasoning.delta": "reasoning",
    "response.reasoning_summary_text.delta": "summary",
    "response.reasoning_summary.delta": "summary",
    "response.function_call_arguments.delta": "arguments",
}
"""What each kind of delta adds to."""

_WHOLES = {
    "response.output_text.done": ("content", "text"),
    "response.refusal.done": ("refusal", "refusal"),
    "response.reasoning_text.done": ("reasoning", "text"),
    "response.reasoning.done": ("reasoning", "text"),
    "response.reasoning_summary_text.done": ("summary", "text"),
    "response.reasoning_summary.done": ("summary", "text"),
    "response.function_call_arguments.done": ("arguments", "arguments"),
}
"""What each event that ends a text has whole, and in which member."""

_SHOWN = frozenset({"content", "refusal"})
_OF_A_PART = {"output_text": ("content", "text"), "refusal": ("refusal", "refusal")}
_PART_DONE = "response.content_part.done"
_TEXT_DELTA, _TEXT_DONE = "response.output_text.delta", "response.output_text.done"
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_FUNCTION_CALL = "function_call"
_PART = frozenset({"content_index", "summary_index"})


def chunks(events: Iterable[Json]) -> Iterator[Json]:
    """A chunk for each event."""
    stream = _Stream()
    for event in events:
        yield stream.chunk(event)


@dataclass(kw_only=True)
class _Item:
    """What was told of an item."""

    place: int
    value: JsonObject = field(default_factory=dict[str, Json])
    call: int | None = None
    is_described: bool = False
    is_named: bool = False
    has_logprobs: bool = False
    told: dict[tuple[str, int], list[str]] = field(default_factory=dict[tuple[str, int], list[str]])

    def has_told(self, kind: str, part: int | None = None) -> bool:
        """Whether some text of that kind was told, or that part of it."""
        return any(one == kind and part in (None, place) for one, place in self.told)

    def said(self, kind: str, part: int | None = None) -> str:
        """What was told of that kind, or of that part of it."""
        of = [pieces for (one, place), pieces in sorted(self.told.items()) if one == kind and part in (None, place)]
        return "".join(piece for pieces in of for piece in pieces)


class _Stream:
    """State: what the client has been told."""

    def __init__(self) -> None:
        self._identity = identity({}, "chat.completion.chunk")
        self._items: list[_Item] = []
        self._by_id: dict[str, _Item] = {}
        self._begun: dict[str, _Item] = {}
        self._calls = 0
        self._has_role = False
        self._has_ids = False
        self._again: list[str] = []

    def chunk(self, event: Json) -> Json:
        """The chunk that an event is."""
        kind = text(at(event, "type"))
        if kind == "error" or (not kind and at(event, "error") is not None):
            problem = at(event, "error")
            told = members(event) if problem is None else problem
            return {**self._identity, "choices": [], "error": told}
        response = members(at(event, "response"))
        if response:
            self._identity = identity(response, "chat.completion.chunk")
        delta = self._delta(kind, members(event))
        finish: Json = None
        more: JsonObject = {}
        if kind in _ENDS:
            delta, finish, more = self._end(response)
        elif response:
            more = {name: value for name, value in shared(response).items() if name == "prompt_token_ids"}
        ids = self._ids(members(event), response if kind in _ENDS else {})
        entries = [*self._logprobs(kind, members(event), response if kind in _ENDS else {})]
        return {**self._identity, "choices": self._choices(delta, finish, ids, entries), **more}

    def _choices(self, delta: JsonObject, finish: Json, ids: Json, entries: list[Json]) -> list[Json]:
        if not delta and finish is None and ids is None and not entries:
            return []
        role: JsonObject = {} if self._has_role else {"role": "assistant"}
        self._has_role = True
        choice: JsonObject = {"index": 0, "delta": {**role, **delta}, "finish_reason": finish}
        if entries:
            choice["logprobs"] = {"content": entries}
        return [choice if ids is None else {**choice, "token_ids": ids}]

    def _ids(self, event: JsonObject, response: JsonObject) -> Json:
        """The ids that an event shows of its own; else, at the end, those of the whole."""
        if "token_ids" in event:
            self._has_ids = True
            return event["token_ids"]
        return None if self._has_ids else response.get("token_ids")

    def _logprobs(self, kind: str, event: JsonObject, response: JsonObject) -> Iterator[Json]:
        """The log probabilities that an event tells of a text of which none was told before; those of a delta are new each time."""
        if kind == _TEXT_DELTA:
            item = self._named(event)
            item.has_logprobs = item.has_logprobs or bool(items(event.get("logprobs")))
            yield from items(event.get("logprobs"))
        elif kind in (_TEXT_DONE, "response.output_item.done"):
            value = members(event.get("item"))
            item = (
                self._named(event)
                if kind == _TEXT_DONE
                else self._item(_name(value), number(event.get("output_index")), is_new=False)
            )
            yield from self._late(item, items(event.get("logprobs")) or logprobs(value))
        for place, last in enumerate(items(response.get("output"))):
            item = self._by_id.get(_name(last)) or self._item("", place, is_new=False)
            yield from self._late(item, logprobs(members(last)))

    def _late(self, item: _Item, entries: list[Json]) -> list[Json]:
        """What is told of a whole text, where its deltas did not tell it."""
        if item.has_logprobs:
            return []
        item.has_logprobs = bool(entries)
        return entries

    def _delta(self, kind: str, event: JsonObject) -> JsonObject:
        if kind in ("response.output_item.added", "response.output_item.done"):
            value = members(event.get("item"))
            item = self._item(_name(value), number(event.get("output_index")), is_new=kind.endswith("added"))
            return self._whole_item(item, value) if kind.endswith("done") else self._described(item, value)
        if kind in _DELTAS:
            return self._text(self._named(event), _DELTAS[kind], text(event.get("delta")), _part(event))
        if kind in _WHOLES:
            what, member = _WHOLES[kind]
            item = self._named(event)
            if item.has_told(what, _part(event)):
                return self._retold(item, what, text(event.get(member)), _part(event))
            return self._text(item, what, text(event.get(member)), _part(event))
        if kind == _PART_DONE and (of := _OF_A_PART.get(text(at(event.get("part"), "type")))) is not None:
            whole = text(at(event.get("part"), of[1]))
            return self._retold(self._named(event), of[0], whole, _part(event))
        return {}

    def _retold(self, item: _Item, what: str, whole: str, part: int | None = None) -> JsonObject:
        """A text for the user that is another one than its deltas were: clients that read it there show it."""
        if (
            what not in _SHOWN
            or not whole
            or not item.has_told(what, part)
            or whole in (item.said(what, part), *self._again)
        ):
            return {}
        self._again.append(whole)
        return {f"retold_{len(self._again)}": whole}

    def _named(self, event: JsonObject) -> _Item:
        return self._item(text(event.get("item_id")), number(event.get("output_index")), is_new=False)

    def _item(self, name: str, index: int | None, *, is_new: bool) -> _Item:
        """The item at that place; else the one of that id, else the last one. Servers leave out one or the other, or both."""
        at_place = next((one for one in reversed(self._items) if one.place == index), None)
        last = self._items[-1] if self._items and not name and index is None else None
        known = at_place or self._by_id.get(name) or last
        if known is None or (is_new and known is not self._by_id.get(name)):
            known = _Item(place=len(self._items) if index is None else index)
            self._items.append(known)
        if name:
            self._by_id[name] = known
        return known

    def _described(self, item: _Item, value: JsonObject) -> JsonObject:
        """What an item is, told when it is first seen; of a call its id and name."""
        item.value = {**item.value, **value}
        delta: JsonObject = {}
        if value.get("type") == _FUNCTION_CALL and not (item.is_described and item.is_named):
            delta = self._call_of(item, value)
        if not item.is_described:
            rest = {name: held for name, held in rest_of(value, item.place).items() if name not in ("status", "parts")}
            delta = {**delta, "output": [rest]}
        item.is_described = True
        return delta

    def _call_of(self, item: _Item, value: JsonObject) -> JsonObject:
        begun = call(value, "")
        index = self._index_of(item)
        if item.is_described:
            begun = {"function": {"name": value.get("name")}}
        item.is_named = bool(text(value.get("name")))
        return {"tool_calls": [{"index": index, **begun}]}

    def _index_of(self, item: _Item) -> int:
        if item.call is None:
            item.call = self._calls
            self._calls += 1
        return item.call

    def _whole_item(self, item: _Item, value: JsonObject) -> JsonObject:
        """What of a finished item was not told by its deltas."""
        delta = self._described(item, value)
        for what, whole in _texts(value):
            told = item.has_told("summary") if what == "reasoning" else False
            delta = _merged(delta, self._retold(item, what, whole))
            if whole and not item.has_told(what) and not told:
                delta = _merged(delta, self._text(item, what, whole, 0))
        return delta

    def _text(self, item: _Item, what: str, piece: str, part: int) -> JsonObject:
        if not piece:
            return {}
        item.told.setdefault((what, part), []).append(piece)
        if what == "arguments":
            return {"tool_calls": [{"index": self._index_of(item), "function": {"arguments": piece}}]}
        if what == "summary":
            if item.has_told("reasoning"):
                return {}  # a summary beside the thought itself
            what = "reasoning"
        before = self._begun.get(what)
        self._begun[what] = item
        return {what: piece if before in (None, item) else BETWEEN_ITEMS + piece}

    def _end(self, response: JsonObject) -> tuple[JsonObject, Json, JsonObject]:
        """What only the last response tells: whatever of its items no event told, why it ended, and usage."""
        delta: JsonObject = {}
        for place, value in enumerate(items(response.get("output"))):
            # of the last response an item may be missing, and those behind it have moved up
            known = self._by_id.get(_name(value))
            is_it = known is not None and known.value.get("type") == at(value, "type")
            item = known if known is not None and is_it else self._item(_name(value), place, is_new=False)
            delta = _merged(delta, self._whole_item(item, members(value)))
        problem = failure(response)
        more = shared(response)
        reason = finish_reason(response)
        reason = "tool_calls" if reason == "stop" and self._calls else reason
        return delta, reason, more if problem is None else {**more, "error": problem}


def _name(item: Json) -> str:
    """What the events about an item call it: its id, or that of a call that has no other."""
    return text(at(item, "id")) or text(at(item, "call_id"))


def _part(event: JsonObject) -> int:
    return next((place for name in sorted(_PART) if (place := number(event.get(name))) is not None), 0)


def _texts(item: JsonObject) -> Iterator[tuple[str, str]]:
    """The texts of a whole item, and what each adds to."""
    match item.get("type"):
        case "reasoning":
            yield "reasoning", thought_of(item)
        case "message":
            yield "content", "".join(text(at(part, "text")) for part in items(item.get("content")))
            yield "refusal", "".join(text(at(part, "refusal")) for part in items(item.get("content")))
        case "function_call":
            yield "arguments", text(item.get("arguments"))
        case _:
            return


def _merged(one: JsonObject, other: JsonObject) -> JsonObject:
    """Two deltas as one: texts joined, lists one after the other."""
    merged = {**one}
    for name, value in other.items():
        before = merged.get(name)
        if isinstance(before, str) and isinstance(value, str):
            merged[name] = before + value
        elif isinstance(before, list) and isinstance(value, list):
            merged[name] = [*before, *value]
        else:
            merged[name] = value
    return merged
