"""Conversion of JSON values to the shapes of the wire form, with the error texts of the library's reader (serde).

Each function takes a JSON value, returns it under a narrower type, and raises ShapeError if it has another shape.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import TypeVar

from harmony_ref.json_value import Json
from harmony_ref.messages.json_numbers import json_text

_Variant = TypeVar("_Variant", bound=StrEnum)


class ShapeError(ValueError):
    """A JSON value of an unexpected shape; `problem` has the actual and the expected shape in serde's words."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def struct(data: Json, name: str) -> Mapping[str, Json]:
    """Return the object of the named structure."""
    return _object(data, f"struct {name}")


def tagged_content(data: Json) -> Mapping[str, Json]:
    """Return the object of one variant of `Content`."""
    return _object(data, "internally tagged enum Content")


def mapping(data: Json) -> Mapping[str, Json]:
    """Return any object."""
    return _object(data, "a map")


def sequence(data: Json) -> Sequence[Json]:
    """Return an array."""
    if isinstance(data, list | tuple):
        return data
    raise ShapeError(f"invalid type: {describe(data)}, expected a sequence")


def string(data: Json) -> str:
    """Return a string."""
    if isinstance(data, str):
        return data
    raise ShapeError(f"invalid type: {describe(data)}, expected a string")


def optional_string(data: Json) -> str | None:
    """Return a string or None."""
    return None if data is None else string(data)


def boolean(data: Json) -> bool:
    """Return a boolean."""
    if isinstance(data, bool):
        return data
    raise ShapeError(f"invalid type: {describe(data)}, expected a boolean")


def required(fields: Mapping[str, Json], name: str) -> Json:
    """Return the value of a mandatory member."""
    if name in fields:
        return fields[name]
    raise ShapeError(f"missing field `{name}`")


def one_of(names: Iterable[str], data: str) -> str:
    """Return one of the named strings."""
    allowed = list(names)
    if data in allowed:
        return data
    raise ShapeError(f"unknown variant `{data}`, expected one of {', '.join(f'`{name}`' for name in allowed)}")


def tag(data: Json, names: Iterable[str]) -> str:
    """Return the `type` of a structure with several variants."""
    if isinstance(data, str):
        return one_of(names, data)
    raise ShapeError(f"invalid type: {describe(data)}, expected variant identifier")


def variant(kind: type[_Variant], data: Json) -> _Variant:
    """Return the member of an enumeration; serde also accepts the value as the name of an empty member."""
    names = [member.value for member in kind]
    if isinstance(data, str):
        return kind(one_of(names, data))
    if not isinstance(data, Mapping):
        raise ShapeError(f"invalid type: {describe(data)}, expected string or map")
    if len(data) != 1:
        raise ShapeError("invalid value: map, expected map with a single key")
    ((name, value),) = data.items()
    member = kind(one_of(names, name))
    if value is None or (isinstance(value, Mapping) and not value):
        return member
    raise ShapeError(f"invalid type: {describe(value)}, expected unit")


def without_none(fields: Mapping[str, Json]) -> dict[str, Json]:
    """Return the members other than None, in their order."""
    return {name: value for name, value in fields.items() if value is not None}


def describe(data: Json) -> str:
    """Return the value as serde names it in an error."""
    if data is None:
        return "null"
    if isinstance(data, bool):
        return f"boolean `{str(data).lower()}`"
    if isinstance(data, int | float):
        text = json_text(data)
        return f"{'integer' if text.lstrip('-').isdigit() else 'floating point'} `{text}`"
    if isinstance(data, str):
        from harmony_ref.rust_debug import debug_quote  # noqa: PLC0415 - tables that only errors need

        return f"string {debug_quote(data)}"
    return "map" if isinstance(data, Mapping) else "sequence"


def _object(data: Json, expected: str) -> Mapping[str, Json]:
    if isinstance(data, Mapping):
        return data
    raise ShapeError(f"invalid type: {describe(data)}, expected {expected}")
