"""JSON schema as the TypeScript of a tool definition, exactly as openai-harmony 0.0.8 writes it (encoding.rs:407-753).

The library's quirks are reproduced:

- `anyOf`, `allOf`, `$ref` and `const` become `any`; an array of a union has no parentheses.
- Strings in enums and defaults are not escaped.
- Only the first line of a property's description is commented.
- The letters "null" anywhere in the type suppress ` | null`.
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from harmony_ref.errors import MessageError
from harmony_ref.json_value import Json
from harmony_ref.messages.json_numbers import json_text

_Schema: TypeAlias = Mapping[str, Json]

_SCALARS = {"string": "string", "number": "number", "integer": "number", "boolean": "boolean"}
_VARIANT_INDENT = "   "
_PROPERTY_INDENT = "    "


def json_schema_to_typescript(schema: Json, indent: str = "") -> str:
    """Return the type between `(_: ` and `) => any;`; `indent` is the prefix of each line of properties.

    Any value but an object means `any`.

    Raises:
        MessageError: a default is a number that JSON cannot express, or the nesting exceeds Python's recursion limit.
    """
    try:
        return _type(schema, indent)
    except RecursionError:
        raise MessageError(subject="message", problem="recursion limit exceeded") from None


def _type(schema: Json, indent: str) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    variants = schema.get("oneOf")
    if isinstance(variants, list | tuple):
        return "".join(f"\n{indent} | {_union_member(variant, indent)}" for variant in variants)
    kind = schema.get("type")
    if isinstance(kind, list | tuple):
        names = _strings(kind)
        return " | ".join("number" if name == "integer" else name for name in names) if names else "any"
    if not isinstance(kind, str):
        return "any"
    match kind:
        case "object":
            return _object(schema, indent)
        case "string" if choices := _strings(schema.get("enum")):
            return " | ".join(f'"{choice}"' for choice in choices)
        case "array":
            return f"{_type(schema['items'], indent)}[]" if "items" in schema else "Array<any>"
        case _:
            return _SCALARS.get(kind, "any")


def _object(schema: _Schema, indent: str) -> str:
    description = schema.get("description")
    head = f"{indent}// {description}\n" if isinstance(description, str) else ""
    properties = schema.get("properties")
    required = frozenset(_strings(schema.get("required")))
    members = properties.items() if isinstance(properties, Mapping) else ()
    body = "".join(_property(name, value, indent, "" if name in required else "?") for name, value in members)
    return f"{head}{{\n{body}{indent}}}"


def _property(name: str, value: Json, indent: str, mark: str) -> str:
    schema: _Schema = value if isinstance(value, Mapping) else {}
    variants = schema.get("oneOf")
    head = "".join(f"{indent}{line}\n" for line in _comments(schema))
    if isinstance(variants, list | tuple):
        return head + "".join(_union_lines(schema, variants, indent, mark, name))
    kind = _add_null(_type(value, indent + _PROPERTY_INDENT), schema)
    default = f" // default: {_default(schema)}" if "default" in schema and "oneOf" not in schema else ""
    return f"{head}{indent}{name}{mark}: {kind},{default}\n"


def _comments(schema: _Schema) -> Iterator[str]:
    title = schema.get("title")
    if isinstance(title, str):
        yield f"// {title}"
        yield "//"
    description = schema.get("description")
    if isinstance(description, str) and "oneOf" not in schema:
        yield f"// {description}"
    examples = schema.get("examples")
    if isinstance(examples, list | tuple) and examples:
        yield "// Examples:"
        for example in _strings(examples):
            yield f'// - "{example}"'


def _union_lines(
    schema: _Schema, variants: list[Json] | tuple[Json, ...], indent: str, mark: str, name: str
) -> Iterator[str]:
    description = schema.get("description")
    first = variants[0] if variants else None
    is_described = isinstance(description, str) and (
        not isinstance(first, Mapping) or description != first.get("description")
    )
    if is_described:
        yield f"{indent}// {description}\n"
    if "default" in schema:
        yield f"{indent}// default: {_default(schema)}\n"
    yield f"{indent}{name}{mark}:\n"
    for index, variant in enumerate(variants):
        member: _Schema = variant if isinstance(variant, Mapping) else {}
        kind = _add_null(_type(variant, indent + _VARIANT_INDENT), member)
        own = member.get("description")
        is_repeated = own == description or (index == 0 and is_described)
        notes = [own] if isinstance(own, str) and not is_repeated else []
        if "default" in member:
            notes.append(f"default: {_default(member)}")
        yield f"{indent} | {_annotate(kind, notes)}\n"
    yield f"{indent},\n"


def _union_member(variant: Json, indent: str) -> str:
    member: _Schema = variant if isinstance(variant, Mapping) else {}
    kind = _add_null(_type(variant, indent + _VARIANT_INDENT), member)
    description = member.get("description")
    notes = [description] if isinstance(description, str) else []
    if "default" in member:
        default = member["default"]
        bare = isinstance(default, str) and not _has_enum(member)
        notes.append(f'default: "{default}"' if bare else f"default: {json_text(default)}")
    return _annotate(kind, notes)


def _annotate(kind: str, notes: list[str]) -> str:
    return f"{kind} // {' '.join(notes)}" if notes else kind


def _add_null(kind: str, schema: _Schema) -> str:
    return f"{kind} | null" if schema.get("nullable") is True and "null" not in kind else kind


def _default(schema: _Schema) -> str:
    default = schema["default"]
    if not isinstance(default, str):
        return json_text(default)
    return default if _has_enum(schema) else f'"{default}"'


def _has_enum(schema: _Schema) -> bool:
    choices = schema.get("enum")
    return isinstance(choices, list | tuple) and len(choices) > 0


def _strings(value: Json) -> list[str]:
    """Return the strings of a list, else an empty list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list | tuple) else []
