"""Whole answers of Anthropic's Messages, read and rewritten as thinking, one text and the calls. Streams: `messages_stream`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_proxy.repair.text.api_dialects import DIALECTS, ChoiceContent, Dialect, object_tool_call

STOP_REASONS: Mapping[str, str] = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
"""The stop reasons by finish reason."""

SIGNATURE = "harmony-proxy"
"""The signature of thinking that the server did not return as thinking."""

READ_BLOCKS = frozenset({"text", "thinking", "tool_use"})
"""Types of the blocks that are read as content, reasoning and calls."""


def _parts(value: Json) -> tuple[ChoiceContent, ...]:
    """Return the content of the answer; nothing if it has other blocks, or citations, whose place in another text is unknown."""
    blocks = [members(block) for block in items(value_at(value, "content"))]
    if any(text(block.get("type")) not in READ_BLOCKS or items(block.get("citations")) for block in blocks):
        return ()
    return tuple(
        ChoiceContent(
            choice=0,
            message={name: one for name, one in part.message.items() if name != "blocks"},
            finish=part.finish,
            ids=part.ids,
        )
        for part in DIALECTS["chat"].parts(MESSAGES.read_response(value))
    )


def _rewrite(value: Json, parts: Mapping[int, Sequence[JsonObject]], finish: Mapping[int, str]) -> list[Json]:
    body = members(value)
    ending: JsonObject = {"stop_reason": STOP_REASONS.get(finish[0], finish[0])} if 0 in finish else {}
    messages = parts.get(0)
    content: JsonObject = {"content": [*_blocks(body, messages[0])]} if messages else {}
    return [{**body, **content, **ending}]


def _blocks(body: JsonObject, message: JsonObject) -> Iterator[JsonObject]:
    """Yield the blocks of a message.

    Raises:
        NoDestinationError: the arguments of a call are not a JSON object.
    """
    before = [members(block) for block in items(body.get("content"))]
    if thinking := text(message.get("reasoning")):
        signatures = (text(block.get("signature")) for block in before if block.get("type") == "thinking")
        yield {"type": "thinking", "thinking": thinking, "signature": next(signatures, SIGNATURE)}
    if shown := text(message.get("content")):
        yield {"type": "text", "text": shown}
    for call in items(message.get("tool_calls")):
        name, arguments = (text(value_at(call, "function", member)) for member in ("name", "arguments"))
        function = members(object_tool_call(name, arguments)["function"])
        identity = text(value_at(call, "id"))
        yield {"type": "tool_use", "id": identity, "name": name, "input": function["arguments"]}


MESSAGES_ANSWER = Dialect(
    content="content",
    reasoning=("reasoning",),
    parts=_parts,
    rewrite=_rewrite,
    delta=lambda _choice, message, _ids: message,
    calls_are_whole=False,
    finishes_with_calls=True,
)
"""Forms of a whole answer of Messages."""
