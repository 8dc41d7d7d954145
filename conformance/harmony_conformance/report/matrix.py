"""Several runs side by side: families of checks and causes, by run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, integer, items, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.evidence_grade import evidence_grade
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import (
    CheckResults,
    by_check,
    by_family,
    family_about,
    run_verdict,
    title,
    with_outcome,
)

_LATENCIES = {
    "ttft": "Median time to the first token, one request at a time.",
    "time_to_first_answer": "Median time to the first token of the answer.",
    "inter_event_gap": "Median time between two events.",
    "end_to_end": "Median time to the end of the answer.",
}
_MILLI = 1000


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """A row: its name, what it means, and a cell for each run. The cell of a run that says nothing is empty."""

    name: str
    meaning: str
    cells: tuple[str, ...]

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        cells: list[Json] = [*self.cells]
        return {"name": self.name, "meaning": self.meaning, "cells": cells}


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Runs by name, their verdicts and latencies, families of checks, and causes. Causes with a common id of the catalogue share a row."""

    runs: tuple[str, ...]
    summary: tuple[MatrixRow, ...]
    families: tuple[MatrixRow, ...]
    causes: tuple[MatrixRow, ...]

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "runs": [*self.runs],
            "summary": [row.to_json() for row in self.summary],
            "families": [row.to_json() for row in self.families],
            "causes": [row.to_json() for row in self.causes],
        }


def make_matrix(reports: Sequence[Report], names: Sequence[str] = ()) -> Matrix:
    """Return the matrix of several runs. `names` replaces the names of the servers. Runs of equal names are numbered."""
    titles = names or [title(report) for report in reports]
    return Matrix(
        runs=tuple(
            name if titles.count(name) == 1 else f"{name} ({titles[: place + 1].count(name)})"
            for place, name in enumerate(titles)
        ),
        summary=tuple(_summary(reports)),
        families=tuple(_families(reports)),
        causes=tuple(_causes(reports)),
    )


def _summary(reports: Sequence[Report]) -> Iterator[MatrixRow]:
    """Yield verdict, share of the checks that could judge, and the medians of the latency probe with one request at a time."""
    grades = [evidence_grade(report) for report in reports]
    yield MatrixRow(
        name="verdict", meaning="MUST failures decide.", cells=tuple(run_verdict(report).headline for report in reports)
    )
    yield MatrixRow(
        name="judged",
        meaning="Checks that could judge the server, of all.",
        cells=tuple(f"{grade.judged} of {grade.checks}" for grade in grades),
    )
    for metric, meaning in _LATENCIES.items():
        cells = tuple(_median(report, metric) for report in reports)
        if any(cells):
            yield MatrixRow(name=metric.replace("_", " "), meaning=meaning, cells=cells)


def _median(report: Report, metric: str) -> str:
    load = next(iter(report.latency), None)
    median = value_at(load, "metrics", metric, "median")
    return f"{_MILLI * median:,.1f} ms" if isinstance(median, int | float) else ""


def _families(reports: Sequence[Report]) -> Iterator[MatrixRow]:
    by_run = [by_family(by_check(report)) for report in reports]
    for family in dict.fromkeys(family for families in by_run for family in families):
        cells = tuple(_family_cell(families.get(family, [])) for families in by_run)
        yield MatrixRow(name=family, meaning=family_about(family), cells=cells)


def _family_cell(checks: Sequence[CheckResults]) -> str:
    """Return how many of the checks that judged the server failed."""
    judged = [check for check in checks if check.applied]
    failed = with_outcome(judged, Outcome.FAIL)
    must = [check for check in failed if check.severity is Severity.MUST]
    if not judged:
        return "not judged"
    if not failed:
        return f"all {len(judged)} pass"
    return f"{len(failed)} of {len(judged)} fail" + ("" if must else " (SHOULD)")


def _causes(reports: Sequence[Report]) -> Iterator[MatrixRow]:
    sentences: dict[str, str] = {}
    extents: dict[str, dict[int, int]] = {}
    for run, report in enumerate(reports):
        for cause in report.causes:
            name = _shared_id(cause)
            sentences.setdefault(name, text(value_at(cause, "sentence")))
            of_cause = extents.setdefault(name, {})
            of_cause[run] = of_cause.get(run, 0) + (integer(value_at(cause, "results")) or 0)
    for name in sorted(extents, key=lambda one: (-len(extents[one]), one)):
        cells = tuple(str(extents[name].get(run, "")) for run in range(len(reports)))
        yield MatrixRow(name=name, meaning=sentences[name], cells=cells)


def _shared_id(cause: JsonObject) -> str:
    """Return the id by which a cause is compared with those of other engines."""
    shared = (*items(value_at(cause, "catalogue")), *items(value_at(cause, "defects")), value_at(cause, "id"))
    return text(shared[0])
