"""Tools that the client executes: their declaration for the model, and the conversion of their calls.

Harmony knows functions in namespaces, called with JSON. Every tool of the API is declared as such a function:

- `custom`: a function with one string, `input`. The API has the string alone. A format becomes a part of the description.
- `namespace`: a Harmony namespace of this name.
- `local_shell`, `shell`, `apply_patch`, `tool_search`: functions of these names, whose parameters are the members of the call item.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, dumps, items, loads, members, text
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.errors import unsupported, wrong_value
from harmony_conformance.reference_server.requests.fields import FUNCTIONS, Tool
from harmony_conformance.reference_server.responses.builtin_tools import NAMESPACES, built_in_type

CUSTOM: Final = "custom"
LOCAL_SHELL: Final = "local_shell"
SHELL: Final = "shell"
APPLY_PATCH: Final = "apply_patch"
TOOL_SEARCH: Final = "tool_search"

_STRINGS: JsonObject = {"type": "array", "items": {"type": "string"}}
_INPUT: JsonObject = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
_OPERATIONS: list[Json] = ["create_file", "update_file", "delete_file"]

_FIXED: Mapping[str, Tool] = {
    LOCAL_SHELL: Tool(
        kind=LOCAL_SHELL,
        name=LOCAL_SHELL,
        description="Runs a command on the computer of the user.",
        parameters={
            "type": "object",
            "properties": {
                "command": _STRINGS,
                "timeout_ms": {"type": "integer"},
                "working_directory": {"type": "string"},
            },
            "required": ["command"],
        },
    ),
    SHELL: Tool(
        kind=SHELL,
        name=SHELL,
        description="Runs commands in a shell.",
        parameters={
            "type": "object",
            "properties": {
                "commands": _STRINGS,
                "timeout_ms": {"type": "integer"},
                "max_output_length": {"type": "integer"},
            },
            "required": ["commands"],
        },
    ),
    APPLY_PATCH: Tool(
        kind=APPLY_PATCH,
        name=APPLY_PATCH,
        description="Creates, updates or deletes a file by a diff.",
        parameters={
            "type": "object",
            "properties": {
                "type": {"type": "string", "enum": _OPERATIONS},
                "path": {"type": "string"},
                "diff": {"type": "string"},
            },
            "required": ["type", "path"],
        },
    ),
}
"""The tools whose type alone describes them."""

_KNOWN = ("function", CUSTOM, "namespace", *_FIXED, TOOL_SEARCH, *NAMESPACES)


def read_tools(value: Json, where: str = "tools") -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Return the tools of the client, and the types of the built-in tools; raise an ApiError for any other tool."""
    if value is not None and not isinstance(value, list):
        raise wrong_value(where, "expected a list.")
    tools: list[Tool] = []
    built_in: list[str] = []
    for position, entry in enumerate(items(value)):
        place = f"{where}[{position}]"
        kind = members(entry).get("type")
        if not isinstance(kind, str):
            raise wrong_value(place, "expected an object with a 'type'.")
        if (known := built_in_type(kind)) is not None:
            built_in.append(known)
        else:
            tools += _tools(members(entry), kind, place)
    return tuple(tools), tuple(built_in)


def tools_of_items(entries: list[Json]) -> Iterator[Json]:
    """Yield the tools that the items of an input add: `additional_tools`, and those that a search found."""
    for entry in entries:
        if members(entry).get("type") in ("additional_tools", "tool_search_output"):
            yield from items(members(entry).get("tools"))


def _tools(entry: JsonObject, kind: str, where: str) -> Iterator[Tool]:
    match kind:
        case "function":
            yield fields.function_tool(entry, where)
        case "custom":
            yield _custom(entry, where)
        case "namespace":
            yield from _namespaced(entry, where)
        case "tool_search":
            yield _search(entry, where)
        case _ if kind in _FIXED:
            yield _FIXED[kind]
        case _:
            raise unsupported(f"{where}.type", f"expected one of {', '.join(_KNOWN)}, got {kind!r}.")


