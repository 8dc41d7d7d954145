"""Comparison of a function's JSON schema with its declaration in a prompt.

The form of a declaration is free; its content is checked as far as the official library declares it. For `anyOf`, `$ref` or no type
it writes `any`, and it omits formats and bounds. No other renderer has to do better.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString

from harmony_conformance.json_value import Json, dumps, items, members, pointer, text, value_at
from harmony_conformance.judge.check import Finding, mismatch, ruled, variant
from harmony_conformance.judge.rulings import ITEMS_OF_LISTS
from harmony_conformance.prompts.declarations_in_prompt import Declaration, has_line
from harmony_conformance.redactable_text import RedactableText, shorten

_PARAMETERS = ("parameters",)
_SCALARS: dict[str, tuple[LiteralString, ...]] = {
    "string": ("string",),
    "number": ("number", "integer"),
    "integer": ("number", "integer"),
    "boolean": ("boolean",),
}


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One property of a schema. `depth` is 0 for those of the function itself, `where` is the path in the function."""

    name: str
    schema: Json
    required: bool
    depth: int
    where: tuple[str | int, ...]


def parameters(function: Json) -> Iterator[Parameter]:
    """Yield all properties of a function's schema, with those of nested objects, items and alternatives.

    A schema that is not an object has none: the arguments are members of an object, and templates declare nothing else.
    """
    yield from _parameters(value_at(function, "parameters"), 0, _PARAMETERS)


def _parameters(schema: Json, depth: int, where: tuple[str | int, ...]) -> Iterator[Parameter]:
    required = items(value_at(schema, "required"))
    for name, member in members(value_at(schema, "properties")).items():
        here = (*where, "properties", name)
        yield Parameter(name=name, schema=member, required=name in required, depth=depth, where=here)
        yield from _parameters(member, depth + 1, here)
    if depth == 0:
        return
    if isinstance(value_at(schema, "items"), dict):
        yield from _parameters(value_at(schema, "items"), depth + 1, (*where, "items"))
    for number, alternative in enumerate(items(value_at(schema, "oneOf"))):
        yield from _parameters(alternative, depth + 1, (*where, "oneOf", number))


def _outermost(parameter: Parameter) -> str:
    """Return the name of the function's own parameter that a member of a nested object is in."""
    return str(parameter.where[2])


class Mark(StrEnum):
    """The mark of a parameter in a declaration."""

    REQUIRED = "required"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class DeclaredParameter:
    """A parameter in a declaration: its mark, and the beginning of its type."""

    mark: Mark
    type: str


def declared_parameters(name: str, declaration: Declaration) -> tuple[DeclaredParameter, ...]:
    """Return all members of this name in the type of a function."""
    matches = re.finditer(rf"(?<![\w.$-]){re.escape(name)}[\"']?(\?)?\s*:\s*([^\n,;]*)", declaration.type)
    return tuple(DeclaredParameter(Mark.OPTIONAL if match[1] else Mark.REQUIRED, match[2]) for match in matches)


def find_missing_descriptions(
    function: Json, shown: Declaration, library: Declaration, where: str
) -> Iterator[Finding]:
    """Yield findings for missing parameters, and for missing descriptions of the function and its own parameters."""
    descriptions = [(shown.comment, text(value_at(function, "description")), pointer("description"))]
    for parameter in parameters(function):
        if not shown.has_parameter(parameter.name) and library.has_parameter(parameter.name):
            message = RedactableText("the parameter {} of {} is not declared in the prompt", parameter.name, shown.name)
            if parameter.depth:
                template = "the member {} of the parameter {} of {} is not declared in the prompt"
                message = RedactableText(template, parameter.name, _outermost(parameter), shown.name)
            expected = RedactableText("{}: …", parameter.name)
            finding = mismatch(message, where + pointer(*parameter.where), expected, shorten(shown.type))
            yield ruled(finding, ITEMS_OF_LISTS) if "items" in parameter.where else finding
        if parameter.depth == 0:
            descriptions.append(
                (shown.type, text(value_at(parameter.schema, "description")), pointer(*parameter.where))
            )
    for place, description, below in descriptions:
        lines = [line.strip() for line in description.splitlines()]
        if not all(has_line(place, line) for line in lines if line in library.comment + library.type):
            message = RedactableText("a description of {} is not in the prompt", shown.name)
            yield mismatch(message, where + below, shorten(description), shorten(place.strip()) or "nothing")


def find_missing_types(function: Json, shown: Declaration, library: Declaration, where: str) -> Iterator[Finding]:
    """Yield findings for enum values, simple types and required marks that are missing in the declaration."""
    for parameter in parameters(function):
        place = where + pointer(*parameter.where)
        by_library, here = declared_parameters(parameter.name, library), declared_parameters(parameter.name, shown)
        if not by_library or not here:
            continue
        yield from _values(parameter, shown, library, place)
        yield from _type(parameter, by_library, here, place)
        yield from _mark(parameter, by_library, here, place)


