"""Defects of calls and results in the history: they reach the model under another name, or with another content."""

import json
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.stages import Defect, OnConversation, OnRequest
from harmony_ref import Message, Role, TextContent, text_of


def _named_after_last_call(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    shown: list[Message] = []
    called: str | None = None
    for message in messages:
        if message.author.role is Role.ASSISTANT and message.recipient is not None:
            called = message.recipient
        is_result = message.author.role is Role.TOOL and called is not None
        shown.append(replace(message, author=replace(message.author, name=called)) if is_result else message)
    return tuple(shown)


def _with_first_call(body: JsonObject) -> JsonObject:
    """Results without an id, or with one that no call has, take the id of the first call of the history."""
    messages = [members(entry) for entry in items(body.get("messages"))]
    calls = [members(call).get("id") for message in messages for call in items(message.get("tool_calls"))]
    if not calls:
        return body
    found: list[Json] = [
        {**message, "tool_call_id": calls[0]}
        if message.get("role") == "tool" and message.get("tool_call_id") not in calls
        else message
        for message in messages
    ]
    return {**body, "messages": found}


def _first_part_alone(body: JsonObject) -> JsonObject:
    def changed(entry: Json) -> Json:
        content = items(members(entry).get("content"))
        return {**members(entry), "content": content[:1]} if members(entry).get("role") == "tool" and content else entry

    return (
        {**body, "messages": [changed(entry) for entry in items(body.get("messages"))]} if "messages" in body else body
    )


def _arguments_through_floats(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    def changed(message: Message) -> Message:
        if message.author.role is not Role.ASSISTANT or message.recipient is None:
            return message
        try:
            value = json.loads(text_of(message), parse_int=float)
        except ValueError:
            return message
        return replace(message, content=(TextContent(text=json.dumps(value, ensure_ascii=False)),))

    return tuple(map(changed, messages))


DEFECTS = (
    Defect(
        id="results-named-after-last-call",
        catalogue=(),
        summary="A result stands under the function that was called last, whatever call its id names.",
        change=OnConversation(_named_after_last_call),
    ),
    Defect(
        id="orphan-result-to-first-call",
        catalogue=(),
        summary="A result whose id is missing or names no call is taken for that of the first call, answered or not.",
        change=OnRequest(_with_first_call),
    ),
    Defect(
        id="result-parts-lost",
        catalogue=(),
        summary="Of a result that is given as a list of parts, only the first part reaches the model.",
        change=OnRequest(_first_part_alone),
    ),
    Defect(
        id="past-arguments-through-floats",
        catalogue=(),
        summary="The arguments of past calls are decoded and encoded anew, whole numbers as floats.",
        change=OnConversation(_arguments_through_floats),
    ),
)
