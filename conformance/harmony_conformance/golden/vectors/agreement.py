"""Compare the implementations with the vector files, and complete the files with answers that they agree on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from harmony_conformance.golden.vectors.implementation import Implementation, UnsupportedVectorError
from harmony_conformance.golden.vectors.input_reader import with_tokens
from harmony_conformance.golden.vectors.vector_file import InvalidVectorsError, Vector, VectorFile, VectorResult
from harmony_conformance.json_value import Json, JsonObject, canonical_json, items, members, text

_BEFORE: Final = 20  # characters of context before the first difference of two texts
_SHOWN: Final = 160  # characters of a value
_MIN_IMPLEMENTATIONS: Final = 2  # implementations that agreement requires


@dataclass(frozen=True, kw_only=True)
class VectorDifference:
    """An answer of an implementation that differs from the file."""

    path: str
    id: str
    implementation: str
    expected: Json
    actual: Json


@dataclass(frozen=True, kw_only=True)
class AgreementReport:
    """Result of a comparison.

    Attributes:
        agreement_counts: Number of vectors answered as expected, by (implementation, kind).
        noted_difference_counts: Number of answers that differ in the way that the file notes, by (implementation, kind).
        differences: All other differences.
        single_answer_ids: Ids of vectors that only one implementation answered.
        unanswered_ids: Ids of vectors that no implementation answered.
    """

    agreement_counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    noted_difference_counts: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    differences: Sequence[VectorDifference] = ()
    single_answer_ids: Sequence[str] = ()
    unanswered_ids: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """A vector that cannot be completed, and the reason."""

    path: str
    id: str
    problem: str


def compare(files: Sequence[VectorFile], implementations: Sequence[Implementation]) -> AgreementReport:
    """Compare every vector with the answer of each implementation that supports its kind.

    Raises:
        InvalidVectorsError: an input is invalid for its kind.
    """
    agreed: Counter[tuple[str, str]] = Counter()
    differed: Counter[tuple[str, str]] = Counter()
    differences: list[VectorDifference] = []
    alone: list[str] = []
    unanswered: list[str] = []
    for file, vector in ((one, vector) for one in files for vector in one.vectors):
        answers = _answers(file, vector, implementations)
        if len(answers) < _MIN_IMPLEMENTATIONS:
            (alone if answers else unanswered).append(vector.id)
        tokenized = with_tokens(vector.input)
        if not same_json(tokenized, vector.input):
            expected, actual = vector.input.get("tokens"), tokenized["tokens"]
            differences.append(_difference(file, vector, "the tokenizer", expected, actual))
        for name, actual in answers.items():
            noted = vector.differs.get(name)
            expected = vector.expected if noted is None else noted
            if same_json(actual, expected):
                (agreed if noted is None else differed)[name, file.kind] += 1
            else:
                differences.append(_difference(file, vector, name, expected, actual))
    return AgreementReport(
        agreement_counts=agreed,
        noted_difference_counts=differed,
        differences=differences,
        single_answer_ids=alone,
        unanswered_ids=unanswered,
    )


def complete(file: VectorFile, implementations: Sequence[Implementation]) -> tuple[JsonObject, list[Disagreement]]:
    """Fill in the answers of a file. Return the document and the vectors without an agreed answer.

    The expected answer is that of the first implementation. The others have to agree, or be listed in `differs`.
    A vector that only one implementation answers is not changed, and its expected answer has to match.

    Raises:
        InvalidVectorsError: an input is invalid for its kind.
    """
    disagreements: list[Disagreement] = []
    tests: list[Json] = []
    for vector, test in zip(file.vectors, items(file.document["tests"]), strict=True):
        filled: JsonObject = {**members(test), "input": with_tokens(vector.input)}
        answers = _answers(file, vector, implementations)
        problem = _disagreement(vector, answers)
        if problem is None and len(answers) >= _MIN_IMPLEMENTATIONS:
            expected, *_ = answers.values()
            filled["expected"] = expected
            if vector.differs:
                filled["differs"] = {name: answers[name] for name in vector.differs}
        elif problem is not None:
            disagreements.append(Disagreement(path=file.path, id=vector.id, problem=problem))
        tests.append(filled)
    return {**file.document, "tests": tests}, disagreements


def _answers(file: VectorFile, vector: Vector, implementations: Sequence[Implementation]) -> Mapping[str, JsonObject]:
    tokenized = with_tokens(vector.input)
    answers: dict[str, JsonObject] = {}
    for implementation in implementations:
        if (answer := implementation.answers.get(file.kind)) is None:
            continue
        try:
            answers[implementation.name] = answer(tokenized)
        except UnsupportedVectorError:
            continue
        except InvalidVectorsError as problem:
            raise InvalidVectorsError(f"{file.path}: {vector.id}: {problem}") from None
        except RecursionError:
            raise InvalidVectorsError(f"{file.path}: {vector.id}: the input is nested too deeply") from None
    return answers


def _disagreement(vector: Vector, answers: Mapping[str, JsonObject]) -> str | None:
    if len(answers) < _MIN_IMPLEMENTATIONS:
        if vector.expected is None:
            return f"needs answers of two implementations, got those of: {', '.join(answers) or 'none'}"
        other = next((answer for answer in answers.values() if not same_json(answer, vector.expected)), None)
        return None if other is None else f"{', '.join(answers)}: {describe_difference(vector.expected, other)}"
    (first, expected), *others = answers.items()
    missing = [name for name in vector.differs if name not in answers]
    if missing or first in vector.differs:
        return f"invalid `differs`: no answer of {(missing or [first])[0]} that could differ from {first}"
    for name, answer in others:
        if not same_json(answer, expected) and name not in vector.differs:
            return f"{first} and {name} disagree: {describe_difference(expected, answer)}"
        if same_json(answer, expected) and name in vector.differs:
            return f"invalid `differs`: {name} agrees with {first}"
    if ("error" in expected) != (vector.result is VectorResult.INVALID):
        error = text(members(expected.get("error")).get("text")) or "no error"
        return f"invalid result {vector.result}: the answer is {error}"
    return None


def same_json(one: Json, other: Json) -> bool:
    """Return True if two values are the same JSON. Python's `==` does not distinguish 1, 1.0 and true."""
    return canonical_json(one) == canonical_json(other)


