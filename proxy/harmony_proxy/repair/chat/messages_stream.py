"""Streams of Anthropic's Messages: their texts are read as they come, so that a leak is blocked before its end. They are not rewritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_proxy.repair.chat.chat_stream import ChatStream
from harmony_proxy.repair.stream_parts.rewriter import TextKey
from harmony_proxy.repair.stream_parts.text_tracker import Status
from harmony_proxy.repair.text.api_dialects import DIALECTS, ChoiceContent, Dialect
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError
from harmony_proxy.repair.text.messages_answer import STOP_REASONS


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
    """Return one event with all blocks of a message."""
    content: list[Json] = []
    for kind, name, member in (("thinking", "thinking", "reasoning"), ("text", "text", "content")):
        if piece := text(message.get(member)):
            content.append({"type": kind, name: piece})
    for call in items(message.get("tool_calls")):
        function = members(value_at(call, "function"))
        block: JsonObject = {"type": "tool_use", "id": value_at(call, "id"), "name": function.get("name")}
        content.append({**block, "input": function.get("arguments")})
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

    def begin(self, statuses: Mapping[TextKey, Status]) -> None:
        """Refuse to rewrite.

        Raises:
            NoDestinationError: always.
        """
        del statuses
        raise NoDestinationError("text in content blocks, which are not rewritten")
