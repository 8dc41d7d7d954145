"""Grades as text: the verdict first, then the causes with one example each, then the counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from harmony_conformance.golden.grading.grade import GradeReport, VectorCause, VectorGrade, VectorOutcome
from harmony_conformance.golden.vectors.vector_file import VectorFile
from harmony_conformance.json_value import members, text, value_at
from harmony_conformance.runtime.plural import number_of

_CAUSES_SHOWN: Final = 10
_DETAILS_SHOWN: Final = 5
_IDS_SHOWN: Final = 3
_PROBLEMS_SHOWN: Final = 5


def flag_effects(files: Sequence[VectorFile]) -> Mapping[str, str]:
    """Return the effect of each flag of the files on users."""
    notes = [members(file.document["notes"]) for file in files]
    return {flag: text(value_at(note, "effect")) for of_file in notes for flag, note in of_file.items()}


def report_text(report: GradeReport, effects: Mapping[str, str]) -> str:
    """Return the report as text. `effects` has the effect of each flag."""
    return "\n".join(_lines(report, effects))


def cause_text(cause: VectorCause, effects: Mapping[str, str]) -> str:
    """Return a cause as text: its sentence, its details, and one example."""
    return "\n".join(_cause_lines(cause, effects))


def outcome_counts(report: GradeReport) -> Mapping[str, Mapping[str, int]]:
    """Return the number of vectors by kind and outcome."""
    kinds = dict.fromkeys(one.kind for one in report.grades)
    return {kind: {outcome.value: report.count(outcome, kind) for outcome in VectorOutcome} for kind in kinds}


def uncompared_counts(report: GradeReport) -> Mapping[str, int]:
    """Return the number of vectors by the expected member that their answer does not have."""
    counts = Counter(f"{one.kind}: {name}" for one in report.grades for name in one.uncompared)
    return dict(sorted(counts.items()))


def _lines(report: GradeReport, effects: Mapping[str, str]) -> Iterator[str]:
    yield f"{report.name}: {report.verdict}"
    causes = report.causes
    failed = report.count(VectorOutcome.FAILED)
    if failed:
        yield f"{failed} of {report.judged} judged vectors fail, for {len(causes)} cause{'s' if len(causes) > 1 else ''}"
    yield from _problem_lines(report)
    for number, cause in enumerate(causes[:_CAUSES_SHOWN], start=1):
        yield ""
        yield f"{number}. {cause_text(cause, effects)}"
    if len(causes) > _CAUSES_SHOWN:
        yield f"… and {number_of(len(causes) - _CAUSES_SHOWN, 'more cause')}: --format json"
    yield ""
    yield from _count_lines(report)


def _problem_lines(report: GradeReport) -> Iterator[str]:
    yield from report.problems
    for outcome in (VectorOutcome.UNREADABLE, VectorOutcome.NOT_RUN):
        grades = report.with_outcome(outcome)
        first = {one.problem: one.vector.id for one in reversed(grades)}
        for problem, count in Counter(one.problem for one in grades).most_common(_PROBLEMS_SHOWN):
            reason = "" if problem in report.problems else f": {problem}"
            yield f"{_vectors(count)} {outcome}, the first {first[problem]}{reason}"


def _cause_lines(cause: VectorCause, effects: Mapping[str, str]) -> Iterator[str]:
    yield f"{_vectors(len(cause.grades))} ({', '.join(cause.kinds)}): {cause.sentence}"
    prefix = f"{cause.sentence}: "
    details = {name: count for name, count in cause.details.items() if name.startswith(prefix)}
    for name, count in list(details.items())[:_DETAILS_SHOWN]:
        yield f"     {name.removeprefix(prefix)}: {count}"
    if len(details) > _DETAILS_SHOWN:
        yield f"     … and {len(details) - _DETAILS_SHOWN} more"
    example = cause.example
    yield f"   for example {example.vector.id}: {example.vector.comment}"
    yield from _difference_lines(example)
    flags = Counter(flag for one in cause.grades for flag in one.vector.flags)
    if flags and (most := flags.most_common(1)[0])[1] * 2 > len(cause.grades):
        yield f"   effect ({most[0]}): {effects.get(most[0], '')}"
    others = [one.vector.id for one in cause.grades if one is not example]
    if others:
        more = f" and {len(others) - _IDS_SHOWN} more" if len(others) > _IDS_SHOWN else ""
        yield f"   also {', '.join(others[:_IDS_SHOWN])}{more}"


def _difference_lines(grade: VectorGrade) -> Iterator[str]:
    if grade.difference is None:
        return
    yield f"     at {grade.difference.where}"
    if grade.difference.before:
        yield f"     after    {grade.difference.before}"
    yield f"     expected {grade.difference.expected}"
    yield f"     got      {grade.difference.actual}"


def _count_lines(report: GradeReport) -> Iterator[str]:
    width = max((len(kind) for kind in outcome_counts(report)), default=0)
    for kind, counts in outcome_counts(report).items():
        shown = [f"{count} {name}" for name, count in counts.items() if count]
        yield f"{kind.ljust(width)}  {', '.join(shown)}"
    if report.count(VectorOutcome.DIFFERENT):
        yield "different: another answer, where the vector permits one"
    uncompared = uncompared_counts(report)
    if uncompared:
        yield f"not compared, because the answers do not have it: {', '.join(f'{name} ({count})' for name, count in uncompared.items())}"


def _vectors(count: int) -> str:
    return f"{count} vector{'s' if count > 1 else ''}"