def _difference(file: VectorFile, vector: Vector, name: str, expected: Json, actual: Json) -> VectorDifference:
    return VectorDifference(path=file.path, id=vector.id, implementation=name, expected=expected, actual=actual)


def describe_difference(expected: Json, actual: Json) -> str:
    """Describe the first difference of two answers, in one line."""
    where, one, other = _first_difference(expected, actual, "")
    return f"{where or 'the answer'}: expected {_short(one)}, actual {_short(other)}"


def _first_difference(expected: Json, actual: Json, where: str) -> tuple[str, Json, Json]:
    """Return the place of the first difference and both values there."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name in [*expected, *(name for name in actual if name not in expected)]:
            if name not in expected or name not in actual or not same_json(expected[name], actual[name]):
                return _first_difference(expected.get(name), actual.get(name), f"{where}/{name}")
    if isinstance(expected, list) and isinstance(actual, list):
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            if not same_json(one, other):
                return _first_difference(one, other, f"{where}/{index}")
        return f"{where} (length)", len(expected), len(actual)
    if isinstance(expected, str) and isinstance(actual, str):
        pairs = enumerate(zip(expected, actual, strict=False))
        common = next((index for index, (one, other) in pairs if one != other), min(len(expected), len(actual)))
        if (start := common - _BEFORE) > 0:
            return f"{where} from character {start}", expected[start:], actual[start:]
    return where, expected, actual


def _short(value: Json) -> str:
    line = repr(value)
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
