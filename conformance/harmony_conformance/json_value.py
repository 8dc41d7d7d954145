"""Parse JSON strictly and read values of unknown shape without exceptions.

`value_at` follows a path and returns None if the path does not exist. `text`, `integer`, `items` and `members` narrow a value to one type and
return an empty value (for `integer` None) for any other type. A check that must report a wrong type uses `isinstance`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Self, TypeAlias

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"
JsonObject: TypeAlias = "dict[str, Json]"

MAX_DEPTH = 256
"""The most levels of a document. RFC 8259 leaves the limit to parsers.

Python parses a thousand (3.11) to ten thousand (3.13) levels, but recursive functions of this project could not walk them."""

MAX_LINE_DEPTH = MAX_DEPTH + 16
"""The most levels of a log line, which contains such a document."""


# the beginning of a number, a literal or an escape
_PIECE = re.compile(r"-?[\d.eE+-]*|t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?|\\?(?:u[\da-fA-F]{0,4})?")


class InvalidJsonError(ValueError):
    """A text that is not a JSON document. The message has the reason, the position and the text there.

    Attributes:
        position: The index of the first wrong character.
        may_be_truncated: True if the text may be the beginning of a valid document, so that it may only be truncated.
    """

    def __init__(self, problem: str, document: str, position: int) -> None:
        rest = document[position:]
        self.may_be_truncated = problem.startswith("Unterminated string") or _PIECE.fullmatch(rest.strip()) is not None
        shown = rest[:40]
        super().__init__(
            f"{problem} at character {position}: {shown!r}" if shown else f"{problem} at the end of the text"
        )
        self.position = position


class DuplicateMemberError(Exception):
    """An object has two members of one name. Parsers differ in which one they take; that of Python takes the last one."""


def loads(document: str | bytes, *, max_depth: int = MAX_DEPTH, allows_duplicates: bool = True) -> Json:
    """Parse a JSON document (RFC 8259: no NaN, no Infinity). Invalid UTF-8 in bytes is replaced.

    Raises:
        DuplicateMemberError: An object has two members of one name, and `allows_duplicates` is false.
        InvalidJsonError: The text is not JSON, or has more than `max_depth` levels.
    """
    return _loads(document, _DECODER if allows_duplicates else _UNIQUE_DECODER, max_depth)


def loads_as_written(document: str | bytes) -> Json:
    """Parse a JSON document as `loads` does. Its fractions and exponents keep their spelling: `dumps_as_written` writes 1e-7, and not 1e-07."""
    return _loads(document, _SPELLING_DECODER, MAX_DEPTH)


def _loads(document: str | bytes, decoder: json.JSONDecoder, max_depth: int) -> Json:
    if isinstance(document, bytes):
        document = document.decode("utf-8", "replace")
    try:
        value: Json
        value, end = decoder.raw_decode(document)
        if end == len(document) and (end < 2 * max_depth or not _is_too_deep(document, value, max_depth)):
            return value
    except (ValueError, RecursionError):
        pass  # white space around the value, or invalid JSON: use the slower parser
    return parse(document, decoder, max_depth)


def parse(document: str, decoder: json.JSONDecoder, deepest: int = MAX_DEPTH) -> Json:
    """Parse a JSON document by a decoder.

    Raises:
        InvalidJsonError: The text is not JSON, or has more than `deepest` levels.
    """
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
    """Return True if a value has more than `max_depth` levels. Counting brackets decides most cases fast.

    Each level below has at least one bracket of those that are not yet counted. Those within texts are counted too.
    """
    brackets = document.count("[") + document.count("{")
    level: list[list[Json] | dict[str, Json]] = [value] if isinstance(value, _CONTAINERS) else []
    for remaining in range(deepest, 0, -1):
        if brackets <= remaining or not level:
            return False
        brackets -= len(level)
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, _CONTAINERS)
        ]
    return bool(level)


_CONTAINERS = (list, dict)  # a union would be made for each value


def refuse_constant(name: str) -> Json:
    """Refuse NaN and Infinity, which Python would read."""
    raise ValueError(f"{name} is not JSON")


def _to_object(members: list[tuple[str, Json]]) -> JsonObject:
    value = dict(members)
    if len(value) < len(members):
        raise DuplicateMemberError
    return value


class _SpelledFloat(float):
    """A float with its text in a document."""

    __slots__ = ("spelling",)
    spelling: str

    def __new__(cls, spelling: str) -> Self:
        self = super().__new__(cls, spelling)
        self.spelling = spelling
        return self

    def __getnewargs__(self) -> tuple[str]:  # type: ignore[override] # the argument of `__new__`, for pickling
        return (self.spelling,)


# `json.loads` and `json.dumps` with options create a new one on every call
_DECODER = json.JSONDecoder(parse_constant=refuse_constant)
_SPELLING_DECODER = json.JSONDecoder(parse_constant=refuse_constant, parse_float=_SpelledFloat)
_UNIQUE_DECODER = json.JSONDecoder(parse_constant=refuse_constant, object_pairs_hook=_to_object)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_ASCII_ENCODER = json.JSONEncoder(separators=(",", ":"))
_CANONICAL = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def dumps(value: Json) -> str:
    """Return compact JSON, with non-ASCII characters unescaped and members in their order."""
    return _ENCODER.encode(value)


def ascii_dumps(value: Json) -> str:
    """Return compact JSON with non-ASCII characters escaped."""
    return _ASCII_ENCODER.encode(value)


_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


def reads_back(document: str) -> bool:
    """Return True if the UTF-8 bytes of a text are parsed to the same value as the text, or as the value that `dumps` wrote.

    Not so for half of a surrogate pair, an infinite number, and a value that may have more than `MAX_DEPTH` levels.
    """
    is_shallow = len(document) < 2 * MAX_DEPTH or document.count("[") + document.count("{") <= MAX_DEPTH
    return is_shallow and "Infinity" not in document and (document.isascii() or not _HALF_OF_A_PAIR.search(document))


def dumps_each(values: list[Json]) -> list[str]:
    """Return what `dumps` returns for each value. One call for many short ones costs a third."""
    marked: list[Json] = [_MARK] * max(2 * len(values) - 1, 0)
    marked[::2] = values
    documents = dumps(marked)[1:-1].split(_BETWEEN)
    return documents if len(documents) == len(values) else [*map(dumps, values)]


_MARK = "|~|"
_BETWEEN = f',"{_MARK}",'


def dumps_as_written(value: Json) -> str:
    """Return compact JSON as `dumps` does, with the numbers of `loads_as_written` in their own spelling."""
    match value:
        case dict():
            return f"{{{','.join(f'{dumps(name)}:{dumps_as_written(member)}' for name, member in value.items())}}}"
        case list():
            return f"[{','.join(map(dumps_as_written, value))}]"
        case _SpelledFloat():
            return value.spelling
        case _:
            return dumps(value)


def canonical_json(value: Json) -> str:
    """Return canonical JSON: sorted members, no white space."""
    return _CANONICAL.encode(value)


def string_at(document: str, start: int) -> tuple[str | None, int]:
    """Return the JSON string that begins at a place in a text, and where it ends. None and the place if no string begins there."""
    if not document.startswith('"', start):
        return None, start
    try:
        return _DECODER.raw_decode(document, start)
    except ValueError:
        return None, start


def scan_string(document: str, begin: int) -> tuple[str, int]:
    """Return the JSON string whose inside begins at a place in a text, and the place behind its closing quotation mark.

    Raises:
        ValueError: No JSON string is there.
    """
    return _SCAN_STRING(document, begin, True)


_SCAN_STRING: Callable[[str, int, bool], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined] # typeshed lacks it


def parse_object(document: str) -> JsonObject | None:
    """Parse a text as a JSON object. A blank text gives an empty object, any other value None."""
    try:
        value = loads(document if document.strip() else "{}")
    except InvalidJsonError:
        return None
    return value if isinstance(value, dict) else None


def parse_finite_object(document: str) -> JsonObject | None:
    """Parse a text as `parse_object` does, but return None if it has a number beyond those of Python, which reads it as infinite."""
    value = parse_object(document)
    return None if value is not None and "Infinity" in dumps(value) and not _is_finite(value) else value


def _is_finite(value: Json) -> bool:
    match value:
        case float():
            return math.isfinite(value)
        case dict():
            return all(map(_is_finite, value.values()))
        case list():
            return all(map(_is_finite, value))
        case _:
            return True


def value_at(value: Json, *path: str | int) -> Json:
    """Return the value at `path` (member names and indexes), or None."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)  # type: ignore[arg-type] # an index gives None
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def text(value: Json) -> str:
    """Return the value if it is a string, else an empty string."""
    return value if isinstance(value, str) else ""


