"""Streams of Anthropic's Messages: their texts are read as they come, so that a leak is blocked before its end. They are not rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.json_value import Json, JsonObject, items, members, parse_object, text, value_at
from harmony_proxy.repair.chat.chat_stream import ChatStream
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.rewriter import TextKey
from harmony_proxy.repair.stream_parts.text_tracker import Status
from harmony_proxy.repair.text.api_dialects import DIALECTS, ChoiceContent, Dialect
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError
from harmony_proxy.repair.text.messages_answer import READ_BLOCKS, STOP_REASONS

_OTHER = "block"
"""The member of a part that has an event of a block that is not rewritten."""


def _parts(value: Json) -> tuple[ChoiceContent, ...]:
    """Return the content of an event. A call has the index of its block."""
    parts = DIALECTS["chat"].parts(next(MESSAGES.read_events([value])))
    return tuple(replace(part, message=_with_index(part.message, value_at(value, "index"))) for part in parts)


def _with_index(message: JsonObject, index: Json) -> JsonObject:
    calls: list[Json] = [{**members(call), "index": index} for call in items(message.get("tool_calls"))]
    bare: JsonObject = {name: one for name, one in message.items() if name != "blocks"}
    return {**bare, "tool_calls": calls} if calls else bare


def _rewrite(value: Json, _parts: Mapping[int, Sequence[JsonObject]], finish: Mapping[int, str]) -> list[Json]:
    """Return the event, with another stop reason if there is one."""
    delta = members(value_at(value, "delta"))
    if 0 not in finish or "stop_reason" not in delta:
        return [value]
    return [{**members(value), "delta": {**delta, "stop_reason": STOP_REASONS.get(finish[0], finish[0])}}]


def _delta(_choice: int, message: JsonObject, ids: Sequence[Json]) -> JsonObject:
    """Return one event with all blocks of a message, or the event of a block that is not rewritten."""
    if _OTHER in message:
        return members(message[_OTHER])
    content: list[Json] = []
    for kind, name, member in (("thinking", "thinking", "reasoning"), ("text", "text", "content")):
        if piece := text(message.get(member)):
            content.append({"type": kind, name: piece})
    for call in items(message.get("tool_calls")):
        function = members(value_at(call, "function"))
        written = text(function.get("arguments"))
        parsed = parse_object(written)
        block: JsonObject = {"type": "tool_use", "id": value_at(call, "id"), "name": function.get("name")}
        content.append({**block, "input": written if parsed is None else parsed})
    event: JsonObject = {"type": "message_start", "message": {"role": "assistant", "content": content}}
    return {**event, "token_ids": [*ids]} if ids else event


MESSAGES_DIALECT = Dialect(
    content="content",
    reasoning=("reasoning",),
    parts=_parts,
    rewrite=_rewrite,
    delta=_delta,
    calls_are_whole=False,
    finishes_with_calls=True,
)
"""Forms of the events of Messages. Only stop reasons are replaced."""


class MessagesStream(ChatStream):
    """Reads one stream, and repairs its stop reason."""

    _others: frozenset[Json] = frozenset()
    """Indexes of the blocks of server tools and of their results."""

    def parts(self, piece: RawEvent) -> Sequence[ChoiceContent]:
        """Return the content of an event. An event of a block that is not rewritten is returned as it is."""
        event = members(piece.value)
        index, kind = event.get("index"), text(value_at(event, "content_block", "type"))
        if event.get("type") == "content_block_start" and isinstance(index, int):
            self._others = self._others - {index} if kind in READ_BLOCKS else self._others | {index}
        if not isinstance(index, int) or index not in self._others:
            return super().parts(piece)
        bare: JsonObject = {name: one for name, one in event.items() if name != "token_ids"}
        return (ChoiceContent(choice=0, message={_OTHER: bare}, ids=items(event.get("token_ids"))),)

    def begin(self, statuses: Mapping[TextKey, Status]) -> None:
        """Refuse to rewrite.

        Raises:
            NoDestinationError: always.
        """
        del statuses
        raise NoDestinationError("text in content blocks, which are not rewritten")
