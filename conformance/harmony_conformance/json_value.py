"""JSON values, parsed at the border and walked without surprises.

What a server sends may have any shape. `at` walks a path and answers None where the path ends early; `text`, `number`, `items` and `members`
narrow a value to one type, and answer an empty value where it has another. A check that cares *that* the type is wrong asks `isinstance` itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"

DEEPEST = 256
"""Levels of a document that is read; where to stop RFC 8259 leaves to the reader. Every version of Python can walk so many. What it reads by itself are a
thousand (3.11) to ten thousand (3.13), and what is read and then cannot be walked would be an error of ours."""

ENVELOPED = DEEPEST + 16
"""Levels of a line of a log, in which a document of so many stands."""


# what can be the beginning of a number, a name or an escape, read alone
_PIECE = re.compile(r"-?[\d.eE+-]*|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?|\\?(?:u[\da-fA-F]{0,4})?")


class InvalidJsonError(ValueError):
    """A text that is no JSON document; says where (line, column) and what stands there.

    `may_go_on`: nothing in it is wrong, it may only have been cut. Where that is in doubt it is said to be so.
    """

    def __init__(self, problem: str, document: str, position: int) -> None:
        rest = document[position:]
        self.may_go_on = problem.startswith("Unterminated string") or _PIECE.fullmatch(rest.strip()) is not None
        shown = rest[:40]
        super().__init__(
            f"{problem} at character {position}: {shown!r}" if shown else f"{problem} at the end of the text"
        )
        self.position = position


def loads(document: str | bytes, *, deepest: int = DEEPEST) -> Json:
    """The value of a JSON document (RFC 8259: no NaN, no Infinity).

    Raises:
        NotJson: the text is no JSON, or has more levels than `deepest`.
    """
    if isinstance(document, bytes):
        document = document.decode("utf-8", "replace")
    try:
        value: Json
        value, end = _DECODER.raw_decode(document)
        if end == len(document) and (end < 2 * deepest or not _is_too_deep(document, value, deepest)):
            return value
    except (ValueError, RecursionError):
        pass  # blanks around it, or no JSON: told by the longer way
    return _parsed(document, _DECODER, deepest)


def _parsed(document: str, decoder: json.JSONDecoder, deepest: int) -> Json:
    """The value of a document."""
    if document.startswith("\ufeff"):
        raise InvalidJsonError("Unexpected UTF-8 BOM (decode using utf-8-sig)", document, 0)
    try:
        value: Json = decoder.decode(document)
    except json.JSONDecodeError as problem:
        raise InvalidJsonError(problem.msg.removesuffix(" at").rstrip(": "), problem.doc, problem.pos) from None
    except RecursionError:
        raise InvalidJsonError("nested too deeply", document, 0) from None
    except ValueError as problem:
        raise InvalidJsonError(str(problem), document, 0) from None
    if _is_too_deep(document, value, deepest):
        raise InvalidJsonError("nested too deeply", document, 0)
    return value


def _is_too_deep(document: str, value: Json, deepest: int) -> bool:
    """Whether a value has more levels. What it was read from tells that of nearly all: so many levels begin with as many brackets."""
    if document.count("[") + document.count("{") <= deepest:
        return False
    level = [value] if isinstance(value, list | dict) else []
    for _ in range(deepest):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, list | dict)
        ]
    return bool(level)


def _refuse_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


# made once: `json.loads` and `json.dumps` make one for every text, where there is an option
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def dumps(value: Json) -> str:
    """Compact JSON with non-ASCII characters as they are, members in the order given."""
    return _ENCODER.encode(value)


def canonical(value: Json) -> str:
    """JSON that is equal for equal values: sorted members, no blanks."""
    return _CANONICAL.encode(value)


def equal_json(one: str, other: str) -> bool:
    """Whether two texts are JSON of the same value.

    JSON has one kind of number: 1 and 1.0 are the same value, and so are 1e2 and 100. They are compared to the last digit: 0.1 and
    0.10000000000000000001 differ, although one float stands for both.
    """
    try:
        return _same(_parsed(one, _EXACT, DEEPEST), _parsed(other, _EXACT, DEEPEST))
    except InvalidJsonError:
        return False


def spells_fractions(written: str, shown: str) -> bool:
    """Whether one of two texts that are equal as JSON spells a whole number of the other with a fraction or an exponent: 1.0 where 1 was written.

    The value is the same, and a client that reads whole numbers into whole numbers refuses it.
    """
    return _wholes(written) > _wholes(shown)


def _wholes(document: str) -> int:
    """How many numbers are spelled as whole ones; of a key that stands there twice, as parsers read it, the last."""
    try:
        value: Json = json.loads(document)
        return _whole_numbers(value)
    except (ValueError, RecursionError):
        return 0


def _whole_numbers(value: Json) -> int:
    match value:
        case dict():
            return sum(map(_whole_numbers, value.values()))
        case list():
            return sum(map(_whole_numbers, value))
        case _:
            return int(isinstance(value, int) and not isinstance(value, bool))


def _exact(spelled: str) -> float | Decimal:
    try:
        return Decimal(spelled)
    except InvalidOperation:  # an exponent beyond all measure
        return float(spelled)


_EXACT = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_exact)
"""A number keeps the spelling of its fraction or exponent."""


def _same(one: Json, other: Json) -> bool:
    match one, other:
        case (dict(), dict()):
            return one.keys() == other.keys() and all(_same(value, other[name]) for name, value in one.items())
        case (list(), list()):
            return len(one) == len(other) and all(map(_same, one, other))
        case _:
            is_truth = isinstance(one, bool), isinstance(other, bool)
            return one == other and is_truth[0] is is_truth[1]


def object_in(document: str) -> JsonObject | None:
    """The object that a text is as JSON, None where it is none; a blank text stands for one without members."""
    try:
        value = loads(document if document.strip() else "{}")
    except InvalidJsonError:
        return None
    return value if isinstance(value, dict) else None


def at(value: Json, *path: str | int) -> Json:
    """The value at `path` (member names and indexes), None where there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)  # type: ignore[arg-type] # an index is no member's name, and finds none
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text(value: Json) -> str:
    """The string, or an empty one."""
    return value if isinstance(value, str) else ""


