"""Views of an answer of Messages: its events, and the message that they or the body have."""

from __future__ import annotations

from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.checks.responses.views import json_events
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, integer, items, loads, members, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.condition import condition, only_on

COUNT_TOKENS = "/count_tokens"
"""The end of the path that counts the tokens of a prompt."""

PIECES = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}
"""The member of a block, and of the delta, by the type of the delta. The input of a call is joined otherwise."""


@only_on(MESSAGES.name)
@condition
def is_messages(x: Exchange) -> bool:
    """ordinary exchanges on Messages"""
    return x.api == MESSAGES.name and on.is_conversation.holds(x)


ANSWERED = (is_messages, on.was_answered, on.is_complete_answer)
STREAMED = (is_messages, on.has_full_api_stream, on.is_complete_answer)


def message(x: Exchange) -> JsonObject:
    """Return the message of an answer, as the official client joins it from the events of a stream."""
    if x.events is None:
        return members(x.response_json)
    joined: JsonObject = {}
    content: list[JsonObject] = []
    inputs: dict[int, str] = {}
    for event in json_events(x):
        index = integer(event.get("index")) or 0
        block = content[index] if 0 <= index < len(content) else {}
        match event.get("type"):
            case "message_start":
                joined = {**members(event.get("message"))}
            case "content_block_start":
                content.append(_begun(members(event.get("content_block"))))
            case "content_block_delta":
                delta = members(event.get("delta"))
                if delta.get("type") == "input_json_delta":
                    inputs[index] = inputs.get(index, "") + text(delta.get("partial_json"))
                elif (name := PIECES.get(text(delta.get("type")))) is not None:
                    block[name] = text(block.get(name)) + text(delta.get(name))
            case "message_delta":
                counts = members(event.get("usage")).items()
                usage = {**members(joined.get("usage")), **{name: count for name, count in counts if count is not None}}
                joined |= {**members(event.get("delta")), "usage": usage}
            case _:
                pass
    for index, written in inputs.items():
        if written and 0 <= index < len(content):
            content[index]["input"] = _parsed(written)
    blocks: list[Json] = [*content]
    return {**joined, "content": blocks}


def _begun(block: JsonObject) -> JsonObject:
    """Return a block at its start. An empty signature there is a placeholder."""
    return {name: value for name, value in block.items() if name != "signature" or value}


def _parsed(written: str) -> Json:
    try:
        return loads(written)
    except InvalidJsonError:
        return written


def blocks(x: Exchange) -> list[JsonObject]:
    """Return the content blocks of an answer."""
    return [members(block) for block in items(message(x).get("content"))]
