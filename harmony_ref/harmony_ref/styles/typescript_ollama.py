"""Write tools as Ollama's Go template for gpt-oss does.

Source: ollama/ollama, `gptossDefaultTemplate` in `x/create/client/create.go`, with `toTypeScriptType` of
`template/template.go` and `ToolProperty.ToTypeScriptType` of `api/types.go`. The properties are a Go map there, so
they are sorted. Each takes one line, indented by two blanks, always without `?`. Only `type` or `anyOf` of a schema is
translated: enums, defaults, items and nested properties do not appear.
"""

from collections.abc import Mapping
from typing import Final

from harmony_ref.json_value import Json
from harmony_ref.messages.declarations import ToolDescription

_TYPES: Final = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "array": "any[]",
    "object": "Record<string, any>",
    "null": "null",
}


def function_text(tool: ToolDescription) -> str:
    """Return the lines of one function, without the blank line after it."""
    comment = f"// {tool.description}\n" if tool.description else ""
    properties = _mapping(_mapping(tool.parameters).get("properties"))
    if not properties:
        return f"{comment}type {tool.name} = () => any;"
    lines = "".join(_property(name, properties[name]) for name in sorted(properties, key=str.encode))
    return f"{comment}type {tool.name} = (_: {{\n{lines}}}) => any;"


def type_text(value: Json) -> str:
    """Return the type of one property."""
    schema = _mapping(value)
    variants = schema.get("anyOf")
    if isinstance(variants, list | tuple) and variants:
        return " | ".join(map(type_text, variants))
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list | tuple) else [kind]
    return " | ".join(_TYPES.get(name, "any") if isinstance(name, str) else "any" for name in kinds) or "any"


def _property(name: str, value: Json) -> str:
    description = _mapping(value).get("description")
    comment = f"  // {description}\n" if isinstance(description, str) and description else ""
    return f"{comment}  {name}: {type_text(value)},\n"


def _mapping(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