def number(value: Json) -> int | None:
    """The whole number, or None (true and false are no numbers)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def whole_numbers(values: list[Json]) -> tuple[int, ...] | None:
    """The values as whole numbers, None where one of them is none; of thousands at once."""
    return tuple(value for value in values if isinstance(value, int)) if set(map(type, values)) <= {int} else None


def items(value: Json) -> list[Json]:
    """The elements of an array, or none."""
    return value if isinstance(value, list) else []


def members(value: Json) -> JsonObject:
    """The members of an object, or none."""
    return value if isinstance(value, dict) else {}


def strings(value: Json) -> Iterator[str]:
    """Every text in a value, names of members left out, in order."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from strings(item)
        case dict():
            for member in value.values():
                yield from strings(member)
        case _:
            return


def member_names(value: Json) -> Iterator[str]:
    """Yield the names of all members in a value, at any depth, in order."""
    match value:
        case list():
            for item in value:
                yield from member_names(item)
        case dict():
            for name, member in value.items():
                yield name
                yield from member_names(member)
        case _:
            return


def pointer(*path: str | int) -> str:
    """A JSON pointer (RFC 6901) from member names and indexes."""
    return "".join([f"/{step}" if isinstance(step, int) else "/" + _escaped(step) for step in path])


def _escaped(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def resolve(value: Json, where: str) -> Json:
    """The value a JSON pointer names.

    Raises:
        LookupError: nothing stands there; says at which step the path ends.
    """
    if where in ("", "/"):
        return value
    for raw in where.removeprefix("/").split("/"):
        step = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            raise LookupError(f"nothing at {where!r}: no {step!r} there")
    return value


def objects_in(content: str) -> Iterator[Json]:
    """Every JSON object that a text holds, of at most `DEEPEST` levels."""
    decoder = json.JSONDecoder()
    for place, character in enumerate(content):
        if character == "{":
            try:
                value: Json
                value, end = decoder.raw_decode(content, place)
            except (json.JSONDecodeError, RecursionError):
                continue
            if not _is_too_deep(content[place:end], value, DEEPEST):
                yield value
