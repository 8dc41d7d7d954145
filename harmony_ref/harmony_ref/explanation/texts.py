"""Two texts that should be one: where and how they differ, in words.

The texts of system and developer messages are taken apart into what they declare, so that a difference has a name.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from harmony_ref.explanation.divergence import Part, Problem

_AROUND: Final = 30
_LINES: Final = {
    "Knowledge cutoff:": Part.CUTOFF,
    "Current date:": Part.DATE,
    "Reasoning:": Part.EFFORT,
    "# Valid channels:": Part.CHANNELS,
    "Calls to these tools must go to": Part.FUNCTIONS_NOTE,
}
_HEADINGS: Final = {
    "# Instructions": Part.INSTRUCTIONS,
    "# Tools": Part.TOOLS,
    "# Response Formats": Part.RESPONSE_FORMATS,
}
_FUNCTION: Final = re.compile(r"^type (\S+) = ", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class TextDifference:
    """What differs, in which way, and a clause that says so."""

    part: Part
    problem: Problem
    words: str


def difference_of_contents(expected: str, actual: str, role: str) -> TextDifference:
    """How the contents of two messages of a role differ."""
    read = _READERS.get(role)
    return _difference(expected, actual) if read is None else _difference_of_parts(expected, actual, read)


def excerpt(text: str, at: int) -> str:
    """The text around a place, quoted."""
    begin = max(0, at - _AROUND)
    before, after = "…" if begin else "", "…" if at + _AROUND < len(text) else ""
    return f"{before}{text[begin : at + _AROUND]!r}{after}"


def _difference(expected: str, actual: str) -> TextDifference:
    for holds, problem, words in _WAYS:
        if holds(expected, actual):
            return TextDifference(part=Part.CONTENT, problem=problem, words=words(expected, actual))
    at = _first_difference(expected, actual)
    words_of_place = f"the content differs from character {at} on: {excerpt(actual, at)} for {excerpt(expected, at)}"
    return TextDifference(part=Part.CONTENT, problem=Problem.DIFFERENT, words=words_of_place)


def _is_quoted(expected: str, actual: str) -> bool:
    return actual.startswith('"') and _json(actual) == expected


def _is_same_json(expected: str, actual: str) -> bool:
    # As text with sorted keys, because 1, 1.0 and true are equal in Python.
    return expected.lstrip()[:1] in ("{", "[") and _sorted_json(expected) == _sorted_json(actual) != ""


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _sorted_json(text: str) -> str:
    try:
        return json.dumps(json.loads(text), sort_keys=True)
    except (ValueError, RecursionError):
        return ""


_WAYS: Final[tuple[tuple[Callable[[str, str], bool], Problem, Callable[[str, str], str]], ...]] = (
    (
        lambda expected, actual: expected == actual,
        Problem.OTHER_TOKENS,
        lambda _expected, _actual: "the content has the same text in other tokens",
    ),
    (_is_quoted, Problem.QUOTED_TWICE, lambda _expected, _actual: "the content is quoted once more, as a JSON string"),
    (
        _is_same_json,
        Problem.OTHER_SPELLING,
        lambda _expected, _actual: "the content is the same JSON, spelled otherwise",
    ),
    (
        lambda expected, actual: bool(expected) and not actual,
        Problem.MISSING,
        lambda expected, _actual: f"the content is missing: {excerpt(expected, 0)}",
    ),
    (
        lambda expected, actual: expected.strip() == actual.strip(),
        Problem.DIFFERENT,
        lambda expected, actual: f"the white space around the content differs: {_ends(actual)} for {_ends(expected)}",
    ),
    (
        str.startswith,
        Problem.CUT,
        lambda expected, actual: f"the content ends early, before {excerpt(expected[len(actual) :], 0)}",
    ),
    (
        lambda expected, actual: actual.startswith(expected),
        Problem.LONGER,
        lambda expected, actual: f"the content goes on where it should end: {excerpt(actual[len(expected) :], 0)}",
    ),
)


def _ends(text: str) -> str:
    stripped = text.strip()
    if not stripped:
        return repr(text)
    at = text.index(stripped)
    return f"{text[:at]!r} and {text[at + len(stripped) :]!r}"


def _difference_of_parts(
    expected: str, actual: str, read: Callable[[str], Iterator[tuple[Part, str]]]
) -> TextDifference:
    wanted, found = dict(read(expected)), dict(read(actual))
    for part in [*wanted, *(part for part in found if part not in wanted)]:
        difference = _difference_of_part(part, wanted.get(part), found.get(part))
        if difference is not None:
            return difference
    if expected == actual or expected.split() != actual.split():
        return _difference(expected, actual) if list(wanted) == list(found) else _other_order(wanted, found)
    return TextDifference(
        part=Part.SECTIONS, problem=Problem.DIFFERENT, words=f"blank lines differ: {_first_lines(expected, actual)}"
    )


def _difference_of_part(part: Part, expected: str | None, actual: str | None) -> TextDifference | None:
    if expected == actual:
        return None
    are = "are" if part in _PLURAL else "is"
    if actual is None:
        return TextDifference(part=part, problem=Problem.MISSING, words=f"the {part} {are} missing: {_brief(expected)}")
    if expected is None:
        words = f"the {part} {are} there without being asked for: {_brief(actual)}"
        return TextDifference(part=part, problem=Problem.EXTRA, words=words)
    function = _function_around(expected, actual) if part is Part.TOOLS else ""
    if part in _LINE_PARTS:
        words = f"the {part} {are} {actual!r} where {expected!r} was expected"
    else:
        at = _first_difference(expected, actual)
        differ = "differ" if part in _PLURAL else "differs"
        words = f"the {part} {differ}{function}: {excerpt(actual, at)} for {excerpt(expected, at)}"
    return TextDifference(part=part, problem=Problem.DIFFERENT, words=words)


def _other_order(wanted: Mapping[Part, str], found: Mapping[Part, str]) -> TextDifference:
    words = f"the sections stand in another order: {', '.join(found)} for {', '.join(wanted)}"
    return TextDifference(part=Part.SECTIONS, problem=Problem.MOVED, words=words)


def _brief(text: str | None) -> str:
    return excerpt(text or "", 0)


def _first_lines(expected: str, actual: str) -> str:
    at = _first_difference(expected, actual)
    return f"{excerpt(actual, at)} for {excerpt(expected, at)}"


def _first_difference(expected: str, actual: str) -> int:
    both = enumerate(zip(expected, actual, strict=False))
    return next((at for at, (one, other) in both if one != other), min(len(expected), len(actual)))


def _function_around(expected: str, actual: str) -> str:
    """Which function the first difference of two tools sections is in."""
    blocks = zip(expected.split("\n\n"), actual.split("\n\n"), strict=False)
    block, other = next(((one, two) for one, two in blocks if one != two), ("", ""))
    named = _FUNCTION.search(block) or _FUNCTION.search(other)
    return f" in the function {named[1]}" if named else ""


def _system_parts(text: str) -> Iterator[tuple[Part, str]]:
    part, taken = Part.IDENTITY, list[str]()
    for line in text.split("\n"):
        begun = next((found for begin, found in _LINES.items() if line.startswith(begin)), None)
        begun = Part.TOOLS if line == "# Tools" and part is not Part.TOOLS else begun
        if begun is None or (begun is not Part.CHANNELS and part is Part.TOOLS):
            taken.append(line)
            continue
        yield part, "\n".join(taken).strip("\n")
        part, taken = begun, [line]
    yield part, "\n".join(taken).strip("\n")


def _developer_parts(text: str) -> Iterator[tuple[Part, str]]:
    part, taken = Part.CONTENT, list[str]()
    for line in text.split("\n"):
        if line not in _HEADINGS:
            taken.append(line)
            continue
        if taken and any(taken):
            yield part, "\n".join(taken).strip("\n")
        part, taken = _HEADINGS[line], [line]
    if taken and any(taken):
        yield part, "\n".join(taken).strip("\n")


_PLURAL: Final = frozenset({Part.TOOLS, Part.INSTRUCTIONS, Part.CHANNELS, Part.RESPONSE_FORMATS})
_LINE_PARTS: Final = frozenset({Part.IDENTITY, *_LINES.values()})
_READERS: Final[Mapping[str, Callable[[str], Iterator[tuple[Part, str]]]]] = MappingProxyType(
    {"system": _system_parts, "developer": _developer_parts}
)
