"""Which part of a message is ours: what stands, word for word, in the source of the checks. All else is a value, and may be of the traffic.

The texts are taken from the modules that make findings: a message fits one of their format strings, and what fills it is judged in the same way. So
nothing that is called ours tells more of the traffic than that it agrees with a text of this program. Without sources nothing is called ours.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import ModuleType

from harmony_conformance import (
    conditions,
    difference,
    json_value,
    meaning,
    placement,
    prompt,
    texts,
    tool_schema,
    turn,
    wire,
)
from harmony_conformance.checks import FAMILIES
from harmony_conformance.leak import evidence

_SOURCES: tuple[ModuleType, ...] = (
    *FAMILIES,
    conditions,
    difference,
    evidence,
    texts,
    json_value,
    meaning,
    placement,
    prompt,
    tool_schema,
    turn,
    wire,
)
_LONGEST_NUMBER = 5


class Whose(StrEnum):
    """Ours; a number that fills a format string of ours or counts within a place; or a value, which may be of the traffic."""

    OURS = "ours"
    NUMBER = "number"
    VALUE = "value"


@dataclass(frozen=True)
class Part:
    """A stretch of a text, and whose it is."""

    text: str
    whose: Whose


def parts(text: str, *, depth: int = 0) -> Iterator[Part]:
    """The text, divided into what is ours and what is not."""
    constants, templates = _texts()
    if text in constants:
        yield Part(text, Whose.OURS)
        return
    steps = text.removeprefix("/").split("/")
    if depth <= 1 and len(steps) > 1 and steps[0] in constants and " " not in text:
        yield from _place(text, steps, constants)
        return
    fitting = [fixed for fixed in templates if _fits(fixed, text)]
    if not fitting:
        yield Part(text, Whose.NUMBER if depth == 1 and _is_number(text) else Whose.VALUE)
        return
    fixed = max(fitting, key=lambda fixed: (_letters(fixed), fixed))
    for ours, value in zip(fixed, [*_values(fixed, text), ""], strict=True):
        yield Part(ours, Whose.OURS)
        if value:
            yield from parts(value, depth=depth + 1)


def _place(text: str, steps: Sequence[str], constants: frozenset[str]) -> Iterator[Part]:
    for index, step in enumerate(steps):
        yield Part("/" if index or text.startswith("/") else "", Whose.OURS)
        yield Part(step, Whose.OURS if step in constants else Whose.NUMBER if _is_number(step) else Whose.VALUE)


def _is_number(text: str) -> bool:
    """Whether it may be an index or a count."""
    return text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER


@cache
def _texts() -> tuple[frozenset[str], tuple[tuple[str, ...], ...]]:
    """Every text of the sources, and of every format string its fixed parts: one more than it has values."""
    constants: set[str] = set()
    templates: set[tuple[str, ...]] = set()
    for node in (node for module in _SOURCES for node in ast.walk(_tree(module))):
        match node:
            case ast.Constant(value=str(text)):
                constants.add(text)
            case ast.JoinedStr(values=values):
                templates.add(_fixed(values))
            case _:
                pass
    return frozenset(constants), tuple(sorted(fixed for fixed in templates if len(fixed) > 1 and _letters(fixed)))


def _tree(module: ModuleType) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(module))
    except (OSError, SyntaxError):
        return ast.Module(body=[], type_ignores=[])


def _fixed(values: Sequence[ast.expr]) -> tuple[str, ...]:
    fixed = [""]
    for value in values:
        if isinstance(value, ast.Constant):
            fixed[-1] += str(value.value)
        else:
            fixed.append("")
    return tuple(fixed)


def _letters(fixed: Sequence[str]) -> int:
    return sum(char.isalpha() for part in fixed for char in part)


def _fits(fixed: Sequence[str], text: str) -> bool:
    if not text.startswith(fixed[0]) or not text.endswith(fixed[-1]):
        return False
    at, end = len(fixed[0]), len(text) - len(fixed[-1])
    for part in fixed[1:-1]:
        found = text.find(part, at, end) if at <= end else -1
        if found < 0:
            return False
        at = found + len(part)
    return at <= end


def _values(fixed: Sequence[str], text: str) -> list[str]:
    """What stands between the fixed parts of a text that fits them."""
    at, end = len(fixed[0]), len(text) - len(fixed[-1])
    values: list[str] = []
    for part in fixed[1:-1]:
        found = text.find(part, at, end) if part else at
        values.append(text[at:found])
        at = found + len(part)
    return [*values, text[at:end]]