def _values(parameter: Parameter, shown: Declaration, library: Declaration, place: str) -> Iterator[Finding]:
    holders = (parameter.schema, value_at(parameter.schema, "items"), *items(value_at(parameter.schema, "oneOf")))
    enum = (text(value) for holder in holders for value in items(value_at(holder, "enum")))
    values = [value for value in enum if _quotes(value, library.type)]
    lost = [value for value in values if not _quotes(value, shown.type)]
    if lost:
        message = RedactableText("values of the parameter {} of {} are not in the prompt", parameter.name, shown.name)
        if parameter.depth:
            template = "values of the member {} of the parameter {} of {} are not in the prompt"
            message = RedactableText(template, parameter.name, _outermost(parameter), shown.name)
        actual = shorten(" | ".join(member.type for member in declared_parameters(parameter.name, shown)))
        finding = mismatch(
            message, place + place_of_enum(parameter.schema, lost[0]), shorten(" | ".join(map(dumps, values))), actual
        )
        is_item = "items" in members(parameter.schema) or "items" in parameter.where
        yield ruled(finding, ITEMS_OF_LISTS) if is_item else finding


def place_of_enum(schema: Json, value: str) -> str:
    """Return the pointer, within the schema of a parameter, of the enumeration that has a value."""
    many = [("oneOf", number) for number in range(len(items(value_at(schema, "oneOf"))))]
    places: list[tuple[str | int, ...]] = [(), ("items",), *many]
    holder = next((one for one in places if value in items(value_at(schema, *one, "enum"))), ())
    return pointer(*holder, "enum")


def _quotes(value: str, declared: str) -> bool:
    return any(f"{quote}{spelled}{quote}" in declared for quote in "\"'`" for spelled in (value, dumps(value)[1:-1]))


def _type(
    parameter: Parameter, by_library: Iterable[DeclaredParameter], here: Iterable[DeclaredParameter], place: str
) -> Iterator[Finding]:
    words = (
        _SCALARS.get(text(value_at(parameter.schema, "type")), ()) if "oneOf" not in members(parameter.schema) else ()
    )
    if words and _has_word(words, by_library) and not _has_word(words, here):
        message = RedactableText("the parameter {} has another type in the prompt", parameter.name)
        if parameter.depth:
            template = "the member {} of the parameter {} has another type in the prompt"
            message = RedactableText(template, parameter.name, _outermost(parameter))
        yield mismatch(message, place, words[0], shorten(" | ".join(member.type for member in here)))


def _has_word(words: Iterable[str], declared: Iterable[DeclaredParameter]) -> bool:
    return any(re.search(rf"\b{word}\b", member.type) for member in declared for word in words)


def _mark(
    parameter: Parameter, by_library: Iterable[DeclaredParameter], here: Iterable[DeclaredParameter], place: str
) -> Iterator[Finding]:
    expected = Mark.REQUIRED if parameter.required else Mark.OPTIONAL
    if expected not in {member.mark for member in by_library} or expected in {member.mark for member in here}:
        return
    if parameter.required:
        message = RedactableText("the required parameter {} is declared as optional", parameter.name)
        actual = RedactableText("{}?: …", parameter.name)
        yield mismatch(message, place, RedactableText("{}: …", parameter.name), actual)
    else:
        yield variant(RedactableText("the optional parameter {} is declared as required", parameter.name), where=place)


def find_missing_defaults(function: Json, shown: Declaration, library: Declaration, where: str) -> Iterator[Finding]:
    """Yield findings for missing defaults. In nested objects they are a variant: the Hugging Face template omits them."""
    for parameter in parameters(function):
        if "default" not in members(parameter.schema) or not library.has_parameter(parameter.name):
            continue
        default = value_at(parameter.schema, "default")
        if isinstance(default, dict | list | float) or not _declares_default(default, library.type):
            continue
        if _declares_default(default, shown.type):
            continue
        place = where + pointer(*parameter.where, "default")
        if parameter.depth:
            message = RedactableText("the default of {}, within an object, is not in the prompt", parameter.name)
            yield variant(message, where=place)
        else:
            yield Finding(
                message=RedactableText(
                    "the default of the parameter {} of {} is not in the prompt", parameter.name, shown.name
                ),
                location=place,
                expected=RedactableText("default: {}", shorten(dumps(default))),
                actual=shorten(" | ".join(member.type for member in declared_parameters(parameter.name, shown)))
                or "nothing",
            )


def _declares_default(default: Json, declared: str) -> bool:
    spelled = {default, dumps(default)[1:-1]} if isinstance(default, str) else {dumps(default)}
    return any(re.search(rf"default\b[:=\s]*[\"'`]?{re.escape(word)}", declared, re.IGNORECASE) for word in spelled)
