"""Other readings of a JSON document: what clients read that take another one of two members, or that ignore the case of names.

Python takes the last of two members of one name. Other parsers take the first one. Go, and .NET on request, ignore the case of names,
and some ignore underscores. Each value of such a member is in at least one of the readings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from harmony_conformance.json_value import DuplicateMemberError, Json, loads

MOST_READINGS = 16
"""The most values of one member that are read. Each takes a copy of the document."""

_NAMES = (
    *(
        "choices",
        "message",
        "messages",
        "delta",
        "content",
        "refusal",
        "reasoning",
        "reasoning_content",
        "reasoning_details",
    ),
    *(
        "reasoning_text",
        "thinking",
        "text",
        "response",
        "output",
        "output_text",
        "item",
        "part",
        "summary",
        "annotations",
    ),
    *("tool_calls", "function", "function_call", "name", "index", "type", "generated_text", "token", "details"),
    *("best_of_sequences", "error", "detail"),
)
_BY_FOLDED_NAME = {name.replace("_", ""): name for name in _NAMES}
_SQUASHED = frozenset(_BY_FOLDED_NAME) - frozenset(_NAMES)
_OPAQUE = frozenset({"arguments", "input", "instructions", "logprobs", "metadata", "tools", "usage"})
"""Members with the data of the caller, of tools, or with numbers: their names are not those of the API."""


@dataclass(frozen=True, kw_only=True)
class JsonReadings:
    """The value of a document as the checks read it, its other readings, and if it has two members of one name."""

    value: Json
    others: tuple[Json, ...] = ()
    has_duplicates: bool = False


class TooManyReadingsError(Exception):
    """A member has more than `MOST_READINGS` values."""


@dataclass(frozen=True)
class _Members:
    """An object with all its members, in their order."""

    pairs: list[tuple[str, Json | _Members]]


def read_json(document: str | bytes) -> JsonReadings:
    """Parse a JSON document, and return it with its other readings.

    Raises:
        InvalidJsonError: The text is not JSON, or nested too deeply.
        TooManyReadingsError: A member has too many values.
    """
    try:
        value, has_duplicates = loads(document, allows_duplicates=False), False
    except DuplicateMemberError:
        value, has_duplicates = loads(document), True
    if not has_duplicates and not _has_variant(value):
        return JsonReadings(value=value)
    source = document.decode("utf-8", "replace") if isinstance(document, bytes) else document
    others = [one for one in _readings(_DECODER.decode(source)) if one != value]
    distinct = tuple(one for place, one in enumerate(others) if one not in others[:place])
    return JsonReadings(value=value, others=distinct, has_duplicates=has_duplicates)


def _has_variant(value: Json) -> bool:
    """Return True if a member of the API is spelled in another way."""
    match value:
        case dict():
            names = "".join(value)
            is_plain = names.isascii() and names.islower() and "-" not in names and _SQUASHED.isdisjoint(value)
            if not is_plain and any(_usual_name(name) != name for name in value):
                return True
            return any(
                _has_variant(one) for name, one in value.items() if isinstance(one, dict | list) and name not in _OPAQUE
            )
        case list():
            return any(_has_variant(one) for one in value if isinstance(one, dict | list))
        case _:
            return False


def _usual_name(name: str) -> str:
    return _BY_FOLDED_NAME.get(name.casefold().replace("_", "").replace("-", ""), name)


def _readings(value: Json | _Members, *, is_opaque: bool = False) -> list[Json]:
    """Return the readings of a value: the i-th takes the i-th value of each member, or its last one."""
    columns: list[list[Json]]
    if isinstance(value, _Members):
        members: dict[str, list[Json]] = {}
        for name, one in value.pairs:
            key = name if is_opaque else _usual_name(name)
            members.setdefault(key, []).extend(_readings(one, is_opaque=is_opaque or key in _OPAQUE))
        columns = [*members.values()]
        return [dict(zip(members, row, strict=True)) for row in _rows(columns)]
    if isinstance(value, list):
        return [*_rows([_readings(one, is_opaque=is_opaque) for one in value])]
    return [value]


def _rows(columns: list[list[Json]]) -> list[list[Json]]:
    count = max(map(len, columns), default=1)
    if count > MOST_READINGS:
        raise TooManyReadingsError
    return [[column[min(row, len(column) - 1)] for column in columns] for row in range(count)]


_DECODER = json.JSONDecoder(object_pairs_hook=_Members)
