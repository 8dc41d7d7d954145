"""Defects of past calls and results: they appear in the prompt with a wrong name or wrong content."""

import json
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.body_changes import in_list
from harmony_conformance.reference_server.defects.conversation_changes import each_call
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
    try:
        value = json.loads(text_of(message), parse_int=float)
    except ValueError:
        return message
    return replace(message, content=(TextContent(text=json.dumps(value, ensure_ascii=False)),))


DEFECTS = (
    Defect(
        "results-named-after-last-call",
        "A result gets the name of the function that was called last, whatever its `tool_call_id`.",
        OnConversation(_named_after_last_call),
    ),
    Defect(
        "orphan-result-to-first-call",
        "A result with a missing or unknown `tool_call_id` is assigned to the first call, answered or not.",
        OnRequest(_with_first_call),
    ),
    Defect(
        "result-parts-lost",
        "Only the first part of a result with several content parts reaches the model.",
        OnRequest(in_list("messages", _first_part_only)),
    ),
    Defect(
        "past-arguments-through-floats",
        "The arguments of past calls are decoded and encoded again, with integers as floats.",
        OnConversation(each_call(_arguments_through_floats)),
    ),
)