def _custom(entry: JsonObject, where: str) -> Tool:
    tool = fields.function_tool({**entry, "parameters": None}, where)
    form = entry.get("format")
    kind = members(form).get("type", "text")
    if (form is not None and not isinstance(form, dict)) or kind not in ("text", "grammar"):
        raise wrong_value(f"{where}.format.type", f"expected 'text' or 'grammar', got {kind!r}.")
    description = tool.description
    if kind == "grammar":
        syntax = members(form).get("syntax")
        if syntax not in ("lark", "regex"):
            raise wrong_value(f"{where}.format.syntax", f"expected 'lark' or 'regex', got {syntax!r}.")
        grammar = fields.string(members(form), "definition", f"{where}.format")
        description = f"{description}\nThe input follows this grammar ({syntax}):\n{grammar}".lstrip("\n")
    return replace(tool, kind=CUSTOM, description=description, parameters=_INPUT)


def _namespaced(entry: JsonObject, where: str) -> Iterator[Tool]:
    name, description = entry.get("name"), entry.get("description")
    if not isinstance(name, str) or not fields.TOOL_NAME.fullmatch(name):
        raise wrong_value(f"{where}.name", "expected 1 to 64 letters, digits, '_', '-' or '.'.")
    if name in {config.name for config in NAMESPACES.values()}:
        raise wrong_value(f"{where}.name", f"'{name}' is the namespace of a built-in tool.")
    if not items(entry.get("tools")):
        raise wrong_value(f"{where}.tools", "expected a list of functions and custom tools.")
    for index, child in enumerate(items(entry.get("tools"))):
        place = f"{where}.tools[{index}]"
        kind = members(child).get("type")
        if kind not in ("function", CUSTOM):
            raise wrong_value(f"{place}.type", f"expected 'function' or 'custom', got {kind!r}.")
        for tool in _tools(members(child), str(kind), place):
            about = None if name == FUNCTIONS else text(description) or None
            yield replace(tool, namespace=name, namespace_description=about)


def _search(entry: JsonObject, where: str) -> Tool:
    if entry.get("execution", "server") != "client":
        raise unsupported(f"{where}.execution", "this server searches no tools, expected 'client'.")
    parameters = entry.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise wrong_value(f"{where}.parameters", "expected a JSON schema object.")
    found = "Searches for further tools."
    return Tool(
        kind=TOOL_SEARCH, name=TOOL_SEARCH, description=text(entry.get("description")) or found, parameters=parameters
    )


def arguments_of(item: JsonObject) -> str:
    """Return the model's arguments from the item of a call."""
    match item.get("type"):
        case "custom_tool_call":
            return dumps({"input": item.get("input")})
        case "local_shell_call":
            action = members(item.get("action"))
            return dumps({name: value for name, value in action.items() if name != "type" and value not in (None, {})})
        case "shell_call":
            action = members(item.get("action"))
            return dumps({name: value for name, value in action.items() if value is not None})
        case "apply_patch_call":
            return dumps(item.get("operation"))
        case _:
            return dumps(item.get("arguments"))


def call_members(kind: str, arguments: str) -> JsonObject:
    """Return the members of a call item that have the model's arguments; malformed ones fill the main member as text."""
    try:
        value = loads(arguments)
    except InvalidJsonError:
        value = None
    given, whole = members(value), list[Json]([arguments])
    match kind:
        case "local_shell":
            command = given["command"] if isinstance(given.get("command"), list) else whole
            return {"action": {"type": "exec", "env": {}, **given, "command": command}}
        case "shell":
            commands = given["commands"] if isinstance(given.get("commands"), list) else whole
            return {"action": {"timeout_ms": None, "max_output_length": None, **given, "commands": commands}}
        case "apply_patch":
            is_whole = given.get("type") in _OPERATIONS and isinstance(given.get("path"), str)
            return {"operation": given if is_whole else {"type": "update_file", "path": "", "diff": arguments}}
        case _:
            return {"execution": "client", "arguments": arguments if value is None else value}
