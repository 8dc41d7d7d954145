"""Translate each event of a Responses stream to one `chat.completion.chunk`.

The API sends every text several times: in deltas, at the end of the part, in the finished item, and in the last response.
The chunks have it once: from the deltas, else from the first event with the complete text.
A later copy of a text for the user may differ. Its chunk then has the copy as the delta member `retold_1`, since some clients read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from harmony_conformance.apis.responses.request_reader import reasoning_text
from harmony_conformance.apis.responses.response_reader import (
    ITEM_SEPARATOR,
    finish_reason,
    message_logprobs,
    response_error,
    response_identity,
    translate_call,
    untranslated_members,
    usage_and_prompt_ids,
)
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, text, value_at

_WHOLES = {
    "response.output_text.done": ("content", "text"),
    "response.refusal.done": ("refusal", "refusal"),
    "response.reasoning_text.done": ("reasoning", "text"),
    "response.reasoning.done": ("reasoning", "text"),
    "response.reasoning_summary_text.done": ("summary", "text"),
    "response.reasoning_summary.done": ("summary", "text"),
    "response.function_call_arguments.done": ("arguments", "arguments"),
    "response.mcp_call_arguments.done": ("arguments", "arguments"),
    "response.custom_tool_call_input.done": ("input", "input"),
    "response.code_interpreter_call_code.done": ("code", "code"),
}
"""The kind of text that each event completes, and the member that has the complete text."""

_DELTAS = {name.replace(".done", ".delta"): kind for name, (kind, _) in _WHOLES.items()}
"""The kind of text that each delta event extends."""

_SHOWN = frozenset({"content", "refusal"})
_PART_MEMBERS = {"output_text": ("content", "text"), "refusal": ("refusal", "refusal")}
_PART_DONE = "response.content_part.done"
_TEXT_DELTA, _TEXT_DONE = "response.output_text.delta", "response.output_text.done"
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
_FUNCTION_CALL = "function_call"
_FOREIGN = ("arguments", "input", "code", "action", "operation")
"""The members of calls that are no function calls with what the model wrote."""
_LATER = frozenset({"output", "outputs", "results", "tools", "error"})
"""The members of items that the end of an item has, with what tools returned."""


def read_events(events: Iterable[Json]) -> Iterator[Json]:
    """Return an iterator of one `chat.completion.chunk`, or `{"error": …}`, for each event."""
    return map(_Stream().chunk, events)


@dataclass(kw_only=True)
class _Item:
    """An output item and the pieces of its texts that were emitted, by kind and part index."""

    index: int
    value: JsonObject = field(default_factory=dict[str, Json])
    call_index: int | None = None
    is_described: bool = False
    is_named: bool = False
    has_logprobs: bool = False
    pieces: dict[tuple[str, int], list[str]] = field(default_factory=dict[tuple[str, int], list[str]])

    def has_emitted(self, kind: str, part: int | None = None) -> bool:
        """Return True if text of this kind was emitted; with `part`, of this part."""
        return any(one == kind and part in (None, place) for one, place in self.pieces)

    def emitted_text(self, kind: str, part: int | None = None) -> str:
        """Return the emitted text of this kind; with `part`, of this part."""
        found = sorted(self.pieces.items())
        parts = [pieces for (one, place), pieces in found if one == kind and part in (None, place)]
        return "".join(piece for pieces in parts for piece in pieces)


class _Stream:
    """Translates the events of one stream. Its state is the output emitted so far."""

    def __init__(self) -> None:
        self._identity = response_identity({}, "chat.completion.chunk")
        self._items: list[_Item] = []
        self._by_id: dict[str, _Item] = {}
        self._last_items: dict[str, _Item] = {}
        self._calls = 0
        self._has_role = False
        self._has_ids = False
        self._differing_copies: list[str] = []

    def chunk(self, event: Json) -> Json:
        """Return the chunk for an event."""
        kind = text(value_at(event, "type"))
        error = value_at(event, "error")
        if kind == "error" or (not kind and error is not None):
            return {**self._identity, "choices": [], "error": members(event) if error is None else error}
        response = members(value_at(event, "response"))
        if response:
            self._identity = response_identity(response, "chat.completion.chunk")
        delta = self._delta(kind, members(event))
        finish: Json = None
        more: JsonObject = {}
        if kind in _ENDS:
            delta, finish, more = self._end(response)
        elif response:
            more = {name: value for name, value in usage_and_prompt_ids(response).items() if name == "prompt_token_ids"}
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
        """Return the token ids of an event. If no event had any, return those of the last response."""
        if "token_ids" in event:
            self._has_ids = True
            return event["token_ids"]
        return None if self._has_ids else response.get("token_ids")

    def _logprobs(self, kind: str, event: JsonObject, response: JsonObject) -> Iterator[Json]:
        """Yield the log probabilities of a delta, and those of a complete text whose deltas had none."""
        if kind == _TEXT_DELTA:
            item = self._item_of(event)
            item.has_logprobs = item.has_logprobs or bool(items(event.get("logprobs")))
            yield from items(event.get("logprobs"))
        elif kind in (_TEXT_DONE, "response.output_item.done"):
            value = members(event.get("item"))
            index = integer(event.get("output_index"))
            item = self._item_of(event) if kind == _TEXT_DONE else self._item(_name(value), index, is_new=False)
            yield from self._missing_logprobs(item, items(event.get("logprobs")) or message_logprobs(value))
        for place, last in enumerate(items(response.get("output"))):
            item = self._by_id.get(_name(last)) or self._item("", place, is_new=False)
            yield from self._missing_logprobs(item, message_logprobs(members(last)))

    def _missing_logprobs(self, item: _Item, entries: list[Json]) -> list[Json]:
        if item.has_logprobs:
            return []
        item.has_logprobs = bool(entries)
        return entries

    def _delta(self, kind: str, event: JsonObject) -> JsonObject:
        if kind in ("response.output_item.added", "response.output_item.done"):
            value = members(event.get("item"))
            item = self._item(_name(value), integer(event.get("output_index")), is_new=kind.endswith("added"))
            return self._finished_item(item, value) if kind.endswith("done") else self._description(item, value)
        if kind in _DELTAS:
            return self._text(self._item_of(event), _DELTAS[kind], text(event.get("delta")), _part(event))
        if kind in _WHOLES:
            what, member = _WHOLES[kind]
            item = self._item_of(event)
            if item.has_emitted(what, _part(event)):
                return self._differing_copy(item, what, text(event.get(member)), _part(event))
            return self._text(item, what, text(event.get(member)), _part(event))
        if kind == _PART_DONE and (names := _PART_MEMBERS.get(text(value_at(event.get("part"), "type")))) is not None:
            what, member = names
            return self._differing_copy(self._item_of(event), what, text(value_at(event, "part", member)), _part(event))
        return {}

    def _differing_copy(self, item: _Item, what: str, whole: str, part: int | None = None) -> JsonObject:
        """Return a delta with the complete text if that is for the user and differs from the emitted deltas."""
        if what not in _SHOWN or not whole or not item.has_emitted(what, part):
            return {}
        if whole in (item.emitted_text(what, part), *self._differing_copies):
            return {}
        self._differing_copies.append(whole)
        return {f"retold_{len(self._differing_copies)}": whole}

    def _item_of(self, event: JsonObject) -> _Item:
        return self._item(text(event.get("item_id")), integer(event.get("output_index")), is_new=False)

    def _item(self, name: str, index: int | None, *, is_new: bool) -> _Item:
        """Return the item at this index, else that of this id, else the last one. Servers may omit index, id, or both."""
        at_place = next((one for one in reversed(self._items) if one.index == index), None)
        last = self._items[-1] if self._items and not name and index is None else None
        known = at_place or self._by_id.get(name) or last
        if known is None or (is_new and known is not self._by_id.get(name)):
            known = _Item(index=len(self._items) if index is None else index)
            self._items.append(known)
        if name:
            self._by_id[name] = known
        return known

    def _description(self, item: _Item, value: JsonObject) -> JsonObject:
        """Return the delta that introduces an item: its other members, and of a call the id and name."""
        item.value = {**item.value, **value}
        delta: JsonObject = {}
        if value.get("type") == _FUNCTION_CALL and not (item.is_described and item.is_named):
            described: JsonObject = {"function": {"name": value.get("name")}}
            head = described if item.is_described else translate_call(value, "")
            item.is_named = bool(text(value.get("name")))
            delta = {"tool_calls": [{"index": self._call_index(item), **head}]}
        if not item.is_described:
            rest = untranslated_members(value, item.index)
            hidden = ("status", "parts", *_FOREIGN, *_LATER)
            delta["output"] = [{name: rest[name] for name in rest if name not in hidden}]
        item.is_described = True
        return delta

    def _call_index(self, item: _Item) -> int:
        if item.call_index is None:
            item.call_index = self._calls
            self._calls += 1
        return item.call_index

    def _finished_item(self, item: _Item, value: JsonObject) -> JsonObject:
        """Return a delta with everything of a finished item that was not emitted yet."""
        delta = self._description(item, value)
        for what, whole in _texts(value):
            has_summary = what == "reasoning" and item.has_emitted("summary")
            delta = _merge(delta, self._differing_copy(item, what, whole))
            if whole and not item.has_emitted(what) and not has_summary:
                delta = _merge(delta, self._text(item, what, whole, 0))
        rest = untranslated_members(value, item.index)
        own: JsonObject = {name: one for name, one in rest.items() if name in _FOREIGN or name in _LATER}
        foreign = {name: one for name, one in own.items() if one and not item.has_emitted(f"foreign {name}")}
        if foreign:
            item.pieces |= {(f"foreign {name}", 0): [dumps(content)] for name, content in foreign.items()}
            delta = _merge(delta, {"output": [{"index": item.index, **foreign}]})
        return delta

    def _text(self, item: _Item, what: str, piece: str, part: int) -> JsonObject:
        if not piece:
            return {}
        item.pieces.setdefault((what, part), []).append(piece)
        if what == "arguments" and _type(item.value) not in ("", _FUNCTION_CALL):
            item.pieces.setdefault(("foreign arguments", 0), []).append(piece)
            return {"output": [{"index": item.index, "arguments": piece}]}
        if what == "arguments":
            return {"tool_calls": [{"index": self._call_index(item), "function": {"arguments": piece}}]}
        if what in ("input", "code"):
            item.pieces.setdefault((f"foreign {what}", 0), []).append(piece)
            return {"output": [{"index": item.index, what: piece}]}
        if what == "summary":
            if item.has_emitted("reasoning"):
                return {}  # the reasoning itself was emitted
            what = "reasoning"
        before = self._last_items.get(what)
        self._last_items[what] = item
        return {what: piece if before in (None, item) else ITEM_SEPARATOR + piece}

    def _last_item(self, output: list[Json], place: int) -> _Item:
        """Return the item of the stream for one of the last response: by id, else by place, else by the order of its type.

        The last response may lack an item, which shifts the places of those after it.
        In vLLM 0.11.0 it has other places and ids than the events, and the texts of two items may have one id.
        """
        value = output[place]
        kinds = [what for what, whole in _texts(members(value)) if whole]
        alike = [one for one in self._items if _type(one.value) == _type(value) or any(map(one.has_emitted, kinds))]
        named = self._by_id.get(_name(value))
        order = [number for number, other in enumerate(output) if _type(other) == _type(value)]
        in_order = alike[order.index(place)] if len(alike) == len(order) else None
        at_place = next((one for one in alike if one.index == place), None)
        known = named if named in alike else at_place or in_order
        return known or self._item(_name(value), place, is_new=False)

    def _end(self, response: JsonObject) -> tuple[JsonObject, Json, JsonObject]:
        """Return the delta of output not emitted yet, the finish reason, and the chunk members `usage` and `error`."""
        delta: JsonObject = {}
        output = items(response.get("output"))
        for place, value in enumerate(output):
            delta = _merge(delta, self._finished_item(self._last_item(output, place), members(value)))
        error = response_error(response)
        more = usage_and_prompt_ids(response)
        reason = finish_reason(response)
        reason = "tool_calls" if reason == "stop" and self._calls else reason
        return delta, reason, more if error is None else {**more, "error": error}


def _type(item: Json) -> str:
    return text(value_at(item, "type"))


def _name(item: Json) -> str:
    """Return the item's id, else its call id."""
    return text(value_at(item, "id")) or text(value_at(item, "call_id"))


def _part(event: JsonObject) -> int:
    names = ("content_index", "summary_index")
    return next((place for name in names if (place := integer(event.get(name))) is not None), 0)


def _texts(item: JsonObject) -> Iterator[tuple[str, str]]:
    """Yield the kind and text of each text of a complete item."""
    match item.get("type"):
        case "reasoning":
            yield "reasoning", reasoning_text(item)
        case "message":
            yield "content", "".join(text(value_at(part, "text")) for part in items(item.get("content")))
            yield "refusal", "".join(text(value_at(part, "refusal")) for part in items(item.get("content")))
        case "function_call":
            yield "arguments", text(item.get("arguments"))
        case _:
            return


def _merge(one: JsonObject, other: JsonObject) -> JsonObject:
    """Join two deltas: concatenate texts and lists."""
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
