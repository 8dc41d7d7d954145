"""Translate each event of a stream of Messages to one `chat.completion.chunk`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from harmony_conformance.apis.messages.request_reader import read_call
from harmony_conformance.apis.messages.response_reader import (
    finish_reason,
    identity,
    read_content,
    translate_usage,
    untranslated_members,
)
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at

_KINDS = frozenset(
    {
        *("message_start", "message_delta", "message_stop", "ping", "error"),
        *("content_block_start", "content_block_delta", "content_block_stop"),
    }
)


def error_of(event: Json) -> Json:
    """Return the error that an event has, or is: llama.cpp sends it without its envelope. None without an error."""
    error, kind = value_at(event, "error"), text(value_at(event, "type"))
    if error is not None:
        return error
    is_bare = kind not in _KINDS and kind.endswith("error") and isinstance(value_at(event, "message"), str)
    return members(event) if kind == "error" or is_bare else None


def read_events(events: Iterable[Json]) -> Iterator[Json]:
    """Return an iterator of one `chat.completion.chunk`, or `{"error": …}`, for each event."""
    return map(_Stream().chunk, events)


@dataclass(kw_only=True)
class _Block:
    """A content block: its value at the start, and the index of its call."""

    value: JsonObject
    index: int = 0
    call: int | None = None
    has_input: bool = False


@dataclass(kw_only=True)
class _Stream:
    """Translates the events of one stream. Its state is the message and its blocks so far."""

    identity: JsonObject = field(default_factory=lambda: identity({}, "chat.completion.chunk"))
    blocks: dict[int, _Block] = field(default_factory=dict[int, _Block])
    usage: JsonObject = field(default_factory=dict[str, Json])
    calls: int = 0

    def chunk(self, event: Json) -> Json:
        """Return the chunk for an event."""
        value = members(event)
        kind = text(value.get("type"))
        if kind not in _KINDS - {"error"} and (error := error_of(event)) is not None:
            return {**self.identity, "choices": [], "error": error}
        match kind:
            case "message_start":
                return self._start(members(value.get("message")), value)
            case "message_delta":
                self.usage |= {name: count for name, count in members(value.get("usage")).items() if count is not None}
                finish = finish_reason(members(value.get("delta")))
                chunk = self._choice({}, value, finish)
                return {**chunk, "usage": translate_usage(self.usage)} if self.usage else chunk
            case "content_block_start":
                return self._choice(self._begin(value), value)
            case "content_block_delta":
                return self._choice(self._delta(self._block(value), members(value.get("delta"))), value)
            case "content_block_stop":
                return self._choice(self._end(self._block(value)), value)
            case _:
                return self._choice({}, value)

    def _start(self, message: JsonObject, event: JsonObject) -> JsonObject:
        self.identity = identity(message, "chat.completion.chunk")
        self.usage = {**members(message.get("usage"))}
        content = items(message.get("content"))  # it has to be empty, but clients show what is there
        early = {name: value for name, value in read_content(content).items() if value} if content else {}
        calls = items(early.get("tool_calls"))
        indexed: list[Json] = [{**members(call), "index": self.calls + place} for place, call in enumerate(calls)]
        self.calls += len(calls)
        role: JsonObject = {"role": message.get("role", "assistant")}
        return self._choice({**early, **role, **({"tool_calls": indexed} if indexed else {})}, event)

    def _choice(self, delta: JsonObject, event: JsonObject, finish: Json = None) -> JsonObject:
        """Return a chunk with this delta; without choices if the event adds nothing."""
        ids: JsonObject = {"token_ids": event["token_ids"]} if "token_ids" in event else {}
        choice: JsonObject = {"index": 0, "delta": delta, "finish_reason": finish, **ids}
        return {**self.identity, "choices": [choice] if delta or finish is not None or ids else []}

    def _begin(self, event: JsonObject) -> JsonObject:
        """Return the delta that introduces a block. Servers may begin it with its first text."""
        value = members(event.get("content_block"))
        index = integer(event.get("index"))
        index = len(self.blocks) if index is None else index
        block = self.blocks[index] = _Block(value=value, index=index)
        delta: JsonObject = {"blocks": [{"index": index, **untranslated_members(value)}]}
        match value.get("type"):
            case "text" | "thinking":
                return {**delta, **self._delta(block, {**value, "type": f"{value['type']}_delta"})}
            case "tool_use":
                block.call = self.calls
                self.calls += 1
                call = read_call(value)
                function: JsonObject = {"name": value.get("name"), "arguments": ""}
                return {**delta, "tool_calls": [{**call, "index": block.call, "function": function}]}
            case _:
                return delta

    def _block(self, event: JsonObject) -> _Block:
        """Return the block of an event; the last one if the event has no index of a block."""
        index = integer(event.get("index"))
        known = self.blocks.get(-1 if index is None else index)
        return known or (next(reversed(self.blocks.values())) if self.blocks else _Block(value={}))

    def _delta(self, block: _Block, delta: JsonObject) -> JsonObject:
        match delta.get("type"):
            case "text_delta":
                piece = text(delta.get("text"))
                return {"content": piece} if piece else {}
            case "thinking_delta":
                piece = text(delta.get("thinking"))
                return {"reasoning": piece} if piece else {}
            case "input_json_delta":
                piece = text(delta.get("partial_json"))
                block.has_input = block.has_input or bool(piece)
                if piece and block.value.get("type") not in (None, "tool_use"):
                    return {"blocks": [{"index": block.index, "input": piece}]}
                return self._arguments(block, piece) if piece else {}
            case _:
                return {}

    def _end(self, block: _Block) -> JsonObject:
        """Return the input of a call that came with the start of its block; without any, it is empty."""
        if block.value.get("type") != "tool_use" or block.has_input:
            return {}
        block.has_input = True
        return self._arguments(block, text(value_at(read_call(block.value), "function", "arguments")))

    def _arguments(self, block: _Block, piece: str) -> JsonObject:
        return {"tool_calls": [{"index": block.call or 0, "function": {"arguments": piece}}]}
