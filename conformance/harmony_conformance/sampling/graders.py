"""Graders: deterministic judgements of an answer. Each returns True if the answer has the wanted property."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from enum import StrEnum
from types import MappingProxyType

from harmony_conformance.checks.helpers.json_schema import first_violation
from harmony_conformance.json_value import InvalidJsonError, Json, integer, items, loads, members, text, value_at
from harmony_conformance.sampling.task import Task, TaskAnswer

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_FENCE = re.compile(r"^```\w*\n(.*?)\n?```$", re.DOTALL)
_HALF = 0.5


class Grade(StrEnum):
    """The grade of one try.

    `otherwise`: the model made no call, and the request left that to it. `error`: there was no answer.
    `ungraded`: any answer to a task without graders.
    """

    SOLVED = "solved"
    UNSOLVED = "unsolved"
    OTHERWISE = "otherwise"
    ERROR = "error"
    UNGRADED = "ungraded"


def grade(task: Task, answer: TaskAnswer) -> Grade:
    """Return the grade of an answer."""
    if not task.grade:
        return Grade.UNGRADED
    if {"call", "calls"} & task.grade.keys() and not answer.calls and not task.demands_call:
        return Grade.OTHERWISE
    holds = all(GRADERS[name](answer, wanted) for name, wanted in task.grade.items())
    return Grade.SOLVED if holds else Grade.UNSOLVED


def _number(answer: TaskAnswer, wanted: Json) -> bool:
    """Compare the last number of the content."""
    numbers = _NUMBER.findall(answer.content)
    return bool(numbers) and float(numbers[-1].replace(",", "")) == wanted


def _plain(content: str) -> str:
    return " ".join(content.replace("*", " ").replace("`", " ").split()).strip(" .!\"'").casefold()


def _equals(answer: TaskAnswer, wanted: Json) -> bool:
    """Compare the content with accepted texts; case, emphasis and a final full stop do not matter."""
    return _plain(answer.content) in {_plain(text(one)) for one in items(wanted)}


def _contains(answer: TaskAnswer, wanted: Json) -> bool:
    return all(text(part).casefold() in answer.content.casefold() for part in items(wanted))


def _excludes(answer: TaskAnswer, wanted: Json) -> bool:
    return bool(answer.content) and not any(
        text(part).casefold() in answer.content.casefold() for part in items(wanted)
    )


def _matches(answer: TaskAnswer, wanted: Json) -> bool:
    return re.fullmatch(text(wanted), answer.content.strip(), re.DOTALL) is not None


def _json(answer: TaskAnswer, wanted: Json) -> bool:
    """Validate the content as JSON, alone or in a code block."""
    content = answer.content.strip()
    fenced = _FENCE.match(content)
    try:
        value = loads(fenced[1] if fenced else content)
    except InvalidJsonError:
        return False
    return first_violation(value, wanted) is None


def _lines(answer: TaskAnswer, wanted: Json) -> bool:
    return len([line for line in answer.content.splitlines() if line.strip()]) == wanted


def _most_words(answer: TaskAnswer, wanted: Json) -> bool:
    return 0 < len(answer.content.split()) <= (integer(wanted) or 0)


def _script(answer: TaskAnswer, wanted: Json) -> bool:
    return is_in_script(answer.content, tuple(text(name) for name in items(wanted)))


def is_in_script(value: str, names: tuple[str, ...]) -> bool:
    """Return True if most letters are of a writing system, by the names of Unicode: CYRILLIC, HIRAGANA, LATIN."""
    letters = [unicodedata.name(letter, "") for letter in value if letter.isalpha()]
    return bool(letters) and sum(letter.startswith(names) for letter in letters) / len(letters) > _HALF


def _call(answer: TaskAnswer, wanted: Json) -> bool:
    """Look for a call with this name, and with these arguments or of this schema if given. Numbers compare by value, texts without case."""
    arguments, schema = value_at(wanted, "arguments"), value_at(wanted, "schema")
    return any(
        name == text(value_at(wanted, "name"))
        and (arguments is None or _same(made, arguments))
        and (schema is None or first_violation(made, schema) is None)
        for name, made in answer.calls
    )


def _calls(answer: TaskAnswer, wanted: Json) -> bool:
    return len(answer.calls) == wanted


def _no_call(answer: TaskAnswer, wanted: Json) -> bool:
    return (not answer.calls) is wanted


def _same(one: Json, other: Json) -> bool:
    if isinstance(one, str) and isinstance(other, str):
        return _plain(one) == _plain(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, members(other)[name]) for name, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other


GRADERS: Mapping[str, Callable[[TaskAnswer, Json], bool]] = MappingProxyType(
    {
        "number": _number,
        "equals": _equals,
        "contains": _contains,
        "excludes": _excludes,
        "matches": _matches,
        "json": _json,
        "lines": _lines,
        "most_words": _most_words,
        "script": _script,
        "call": _call,
        "calls": _calls,
        "no_call": _no_call,
    }
)
"""Graders by their name in a task."""
