"""Defects of past calls and results: they appear in the prompt with a wrong name or wrong content."""

import json
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.body_changes import in_list
from harmony_conformance.reference_server.defects.message_changes import each_message
from harmony_conformance.reference_server.defects.stages import Defect, OnConversation, OnRequest
from harmony_ref import Message, Role, TextContent, text_of


def _named_after_last_call(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    renamed: list[Message] = []
    function: str | None = None
    for message in messages:
        if message.author.role is Role.ASSISTANT and message.recipient is not None:
            function = message.recipient
        is_result = message.author.role is Role.TOOL and function is not None
        renamed.append(replace(message, author=replace(message.author, name=function)) if is_result else message)
    return tuple(renamed)


def _with_first_call(body: JsonObject) -> JsonObject:
    """Give results with a missing or unknown id the id of the first call of the history."""
    messages = [members(entry) for entry in items(body.get("messages"))]
    calls = [members(call).get("id") for message in messages for call in items(message.get("tool_calls"))]
    if not calls:
        return body
    results: list[Json] = [
        {**message, "tool_call_id": calls[0]}
        if message.get("role") == "tool" and message.get("tool_call_id") not in calls
        else message
        for message in messages
    ]
    return {**body, "messages": results}


def _first_part_only(entry: JsonObject) -> JsonObject:
    content = items(entry.get("content"))
    return {**entry, "content": content[:1]} if entry.get("role") == "tool" and content else entry


def _arguments_through_floats(message: Message) -> Message:
    if message.author.role is not Role.ASSISTANT or message.recipient is None:
        return message
    try:
        value = json.loads(text_of(message), parse_int=float)
    except ValueError:
        return message
    return replace(message, content=(TextContent(text=json.dumps(value, ensure_ascii=False)),))


DEFECTS = (
    Defect(
        id="results-named-after-last-call",
        summary="A result gets the name of the function that was called last, whatever its `tool_call_id`.",
        change=OnConversation(_named_after_last_call),
    ),
    Defect(
        id="orphan-result-to-first-call",
        summary="A result with a missing or unknown `tool_call_id` is assigned to the first call, answered or not.",
        change=OnRequest(_with_first_call),
    ),
    Defect(
        id="result-parts-lost",
        summary="Only the first part of a result with several content parts reaches the model.",
        change=OnRequest(in_list("messages", _first_part_only)),
    ),
    Defect(
        id="past-arguments-through-floats",
        summary="The arguments of past calls are decoded and encoded again, with integers as floats.",
        change=OnConversation(each_message(_arguments_through_floats)),
    ),
)
