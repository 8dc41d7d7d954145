"""Graded tasks of the golden data, `golden/tasks/*.json`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import Json, JsonObject, items, loads, members, text, value_at

FOLDER = "tasks"
COMPATIBILITY = "compatibility"
"""The set with the prompts of OpenAI's compatibility test."""


@dataclass(frozen=True, kw_only=True)
class TaskAnswer:
    """An answer whose grade is known: the content, and the calls before it as names and arguments."""

    content: str = ""
    calls: tuple[tuple[str, Json], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Task:
    """A request whose answer a program can grade.

    Attributes:
        set: The name of its file: quality, hierarchy, tools, effort or compatibility; `requests` for those of a user.
        kind: A group within the set, such as arithmetic.
        request: Messages, tools and other members of a Chat Completions request.
        results: Text of the result by function: the sampler answers calls with it, until the model answers.
        grade: Graders by name; all must hold. Empty: the answers have no grade.
        right: Answers that solve the task.
        wrong: Answers that do not.
    """

    id: str
    set: str
    kind: str
    request: JsonObject
    grade: JsonObject
    results: Mapping[str, str] = field(default_factory=dict[str, str])
    right: tuple[TaskAnswer, ...] = ()
    wrong: tuple[TaskAnswer, ...] = ()

    @property
    def demands_call(self) -> bool:
        """True if the request does not leave the call to the model."""
        return value_at(self.request, "tool_choice") not in (None, "auto", "none")


@cache
def read_tasks() -> Mapping[str, tuple[Task, ...]]:
    """Return the tasks by set."""
    files = sorted((golden.root() / FOLDER).iterdir(), key=lambda file: file.name)
    documents = [loads(file.read_text("utf-8")) for file in files]
    return {
        text(value_at(document, "set")): tuple(
            _task(text(value_at(document, "set")), task) for task in items(value_at(document, "tasks"))
        )
        for document in documents
    }


def _task(its_set: str, value: Json) -> Task:
    return Task(
        id=text(value_at(value, "id")),
        set=its_set,
        kind=text(value_at(value, "kind")),
        request=members(value_at(value, "request")),
        grade=members(value_at(value, "grade")),
        results={name: text(result) for name, result in members(value_at(value, "results")).items()},
        right=tuple(map(_answer, items(value_at(value, "right")))),
        wrong=tuple(map(_answer, items(value_at(value, "wrong")))),
    )


def _answer(value: Json) -> TaskAnswer:
    calls = tuple(
        (text(value_at(call, "name")), value_at(call, "arguments")) for call in items(value_at(value, "calls"))
    )
    return TaskAnswer(content=text(value_at(value, "content")), calls=calls)
