"""Describe the differences of two values: texts by their first differing character, JSON by deepdiff's paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from harmony_conformance.evidence.leaks.broken_characters import REPLACEMENT
from harmony_conformance.json_value import Json, dumps, dumps_as_written, loads_as_written, parse_object
from harmony_conformance.redactable_text import Location, RedactableText, ReportText, quote
from harmony_ref.explanation.nearest_rendering import shared_length

_CONTEXT = 30  # characters on either side of a difference
_JSON = (str, int, float, list, dict, type(None))


@dataclass(frozen=True, kw_only=True)
class ValueDifference:
    """One place where two JSON values differ: a path such as `tool_calls[0].arguments`, and both values shortened."""

    path: Location
    expected: ReportText
    actual: ReportText

    def __str__(self) -> str:
        """Return the difference as a sentence."""
        return f"{self.path} is {self.actual} where {self.expected} was expected"


def json_differences(expected: Json, actual: Json) -> Iterator[ValueDifference]:
    """Yield the differences of two JSON values in the order of their paths."""
    if dumps(expected) == dumps(actual):  # compared as texts, since `1 == True` in Python
        return
    from deepdiff import DeepDiff  # noqa: PLC0415 - imports numpy and pydantic, and most values are equal

    tree = cast("Mapping[str, Iterable[_Leaf]]", DeepDiff(expected, actual, view="tree", verbose_level=2))
    values = {_path(leaf): (leaf.t1, leaf.t2) for group in tree.values() for leaf in group}
    for path in sorted(values):
        one, other = values[path]
        if isinstance(one, str) and isinstance(other, str):
            yield ValueDifference(path=path, expected=_excerpt(one, other), actual=_excerpt(other, one))
        else:
            yield ValueDifference(path=path, expected=_shorten(one), actual=_shorten(other))


def argument_difference(expected: str, actual: str) -> str | None:
    """Return the first difference of the arguments of two calls in words, with numbers as they are written. None if one text is no object."""
    if any(parse_object(one) is None for one in (expected, actual)):
        return None
    first = next(json_differences(*(loads_as_written(one.strip() or "{}") for one in (expected, actual))), None)
    if first is None:
        return "a number of the arguments has other digits"
    return f"the argument at {first.path} is {first.actual} instead of {first.expected}"


def first_difference(expected: str, actual: str) -> int | None:
    """Return the index of the first character that differs, None if the texts are equal."""
    return None if expected == actual else shared_length(expected, actual)


def text_difference(expected: str, actual: str) -> tuple[RedactableText, RedactableText]:
    """Return excerpts of both texts around their first difference."""
    return _excerpt(expected, actual), _excerpt(actual, expected)


def _excerpt(text: str, other: str) -> RedactableText:
    index = first_difference(text, other) or 0
    start, end = max(0, index - _CONTEXT), index + _CONTEXT
    return quote(("…" if start else "") + repr(text[start:end])[1:-1] + ("…" if end < len(text) else ""))


def lacks_cut_character(whole: str, streamed: str) -> bool:
    """Return True if the streamed text lacks nothing but the U+FFFD of an incomplete last character."""
    return streamed != whole and streamed == whole.rstrip(REPLACEMENT)


class _Leaf(Protocol):
    """A differing place in deepdiff's tree view."""

    t1: object
    t2: object

    def path(self, *, output_format: str) -> list[str | int]: ...


def _path(leaf: _Leaf) -> Location:
    steps = leaf.path(output_format="list")
    joined = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return Location(joined.removeprefix("."))


def _shorten(value: object) -> ReportText:
    if not isinstance(value, _JSON):  # deepdiff's marker of an absent value
        return "nothing"
    text = dumps_as_written(cast("Json", value))
    return quote(text if len(text) <= 2 * _CONTEXT else text[: 2 * _CONTEXT] + "…")