def integer(value: Json) -> int | None:
    """Return the value if it is an integer, else None. Booleans are no integers."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number(value: Json) -> float | None:
    """Return the value as a float if it is a number that a float can be, else None. Booleans are no numbers."""
    try:
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    except OverflowError:
        return None


def integers(values: list[Json]) -> tuple[int, ...] | None:
    """Return the values if all are integers, else None. Fast for thousands of values."""
    return tuple(value for value in values if isinstance(value, int)) if set(map(type, values)) <= {int} else None


def items(value: Json) -> list[Json]:
    """Return the value if it is an array, else an empty list."""
    return value if isinstance(value, list) else []


def members(value: Json) -> JsonObject:
    """Return the value if it is an object, else an empty dict."""
    return value if isinstance(value, dict) else {}


def strings(value: Json) -> Iterator[str]:
    """Yield all strings in a value, at any depth, in order, without member names."""
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
    """Return a JSON pointer (RFC 6901) from member names and indexes."""
    return "".join(["/" + str(step).replace("~", "~0").replace("/", "~1") for step in path])


_DIGITS = 18  # of an index: Python refuses to read thousands


def resolve(value: Json, where: str) -> Json:
    """Return the value at a JSON pointer (RFC 6901). As an exception to it, `/` is the whole document.

    Raises:
        LookupError: There is no such value. The message has the step where the path ends.
    """
    if where in ("", "/"):
        return value
    for raw in where.removeprefix("/").split("/"):
        step = raw.replace("~1", "/").replace("~0", "~")
        if isinstance(value, list) and step.isdecimal() and len(step) <= _DIGITS and int(step) < len(value):
            value = value[int(step)]
        elif isinstance(value, dict) and step in value:
            value = value[step]
        else:
            raise LookupError(f"invalid JSON pointer {where!r}: no {step!r}")
    return value


def find_objects(content: str) -> Iterator[Json]:
    """Yield every JSON object in a text, nested ones too, of at most `MAX_DEPTH` levels."""
    decoder = json.JSONDecoder()
    for place, character in enumerate(content):
        if character == "{":
            try:
                value: Json
                value, end = decoder.raw_decode(content, place)
            except (ValueError, RecursionError):  # also an integer with more digits than Python reads
                continue
            if not _is_too_deep(content[place:end], value, MAX_DEPTH):
                yield value
