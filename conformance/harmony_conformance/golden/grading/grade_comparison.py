"""Two implementations compared: the vectors that the second one breaks or fixes, grouped by cause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harmony_conformance.errors import Exit
from harmony_conformance.golden.grading.grade import GradeReport, VectorCause, VectorGrade, VectorOutcome, find_causes
from harmony_conformance.golden.grading.grade_formats import cause_json
from harmony_conformance.golden.grading.grade_text import cause_text
from harmony_conformance.json_value import JsonObject

_GOOD: Final = (VectorOutcome.PASSED, VectorOutcome.DIFFERENT)
_UNJUDGED: Final = (VectorOutcome.UNSUPPORTED, VectorOutcome.UNREADABLE, VectorOutcome.NOT_RUN)


@dataclass(frozen=True, kw_only=True)
class GradeComparison:
    """Grades of the same vectors before and after a change.

    Attributes:
        new: Failures of head that base does not have.
        fixed: Failures of base that head answers well.
        changed: Failures of both that differ in another way, as head's.
        same: Failures of both that differ in the same way.
        lost: Vectors that base answered well, and head no longer answers.
    """

    base: GradeReport
    head: GradeReport
    new: Sequence[VectorGrade]
    fixed: Sequence[VectorGrade]
    changed: Sequence[VectorGrade]
    same: Sequence[VectorGrade]
    lost: Sequence[VectorGrade]

    @property
    def causes(self) -> Mapping[str, Sequence[VectorCause]]:
        """Causes by change. The causes of fixed failures are those of base."""
        groups = {"new": self.new, "changed": self.changed, "fixed": self.fixed, "same": self.same}
        return {name: find_causes(grades) for name, grades in groups.items()}

    @property
    def exit_code(self) -> Exit:
        """1: new failures or lost answers; 2: one of both was not completely judged."""
        incomplete = [Exit.USAGE for one in (self.base, self.head) if one.exit_code is Exit.USAGE]
        return incomplete[0] if incomplete else Exit.DIVERGES if self.new or self.lost else Exit.CONFORMS

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        incomplete = "not completely compared: " if self.exit_code is Exit.USAGE else ""
        broken, fixed, failing = len(self.new) + len(self.lost), len(self.fixed), len(self.changed) + len(self.same)
        return f"{incomplete}head breaks {broken or 'none'} of {len(self.head.grades)} vectors and fixes {fixed or 'none'}; {failing} fail in both"


def compare_grades(base: GradeReport, head: GradeReport) -> GradeComparison:
    """Compare the grades of two implementations by vector."""
    before = {one.vector.id: one for one in base.grades}
    pairs = [(before[one.vector.id], one) for one in head.grades if one.vector.id in before]
    failed = [(one, other) for one, other in pairs if other.outcome is VectorOutcome.FAILED]
    both = [(one, other) for one, other in failed if one.outcome is VectorOutcome.FAILED]
    return GradeComparison(
        base=base,
        head=head,
        new=[other for one, other in failed if one.outcome is not VectorOutcome.FAILED],
        fixed=[one for one, other in pairs if one.outcome is VectorOutcome.FAILED and other.outcome in _GOOD],
        changed=[other for one, other in both if one.traits[0] != other.traits[0]],
        same=[other for one, other in both if one.traits[0] == other.traits[0]],
        lost=[other for one, other in pairs if one.outcome in _GOOD and other.outcome in _UNJUDGED],
    )


def comparison_text(compared: GradeComparison, effects: Mapping[str, str]) -> str:
    """Return the comparison as text: the verdict, both commands, and the causes by change."""
    lines = [
        compared.verdict,
        f"base: {compared.base.name}: {compared.base.verdict}",
        f"head: {compared.head.name}: {compared.head.verdict}",
    ]
    for name, report in (("base", compared.base), ("head", compared.head)):
        lines += [f"{name}: {problem}" for problem in report.problems]
    if compared.lost:
        ids = ", ".join(one.vector.id for one in compared.lost[:3])
        lines += ["", f"LOST {len(compared.lost)} vectors that base answered well have no answer now, such as {ids}"]
    for change, causes in compared.causes.items():
        for cause in causes:
            lines += ["", f"{change.upper()} {cause_text(cause, effects)}"]
            if change == "changed":
                lines.append(f"   base: {'; '.join(_causes_in_base(compared, cause))}")
    return "\n".join(lines)


def _causes_in_base(compared: GradeComparison, cause: VectorCause) -> Sequence[str]:
    """Return the sentences of base's causes for the vectors of a changed cause."""
    vectors = {one.vector.id for one in cause.grades}
    return [one.sentence for one in find_causes([one for one in compared.base.grades if one.vector.id in vectors])]


def comparison_json(compared: GradeComparison) -> JsonObject:
    """Return the comparison as a JSON object."""
    return {
        "exit_code": int(compared.exit_code),
        "verdict": compared.verdict,
        "base": {
            "implementation": compared.base.name,
            "verdict": compared.base.verdict,
            "problems": [*compared.base.problems],
        },
        "head": {
            "implementation": compared.head.name,
            "verdict": compared.head.verdict,
            "problems": [*compared.head.problems],
        },
        "lost": [one.vector.id for one in compared.lost],
        "causes": {
            change: [_comparison_cause_json(compared, change, cause) for cause in causes]
            for change, causes in compared.causes.items()
        },
    }


def _comparison_cause_json(compared: GradeComparison, change: str, cause: VectorCause) -> JsonObject:
    before = [*_causes_in_base(compared, cause)] if change == "changed" else []
    return {**cause_json(cause), "base": [*before]} if before else cause_json(cause)
