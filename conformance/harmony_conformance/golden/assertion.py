"""Assertions for pytest: a renderer or parser written in Python against the golden vectors.

from harmony_conformance import assert_conforms


def test_harmony():
    assert_conforms(render=my_render, parse=my_parse)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Final, TypeAlias

from harmony_conformance.errors import Exit
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.grading.answer import KINDS, select_vectors, vector_kind
from harmony_conformance.golden.grading.grade import GradeReport, VectorGrade, VectorOutcome, grade_answer
from harmony_conformance.golden.grading.grade_text import flag_effects, report_text
from harmony_conformance.golden.vectors.implementations import KINDS as ALL_KINDS
from harmony_conformance.golden.vectors.vector_file import Vector, VectorFile, read_folder
from harmony_conformance.json_value import JsonObject, loads, members

Answer: TypeAlias = "Mapping[str, object] | Sequence[object] | str"
"""An answer as in the vectors, or only its main member: token ids or text, messages, steps, the type."""

AnswerSource: TypeAlias = Callable[[JsonObject], Answer]
"""A function from the input of a vector to the answer. It raises NotImplementedError for what it does not offer."""

_MAIN_LISTS: Final = {"render": "tokens", "parse": "messages", "stream": "steps", "typescript": "typescript"}
_MAIN_TEXTS: Final = {"render": "text", "typescript": "typescript"}
_DEFAULT_REFUSALS: Final = (ValueError,)


def assert_conforms(
    *,
    render: AnswerSource | None = None,
    parse: AnswerSource | None = None,
    stream: AnswerSource | None = None,
    typescript: AnswerSource | None = None,
    refusals: tuple[type[Exception], ...] = _DEFAULT_REFUSALS,
) -> None:
    """Assert that the functions answer every golden vector of their kind as expected.

    Args:
        render: Return the token ids or the text of `messages`; see `golden/README.md` for the inputs.
        parse: Return the messages of `tokens`.
        stream: Return the observed values after each of the `tokens`.
        typescript: Return the type of a JSON `schema`.
        refusals: Exceptions by which the functions refuse an input. Any other exception is a failure.

    Raises:
        AssertionError: An answer differs. The message has the causes, each with an example.
        ValueError: No function is given.
    """
    __tracebackhide__ = True
    given = {"render": render, "parse": parse, "stream": stream, "typescript": typescript}
    functions = {kind: function for kind, function in given.items() if function is not None}
    if not functions:
        raise ValueError(f"invalid arguments: expected at least one of {', '.join(KINDS)}, got none")
    files = _files()
    grades = [_grade(one, functions[vector_kind(one)], refusals) for one in select_vectors(files, tuple(functions))]
    names = dict.fromkeys(getattr(function, "__name__", repr(function)) for function in functions.values())
    report = GradeReport(name=", ".join(names), grades=grades)
    if report.exit_code is not Exit.CONFORMS:
        raise AssertionError(report_text(report, flag_effects(files)))


def assert_vector(
    vector: Vector, function: AnswerSource, *, refusals: tuple[type[Exception], ...] = _DEFAULT_REFUSALS
) -> None:
    """Assert that a function answers one vector as expected. With NotImplementedError the test is skipped.

    Raises:
        AssertionError: The answer differs. The message has the first difference.
    """
    __tracebackhide__ = True
    grade = _grade(vector, function, refusals)
    if grade.outcome is VectorOutcome.UNSUPPORTED:
        import pytest  # noqa: PLC0415 - an extra

        pytest.skip(f"{vector.id} is not supported")
    report = GradeReport(name=getattr(function, "__name__", repr(function)), grades=[grade])
    if report.exit_code is not Exit.CONFORMS:
        raise AssertionError(report_text(report, flag_effects(_files())))


def vector_parameters(*kinds: str) -> Sequence[object]:
    """Return the vectors of these kinds for `pytest.mark.parametrize("vector", …)`, one test each. Needs pytest.

    Raises:
        ValueError: A kind does not exist.
    """
    import pytest  # noqa: PLC0415 - an extra

    unknown = [kind for kind in kinds if kind not in KINDS]
    if unknown or not kinds:
        raise ValueError(f"invalid kind: expected some of {', '.join(KINDS)}, got {unknown[0] if unknown else 'none'}")
    return [pytest.param(vector, id=vector.id) for vector in select_vectors(_files(), kinds)]


@cache
def _files() -> Sequence[VectorFile]:
    return read_folder(golden.root(), ALL_KINDS)


def _grade(vector: Vector, function: AnswerSource, refusals: tuple[type[Exception], ...]) -> VectorGrade:
    try:
        answer = _to_answer(vector_kind(vector), function(deepcopy(vector.input)))
    except NotImplementedError:
        return grade_answer(vector, {"unsupported": True})
    except refusals as refusal:
        return grade_answer(vector, {"error": str(refusal) or type(refusal).__name__})
    except Exception as fault:  # noqa: BLE001 - a fault of the judged function
        problem = f"the function raises {type(fault).__name__}: {str(fault)[:160]}"
        return VectorGrade(vector=vector, outcome=VectorOutcome.FAILED, problem=problem)
    return grade_answer(vector, answer)


def _to_answer(kind: str, answer: Answer) -> JsonObject:
    """Return an answer as the JSON object that a process would write."""
    if not isinstance(answer, Mapping):
        answer = {(_MAIN_TEXTS if isinstance(answer, str) else _MAIN_LISTS).get(kind, "text"): answer}
    return members(loads(json.dumps(answer)))
