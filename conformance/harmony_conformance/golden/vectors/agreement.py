"""Comparing the implementations with the vector files, and completing the files with what they agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harmony_conformance.golden.vectors.implementation import Implementation, UnsupportedVectorError
from harmony_conformance.golden.vectors.inputs import completed
from harmony_conformance.golden.vectors.vector_file import InvalidVectorsError, Vector, VectorFile, VectorResult
from harmony_conformance.json_value import Json, JsonObject, canonical, items, members, text

_BEFORE: Final = 20
"""Characters shown before those in which two texts differ."""

_TWO: Final = 2
"""It takes two to agree."""

_SHOWN: Final = 160
"""Characters shown of a value."""


@dataclass(frozen=True, kw_only=True)
class VectorDifference:
    """An implementation says something else than a file."""

    path: str
    id: str
    implementation: str
    expected: Json
    actual: Json


@dataclass(frozen=True, kw_only=True)
class AgreementReport:
    """What a check found.

    Attributes:
        agreed: how many vectors of a kind each implementation answers as expected, by (implementation, kind).
        differed: the same for answers that differ as the file says they do.
        differences: all others.
        alone: ids of vectors that one implementation answered.
        unanswered: ids of vectors that none did.
    """

    agreed: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    differed: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    differences: Sequence[VectorDifference] = ()
    alone: Sequence[str] = ()
    unanswered: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """Why a vector can not be completed."""

    path: str
    id: str
    problem: str


def compare(files: Sequence[VectorFile], implementations: Sequence[Implementation]) -> AgreementReport:
    """Ask every implementation every vector of a kind that it answers.

    Raises:
        BadVectors: an input that is none of its kind.
    """
    agreed: Counter[tuple[str, str]] = Counter()
    differed: Counter[tuple[str, str]] = Counter()
    differences: list[VectorDifference] = []
    alone: list[str] = []
    unanswered: list[str] = []
    for file, vector in _all(files):
        answers = _answers(file, vector, implementations)
        if len(answers) < _TWO:
            (alone if answers else unanswered).append(vector.id)
        given = completed(vector.input)
        if not _same(given, vector.input):
            differences.append(_difference(file, vector, "the tokenizer", vector.input.get("tokens"), given["tokens"]))
        for name, actual in answers.items():
            known = vector.differs.get(name)
            expected = vector.expected if known is None else known
            if _same(actual, expected):
                (agreed if known is None else differed)[name, file.kind] += 1
            else:
                differences.append(_difference(file, vector, name, expected, actual))
    return AgreementReport(
        agreed=agreed, differed=differed, differences=differences, alone=alone, unanswered=unanswered
    )


def complete(file: VectorFile, implementations: Sequence[Implementation]) -> tuple[JsonObject, list[Disagreement]]:
    """The document with every answer in place, and the vectors for which there is none.

    The expected answer is that of the first implementation; the others have to give it too, or to be named in `differs`. What only one of them
    answers here stays as it is, and has to be what that one says.

    Raises:
        BadVectors: an input that is none of its kind.
    """
    disagreements: list[Disagreement] = []
    tests: list[Json] = []
    for vector, test in zip(file.vectors, items(file.document["tests"]), strict=True):
        filled: JsonObject = {**members(test), "input": completed(vector.input)}
        answers = _answers(file, vector, implementations)
        problem = _disagreement(vector, answers)
        if problem is None and len(answers) >= _TWO:
            expected, *_ = answers.values()
            filled["expected"] = expected
            if vector.differs:
                filled["differs"] = {name: answers[name] for name in vector.differs}
        elif problem is not None:
            disagreements.append(Disagreement(path=file.path, id=vector.id, problem=problem))
        tests.append(filled)
    return {**file.document, "tests": tests}, disagreements


def _all(files: Sequence[VectorFile]) -> Iterator[tuple[VectorFile, Vector]]:
    for file in files:
        for vector in file.vectors:
            yield file, vector


def _answers(file: VectorFile, vector: Vector, implementations: Sequence[Implementation]) -> Mapping[str, JsonObject]:
    given = completed(vector.input)
    answers: dict[str, JsonObject] = {}
    for implementation in implementations:
        answer = implementation.answers.get(file.kind)
        if answer is None:
            continue
        try:
            answers[implementation.name] = answer(given)
        except UnsupportedVectorError:
            continue
        except InvalidVectorsError as problem:
            raise InvalidVectorsError(f"{file.path}: {vector.id}: {problem}") from None
        except RecursionError:
            raise InvalidVectorsError(f"{file.path}: {vector.id}: its input is nested too deeply") from None
    return answers


def _disagreement(vector: Vector, answers: Mapping[str, JsonObject]) -> str | None:
    if len(answers) < _TWO:
        if vector.expected is None:
            return f"{', '.join(answers) or 'nobody'} answers it here, and it takes two to agree"
        other = next((answer for answer in answers.values() if not _same(answer, vector.expected)), None)
        return None if other is None else f"{', '.join(answers)}: {shown(vector.expected, other)}"
    (first, expected), *others = answers.items()
    missing = [name for name in vector.differs if name not in answers]
    if missing or first in vector.differs:
        return f"differs names {(missing or [first])[0]}, which is not there to differ from {first}"
    for name, answer in others:
        if not _same(answer, expected) and name not in vector.differs:
            return f"{first} and {name} disagree: {shown(expected, answer)}"
        if _same(answer, expected) and name in vector.differs:
            return f"differs names {name}, which agrees with {first}"
    if ("error" in expected) != (vector.result is VectorResult.INVALID):
        found = text(members(expected.get("error")).get("text")) or "no error"
        return f"its result is {vector.result}, and the answer is {found}"
    return None


def _same(one: Json, other: Json) -> bool:
    """Whether two values are the same JSON: to Python 1, 1.0 and true are equal."""
    return canonical(one) == canonical(other)


def _difference(file: VectorFile, vector: Vector, name: str, expected: Json, actual: Json) -> VectorDifference:
    return VectorDifference(path=file.path, id=vector.id, implementation=name, expected=expected, actual=actual)


def shown(expected: Json, actual: Json) -> str:
    """Where two answers part, in one line."""
    where, one, other = _parting(expected, actual, "")
    return f"{where or 'the answer'}: expected {_short(one)}, actual {_short(other)}"


def _parting(expected: Json, actual: Json, where: str) -> tuple[str, Json, Json]:
    """The first place where two values differ."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in [*expected, *(name for name in actual if name not in expected)]:
            if name not in expected or name not in actual or not _same(expected[name], actual[name]):
                return _parting(expected.get(name), actual.get(name), f"{where}/{name}")
    if isinstance(expected, list) and isinstance(actual, list):
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            if not _same(one, other):
                return _parting(one, other, f"{where}/{index}")
        return f"{where} (length)", len(expected), len(actual)
    if isinstance(expected, str) and isinstance(actual, str):
        pairs = enumerate(zip(expected, actual, strict=False))
        same = next((index for index, (one, other) in pairs if one != other), min(len(expected), len(actual)))
        from_there = max(same - _BEFORE, 0)
        if from_there:
            return f"{where} from character {from_there}", expected[from_there:], actual[from_there:]
    return where, expected, actual


def _short(value: Json) -> str:
    line = repr(value)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
