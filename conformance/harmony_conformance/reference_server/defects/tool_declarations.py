"""Defects of the declared functions: the model is told of a function, and not all that the client said about it."""

from collections.abc import Callable
from dataclasses import replace
from html import escape
from typing import cast

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.stages import Defect, OnConversation
from harmony_ref import Content, DeveloperContent, Message, Role, SystemContent, ToolDescription, ToolNamespaceConfig

_LONGEST = 32  # characters


def _each_tool(change: Callable[[ToolDescription], ToolDescription]) -> OnConversation:
    """The same change of every declared function."""
    return _tools(lambda tools: tuple(map(change, tools)))


def _tools(change: Callable[[tuple[ToolDescription, ...]], tuple[ToolDescription, ...]]) -> OnConversation:
    def namespace(one: ToolNamespaceConfig) -> ToolNamespaceConfig:
        return replace(one, tools=change(tuple(one.tools)))

    def part(one: Content) -> Content:
        if not isinstance(one, DeveloperContent) or one.tools is None:
            return one
        return replace(one, tools={name: namespace(space) for name, space in one.tools.items()})

    def message(one: Message) -> Message:
        return replace(one, content=tuple(map(part, one.content)))

    return OnConversation(lambda messages: tuple(map(message, messages)))


def _each_schema(change: Callable[[JsonObject], JsonObject]) -> OnConversation:
    """The same change of every schema in a function's parameters, inner ones first."""

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
    """A schema without one keyword; a parameter of that name is left alone."""

    def changed(schema: JsonObject) -> JsonObject:
        return {key: value for key, value in schema.items() if key != name or isinstance(value, dict)}

    return changed


def _inverted(schema: JsonObject) -> JsonObject:
    if not isinstance(schema.get("properties"), dict):
        return schema
    needed = items(schema.get("required"))
    optional: list[Json] = [name for name in members(schema["properties"]) if name not in needed]
    return {**schema, "required": optional}


def _cut(description: str) -> str:
    return description if len(description) <= _LONGEST else f"{description[: _LONGEST - 1]}…"


def _escaped(tool: ToolDescription) -> ToolDescription:
    return replace(tool, description=escape(tool.description, quote=False))


def _with_built_in_below(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Built-in tools stand in the developer message, beside the functions."""
    system, *others = messages
    (content,) = system.content
    if not isinstance(content, SystemContent) or not content.tools:
        return messages
    first = others[0].content[0] if others and isinstance(others[0].content[0], DeveloperContent) else None
    below = first if isinstance(first, DeveloperContent) else DeveloperContent()
    declared = replace(below, tools={**content.tools, **(below.tools or {})})
    rest = others[1:] if first is not None else others
    return (
        replace(system, content=(replace(content, tools=None),)),
        Message(author=Role.DEVELOPER, content=declared),
        *rest,
    )


def _with_brief_built_in(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Built-in tools stand there without what is said of them."""

    def part(one: Content) -> Content:
        if not isinstance(one, SystemContent) or not one.tools:
            return one
        return replace(one, tools={name: replace(space, description=None) for name, space in one.tools.items()})

    return tuple(replace(message, content=tuple(map(part, message.content))) for message in messages)


def _flat(schema: JsonObject) -> JsonObject:
    if not isinstance(schema.get("properties"), dict):
        return schema
    bare: JsonObject = {
        name: {"type": "object"} if members(members(member).get("properties")) else member
        for name, member in members(schema["properties"]).items()
    }
    return {**schema, "properties": bare}


DEFECTS = (
    Defect(
        id="tool-descriptions-lost",
        catalogue=(),
        summary="Functions are declared without their descriptions.",
        change=_each_tool(lambda tool: replace(tool, description="")),
    ),
    Defect(
        id="tool-descriptions-cut",
        catalogue=(),
        summary="Of a long description of a function only the beginning reaches the model.",
        change=_each_tool(lambda tool: replace(tool, description=_cut(tool.description))),
    ),
    Defect(
        id="tool-descriptions-escaped",
        catalogue=(),
        summary="Descriptions of functions are escaped as for HTML: `<`, `>` and `&` become `&lt;`, `&gt;` and `&amp;`.",
        change=_each_tool(_escaped),
    ),
    Defect(
        id="tools-sorted",
        catalogue=(),
        summary="The functions are declared in the order of their names, not in that of the request.",
        change=_tools(lambda tools: tuple(sorted(tools, key=lambda tool: tool.name))),
    ),
    Defect(
        id="built-in-tools-below",
        catalogue=(),
        summary="Built-in tools are declared in the developer message.",
        change=OnConversation(_with_built_in_below),
    ),
    Defect(
        id="built-in-tools-undescribed",
        catalogue=(),
        summary="Built-in tools are declared without what is said of them.",
        change=OnConversation(_with_brief_built_in),
    ),
    Defect(
        id="enum-values-lost",
        catalogue=(),
        summary="A parameter with a list of allowed values is declared as a plain string.",
        change=_each_schema(_without("enum")),
    ),
    Defect(
        id="required-inverted",
        catalogue=(),
        summary="Required parameters are declared as optional, and optional ones as required.",
        change=_each_schema(_inverted),
    ),
    Defect(
        id="nested-object-flattened",
        catalogue=(),
        summary="A parameter that is an object is declared without its members.",
        change=_each_schema(_flat),
    ),
    Defect(
        id="later-tools-lost",
        catalogue=(),
        summary="Only the first of several functions is declared.",
        change=_tools(lambda tools: tools[:1]),
    ),
    Defect(
        id="defaults-lost",
        catalogue=(),
        summary="Parameters are declared without their defaults.",
        change=_each_schema(_without("default")),
    ),
)
