"""The grade of one answer, and the grades of an implementation with their causes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from harmony_conformance.errors import Exit
from harmony_conformance.golden.grading.answer import (
    InvalidAnswerError,
    is_reported_correction,
    is_unsupported,
    vector_kind,
)
from harmony_conformance.golden.grading.difference import AnswerDifference, find_difference, uncompared_members
from harmony_conformance.golden.vectors.vector_file import Vector, VectorResult
from harmony_conformance.json_value import JsonObject

_TEXT_IS_NOT_ENOUGH: Final = "text-is-not-enough"
"""Flag of vectors whose tokens the text does not determine."""


class VectorOutcome(StrEnum):
    """Outcome of a vector. Only `passed` is a pass.

    `different`: another answer, where the vector permits one. `unreadable`: an answer out of form, so that nothing was compared.
    """

    PASSED = "passed"
    FAILED = "failed"
    DIFFERENT = "different"
    UNSUPPORTED = "unsupported"
    UNREADABLE = "unreadable"
    NOT_RUN = "not run"


@dataclass(frozen=True, kw_only=True)
class VectorGrade:
    """Outcome of one vector.

    Attributes:
        difference: The first difference of a failed or different answer.
        problem: The reason of an outcome without a comparison, in one line.
        uncompared: Expected members that the answer does not have.
    """

    vector: Vector
    outcome: VectorOutcome
    difference: AnswerDifference | None = None
    problem: str = ""
    uncompared: frozenset[str] = frozenset()

    @property
    def kind(self) -> str:
        """Kind of the vector."""
        return vector_kind(self.vector)

    @property
    def traits(self) -> Sequence[str]:
        """Sentences that may name the cause, the most specific first."""
        if self.difference is not None:
            return self.difference.traits
        return tuple(dict.fromkeys((self.problem, self.problem.partition(": ")[0])))


@dataclass(frozen=True, kw_only=True)
class VectorCause:
    """Vectors that fail for the same reason.

    Attributes:
        sentence: The common trait.
        details: The more specific traits with their numbers of vectors; empty if there is one only.
        example: The smallest of the vectors.
    """

    sentence: str
    grades: Sequence[VectorGrade]
    details: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def example(self) -> VectorGrade:
        """Return the vector with the shortest input."""
        return min(self.grades, key=lambda one: (len(str(one.vector.input)), one.vector.id))

    @property
    def kinds(self) -> Sequence[str]:
        """Kinds of the vectors, without repetition."""
        return tuple(dict.fromkeys(one.kind for one in self.grades))


@dataclass(frozen=True, kw_only=True)
class GradeReport:
    """Grades of an implementation.

    Attributes:
        name: The command or the name of the implementation.
        problems: Faults of the process, one line each.
    """

    name: str
    grades: Sequence[VectorGrade]
    problems: Sequence[str] = ()

    def count(self, outcome: VectorOutcome, kind: str | None = None) -> int:
        """Return the number of vectors with this outcome, of one kind or of all."""
        return sum(one.outcome is outcome and kind in (None, one.kind) for one in self.grades)

    def with_outcome(self, outcome: VectorOutcome) -> Sequence[VectorGrade]:
        """Return the vectors with this outcome."""
        return [one for one in self.grades if one.outcome is outcome]

    @property
    def causes(self) -> Sequence[VectorCause]:
        """Causes of the failures, the most frequent first."""
        return find_causes(self.with_outcome(VectorOutcome.FAILED))

    @property
    def judged(self) -> int:
        """Number of vectors whose answer was compared, or that failed without an answer."""
        judged = (VectorOutcome.PASSED, VectorOutcome.FAILED, VectorOutcome.DIFFERENT)
        return sum(map(self.count, judged))

    @property
    def exit_code(self) -> Exit:
        """The highest code that applies: 2 if nothing was judged, or if an answer is missing or unreadable."""
        if not self.judged or self.count(VectorOutcome.UNREADABLE) or self.count(VectorOutcome.NOT_RUN):
            return Exit.USAGE
        return Exit.DIVERGES if self.count(VectorOutcome.FAILED) else Exit.CONFORMS

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        if not self.judged:
            return "nothing could be checked"
        if self.count(VectorOutcome.FAILED):
            return "does not conform"
        return "conforms" if self.exit_code is Exit.CONFORMS else "not completely checked"


def grade_answer(vector: Vector, answer: JsonObject) -> VectorGrade:
    """Compare an answer with the vector."""
    if is_unsupported(answer):
        return VectorGrade(vector=vector, outcome=VectorOutcome.UNSUPPORTED)
    try:
        difference = find_difference(vector, answer)
    except InvalidAnswerError as problem:
        return VectorGrade(vector=vector, outcome=VectorOutcome.UNREADABLE, problem=str(problem))
    uncompared = uncompared_members(vector, answer)
    if difference is None and _TEXT_IS_NOT_ENOUGH in vector.flags and "tokens" in uncompared:
        return VectorGrade(
            vector=vector, outcome=VectorOutcome.UNSUPPORTED, problem="the text does not determine the tokens"
        )
    if difference is None:
        return VectorGrade(vector=vector, outcome=VectorOutcome.PASSED, uncompared=uncompared)
    corrected = vector.result is VectorResult.INVALID and is_reported_correction(answer)
    is_permitted = vector.result is VectorResult.ACCEPTABLE or corrected
    outcome = VectorOutcome.DIFFERENT if is_permitted else VectorOutcome.FAILED
    return VectorGrade(vector=vector, outcome=outcome, difference=difference, uncompared=uncompared)


def find_causes(grades: Sequence[VectorGrade]) -> Sequence[VectorCause]:
    """Group failures: repeatedly take the trait that most of the rest share, and of equal ones the most specific."""
    causes: list[VectorCause] = []
    rest: Sequence[VectorGrade] = grades
    while rest:
        shared = _most_shared_trait(rest)
        group = [one for one in rest if shared in one.traits]
        specific = Counter(one.traits[0] for one in group)
        details = {} if len(specific) == 1 else dict(specific.most_common())
        causes.append(VectorCause(sentence=shared, grades=group, details=details))
        rest = [one for one in rest if shared not in one.traits]
    return causes


def _most_shared_trait(grades: Sequence[VectorGrade]) -> str:
    counts = Counter(trait for one in grades for trait in set(one.traits))
    depth = {trait: index for one in grades for index, trait in reversed([*enumerate(one.traits)])}
    return min(counts, key=lambda trait: (-counts[trait], depth[trait], trait))
