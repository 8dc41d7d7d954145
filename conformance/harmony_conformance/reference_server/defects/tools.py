"""Defects of tools in the prompt: declarations, past calls and results are missing, changed or under a wrong name."""

import json
from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import cast

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.changes.body import in_list
from harmony_conformance.reference_server.defects.changes.conversation import each_call, each_part
from harmony_conformance.reference_server.defects.stages import Defect, OnConversation, OnRequest
from harmony_ref import (
    Content,
    DeveloperContent,
    Message,
    Role,
    SystemContent,
    TextContent,
    ToolDescription,
    ToolNamespaceConfig,
    text_of,
)

_LONGEST = 32  # characters


def _each_tool(change: Callable[[ToolDescription], ToolDescription]) -> OnConversation:
    """Change every declared function."""
    return _tools(lambda tools: tuple(map(change, tools)))


def _tools(change: Callable[[tuple[ToolDescription, ...]], tuple[ToolDescription, ...]]) -> OnConversation:
    def namespace(one: ToolNamespaceConfig) -> ToolNamespaceConfig:
        return replace(one, tools=change(tuple(one.tools)))

    def part(one: Content) -> Content:
        if not isinstance(one, DeveloperContent) or one.tools is None:
            return one
        return replace(one, tools={name: namespace(space) for name, space in one.tools.items()})

    return OnConversation(each_part(part))


def _each_schema(change: Callable[[JsonObject], JsonObject]) -> OnConversation:
    """Change every schema in a function's parameters, inner ones first."""

    def changed(value: Json) -> Json:
        match value:
            case dict():
                return change({name: changed(member) for name, member in value.items()})
            case list():
                return [changed(item) for item in value]
            case _:
                return value

    return _each_tool(lambda tool: replace(tool, parameters=changed(cast("Json", tool.parameters))))


def _without(name: str) -> Callable[[JsonObject], JsonObject]:
    """Remove a keyword of a schema, but not a parameter of that name."""
    return lambda schema: {key: value for key, value in schema.items() if key != name or isinstance(value, dict)}


def _inverted(schema: JsonObject) -> JsonObject:
    if not isinstance(schema.get("properties"), dict):
        return schema
    required = items(schema.get("required"))
    optional: list[Json] = [name for name in members(schema["properties"]) if name not in required]
    return {**schema, "required": optional}


def _cut(description: str) -> str:
    return description if len(description) <= _LONGEST else f"{description[: _LONGEST - 1]}…"


def _built_in_to_developer(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Move built-in tools to the developer message."""
    system, *others = messages
    (content,) = system.content
    if not isinstance(content, SystemContent) or not content.tools:
        return messages
    first = others[0].content[0] if others and isinstance(others[0].content[0], DeveloperContent) else None
    developer = first if isinstance(first, DeveloperContent) else DeveloperContent()
    developer = replace(developer, tools={**content.tools, **(developer.tools or {})})
    rest = others[1:] if first is not None else others
    system = replace(system, content=(replace(content, tools=None),))
    return (system, Message(author=Role.DEVELOPER, content=developer), *rest)


def _built_in_undescribed(part: Content) -> Content:
    if not isinstance(part, SystemContent) or not part.tools:
        return part
    return replace(part, tools={name: replace(space, description=None) for name, space in part.tools.items()})


def _flat(schema: JsonObject) -> JsonObject:
    if not isinstance(schema.get("properties"), dict):
        return schema
    bare: JsonObject = {
        name: {"type": "object"} if members(members(member).get("properties")) else member
        for name, member in members(schema["properties"]).items()
    }
    return {**schema, "properties": bare}


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
        "tool-descriptions-lost",
        "Functions are declared without their descriptions.",
        _each_tool(lambda tool: replace(tool, description="")),
    ),
    Defect(
        "tool-descriptions-cut",
        "Long descriptions of functions are truncated.",
        _each_tool(lambda tool: replace(tool, description=_cut(tool.description))),
    ),
    Defect(
        "tool-descriptions-escaped",
        "Descriptions of functions are HTML-escaped: `<`, `>` and `&` become `&lt;`, `&gt;` and `&amp;`.",
        _each_tool(lambda tool: replace(tool, description=escape(tool.description, quote=False))),
    ),
    Defect(
        "tools-sorted",
        "The functions are sorted by name; the order of the request is lost.",
        _tools(lambda tools: tuple(sorted(tools, key=lambda tool: tool.name))),
    ),
    Defect(
        "built-in-tools-below",
        "Built-in tools are declared in the developer message instead of the system message.",
        OnConversation(_built_in_to_developer),
    ),
    Defect(
        "built-in-tools-undescribed",
        "Built-in tools are declared without their descriptions.",
        OnConversation(each_part(_built_in_undescribed)),
    ),
    Defect(
        "enum-values-lost",
        "A parameter with a list of allowed values is declared as a plain string.",
        _each_schema(_without("enum")),
    ),
    Defect(
        "required-inverted",
        "Required parameters are declared as optional, and optional ones as required.",
        _each_schema(_inverted),
    ),
    Defect(
        "nested-object-flattened", "A parameter that is an object is declared without its members.", _each_schema(_flat)
    ),
    Defect("later-tools-lost", "Only the first of several functions is declared.", _tools(lambda tools: tools[:1])),
    Defect("defaults-lost", "Parameters are declared without their defaults.", _each_schema(_without("default"))),
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
