r"""Write tools as the Hugging Face chat template of gpt-oss does (openai/gpt-oss-120b, `chat_template.jinja`).

Differences from the library's TypeScript:

- The comment of a default ends in a comma and has Python's JSON.
- A nested object has each property after a newline and 16 blanks, without comments.
- Titles, examples and descriptions of nested properties do not appear.
- Only arrays and plain strings may be `| null`. Types in an array are not translated.
- A function without properties takes no argument. Only the first line of a description is commented.

The template raises an error for a description that is not a string, and for properties that are not an object. Here
such a value is written as JSON, or counts as absent.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

from harmony_ref.json_value import Json
from harmony_ref.messages.declarations import ToolDescription
from harmony_ref.styles.json_form import python_json

_Schema: TypeAlias = Mapping[str, Json]

_SCALARS: Final = {"number": "number", "integer": "number", "boolean": "boolean"}
_ITEMS: Final = {**_SCALARS, "string": "string"}
_NESTED: Final = "\n" + 16 * " "
_BEFORE_DEFAULT: Final = 20 * " "
_LONGEST_ITEM: Final = 50


def function_text(tool: ToolDescription) -> str:
    """Return the lines of one function, without the blank line after it."""
    return f"// {tool.description}\ntype {tool.name} = {signature(tool.parameters)} => any;"


def signature(parameters: Json) -> str:
    """Return the parameters, the text before ` => any`: `()`, or the properties in `(_: {…})`."""
    schema = _mapping(parameters)
    properties = _mapping(schema.get("properties"))
    if not properties:
        return "()"
    required = schema.get("required")
    return "(_: {\n" + "".join(_property(name, value, required) for name, value in properties.items()) + "})"


def type_text(value: Json) -> str:
    """Return the type of one property."""
    schema = _mapping(value)
    kind = schema.get("type")
    if kind == "array":
        return _array(schema)
    if isinstance(kind, list | tuple) and kind:
        return " | ".join(map(_plain, kind))
    if variants := schema.get("oneOf"):
        # A mapping is iterated by its keys, as Jinja does.
        members = list(variants) if isinstance(variants, str | list | tuple | Mapping) else []
        return " | \n".join(map(_union_member, members))
    if kind == "string":
        return _string(schema)
    if kind == "object":
        return _object(schema)
    return _SCALARS.get(kind, "any") if isinstance(kind, str) else "any"


def _property(name: str, value: Json, required: Json) -> str:
    schema = _mapping(value)
    comment = f"// {_plain(schema['description'])}\n" if schema.get("description") else ""
    return f"{comment}{name}{_mark(name, required)}: {type_text(value)}{_default(schema)},\n"


def _default(schema: _Schema) -> str:
    if "default" not in schema:
        return ""
    if schema.get("enum"):
        return f", // default: {_plain(schema['default'])}"
    if schema.get("oneOf"):
        return f"// default: {_plain(schema['default'])}"
    return f", // default: {python_json(schema['default'])}"


def _array(schema: _Schema) -> str:
    null = " | null" if schema.get("nullable") else ""
    items = schema.get("items")
    if not items:
        return f"any[]{null}"
    kind = _mapping(items).get("type")
    inner = (_ITEMS.get(kind) if isinstance(kind, str) else None) or type_text(items)
    is_too_long = inner == "object | object" or len(inner) > _LONGEST_ITEM
    return f"{'any' if is_too_long else inner}[]{null}"


def _string(schema: _Schema) -> str:
    choices = schema.get("enum")
    if not choices:
        return "string | null" if schema.get("nullable") else "string"
    if not isinstance(choices, str | list | tuple | Mapping):
        return "string"
    return '"' + '" | "'.join(map(_plain, choices)) + '"'


def _object(schema: _Schema) -> str:
    properties = _mapping(schema.get("properties"))
    if not properties:
        return "object"
    required = schema.get("required")
    members = [f"{name}{_mark(name, required)}: {_NESTED}{type_text(value)}" for name, value in properties.items()]
    return "{\n" + ", ".join(members) + "}"


def _union_member(variant: Json) -> str:
    schema = _mapping(variant)
    comment = f"// {_plain(schema['description'])}" if schema.get("description") else ""
    default = f"{_BEFORE_DEFAULT}// default: {python_json(schema['default'])}" if "default" in schema else ""
    return f"{type_text(variant)}{comment}{default}"


def _mark(name: str, required: Json) -> str:
    return "" if isinstance(required, str | list | tuple | Mapping) and name in required else "?"


def _plain(value: Json) -> str:
    return value if isinstance(value, str) else python_json(value)


def _mapping(value: Json) -> _Schema:
    return value if isinstance(value, Mapping) else {}
