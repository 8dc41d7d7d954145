"""Where two values differ, in words: texts by their first differing character, JSON by deepdiff's paths."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

from harmony_conformance.json_value import Json, dumps
from harmony_conformance.redactable_text import Location, RedactableText, ReportText, quote
from harmony_ref.explanation.nearest_rendering import shared_length

_AROUND = 30
_JSON = (str, int, float, list, dict, type(None))


@dataclass(frozen=True, kw_only=True)
class ValueDifference:
    """One place where two JSON values differ: a path such as `tool_calls[0].arguments`, and both values shortened."""

    path: Location
    expected: ReportText
    actual: ReportText

    def __str__(self) -> str:
        """The difference as a sentence."""
        return f"{self.path} is {self.actual} where {self.expected} was expected"


def json_differences(expected: Json, actual: Json) -> Iterator[ValueDifference]:
    """The places where two JSON values differ, in the order of their paths."""
    if dumps(expected) == dumps(actual):  # as values `1` and `true` would be equal
        return
    from deepdiff import DeepDiff  # noqa: PLC0415 - imports numpy and pydantic, and most values are equal

    found = cast("Mapping[str, Iterable[_Leaf]]", DeepDiff(expected, actual, view="tree", verbose_level=2))
    told = {_path(leaf): (leaf.t1, leaf.t2) for group in found.values() for leaf in group}
    for path in sorted(told):
        one, other = told[path]
        if isinstance(one, str) and isinstance(other, str):
            yield ValueDifference(path=path, expected=_around(one, other), actual=_around(other, one))
        else:
            yield ValueDifference(path=path, expected=_shown(one), actual=_shown(other))


def first_difference(expected: str, actual: str) -> int | None:
    """The index of the first character in which two texts differ, None where they are equal."""
    return None if expected == actual else shared_length(expected, actual)


def text_difference(expected: str, actual: str) -> tuple[RedactableText, RedactableText]:
    """Excerpts of both texts around their first difference."""
    return _around(expected, actual), _around(actual, expected)


def _around(text: str, other: str) -> RedactableText:
    index = first_difference(text, other) or 0
    start = max(0, index - _AROUND)
    excerpt = text[start : index + _AROUND]
    return quote(("…" if start else "") + repr(excerpt)[1:-1] + ("…" if index + _AROUND < len(text) else ""))


class _Leaf(Protocol):
    """What deepdiff's tree view holds at a place that differs."""

    t1: object
    t2: object

    def path(self, *, output_format: str) -> list[str | int]: ...


def _path(leaf: _Leaf) -> Location:
    steps = leaf.path(output_format="list")
    joined = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in steps)
    return Location(joined.removeprefix("."))


def _shown(value: object) -> ReportText:
    if not isinstance(value, _JSON):  # deepdiff's mark of what is not there
        return "nothing"
    written = dumps(cast("Json", value))
    return quote(written if len(written) <= 2 * _AROUND else written[: 2 * _AROUND] + "…")
