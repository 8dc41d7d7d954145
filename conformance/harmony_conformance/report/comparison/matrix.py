"""Several runs side by side: families of checks, causes, rates and latencies under load, by run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, integer, items, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.evidence_grade import evidence_grade
from harmony_conformance.report.model import Report, rate_limited
from harmony_conformance.report.summary import (
    CheckResults,
    Standing,
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
_THREADS = 4
_JUDGED = (Outcome.PASS, Outcome.VARIANT, Outcome.FAIL)
_NOT_JUDGED = "not judged"
"""The cell of a run that did not judge what failed in another: an empty one would look like a pass."""


@dataclass(frozen=True, kw_only=True)
class MatrixRow:
    """A row: its name, what it means, and a cell for each run. The cell of a run that says nothing is empty.

    Attributes:
        worse: The places of the cells that are significantly worse than the best.
        threads: Addresses of issues and pull requests about a cause. The JSON form leaves them out, as the reports have them.
    """

    name: str
    meaning: str
    cells: tuple[str, ...]
    worse: tuple[int, ...] = ()
    threads: tuple[str, ...] = ()

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        cells: list[Json] = [*self.cells]
        return {"name": self.name, "meaning": self.meaning, "cells": cells, "worse": [*self.worse]}


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """Runs by name: verdicts and latencies, families of checks, causes, rates, and latencies under load.

    Causes with a common id of the catalogue share a row.
    """

    runs: tuple[str, ...]
    summary: tuple[MatrixRow, ...]
    families: tuple[MatrixRow, ...]
    causes: tuple[MatrixRow, ...]
    rates: tuple[MatrixRow, ...] = ()
    load: tuple[MatrixRow, ...] = ()

    def parts(self) -> tuple[tuple[str, tuple[MatrixRow, ...]], ...]:
        """Return each part that has rows, with its title. That of the summary is empty."""
        titled = (
            ("", self.summary),
            ("Rates", self.rates),
            ("Latency under load", self.load),
            ("Checks that failed", self.families),
            ("Failed results by cause", self.causes),
        )
        return tuple((title, rows) for title, rows in titled if rows)

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        return {
            "$schema": "matrix.schema.json",
            "runs": [*self.runs],
            "summary": [row.to_json() for row in self.summary],
            "families": [row.to_json() for row in self.families],
            "causes": [row.to_json() for row in self.causes],
            "rates": [row.to_json() for row in self.rates],
            "load": [row.to_json() for row in self.load],
        }


def make_matrix(
    reports: Sequence[Report | None],
    names: Sequence[str] = (),
    rates: Iterable[MatrixRow] = (),
    load: Iterable[MatrixRow] = (),
) -> Matrix:
    """Return the matrix of several runs. `names` replaces the names of the servers. Runs of equal names are numbered.

    `reports`: None for an endpoint with rates or loads alone.
    """
    titles = names or [title(report) if report is not None else "" for report in reports]
    return Matrix(
        runs=tuple(
            name if titles.count(name) == 1 else f"{name} ({titles[: place + 1].count(name)})"
            for place, name in enumerate(titles)
        ),
        summary=tuple(_summary(reports)),
        families=tuple(_families(reports)),
        causes=tuple(_causes(reports)),
        rates=tuple(rates),
        load=tuple(load),
    )


def _summary(reports: Sequence[Report | None]) -> Iterator[MatrixRow]:
    """Yield verdict, share of the checks that could judge, and the medians of the latency probe with one request at a time."""
    if not any(reports):
        return
    verdicts = [run_verdict(report) if report is not None else None for report in reports]
    diverging = tuple(
        place for place, one in enumerate(verdicts) if one is not None and one.standing is Standing.DIVERGES
    )
    cells = tuple(one.headline if one is not None else "" for one in verdicts)
    yield MatrixRow(name="verdict", meaning="MUST failures decide.", cells=cells, worse=diverging)
    yield MatrixRow(
        name="judged", meaning="Checks that could judge the server, of all.", cells=tuple(map(_judged, reports))
    )
    limited = [rate_limited(report.results) if report is not None else 0 for report in reports]
    if any(limited):
        meaning = "Results that a rate limit (HTTP 429) left open. --resume continues a run."
        yield MatrixRow(name="rate limited", meaning=meaning, cells=tuple(str(count or "") for count in limited))
    for metric, meaning in _LATENCIES.items():
        cells = tuple(_median(report, metric) for report in reports)
        if any(cells):
            yield MatrixRow(name=metric.replace("_", " "), meaning=meaning, cells=cells)


def _judged(report: Report | None) -> str:
    if report is None:
        return ""
    grade = evidence_grade(report)
    return f"{grade.judged} of {grade.checks}"


def _median(report: Report | None, metric: str) -> str:
    load = next(iter(report.latency), None) if report is not None else None
    median = value_at(load, "metrics", metric, "median")
    return f"{_MILLI * median:,.1f} ms" if isinstance(median, int | float) else ""


def _families(reports: Sequence[Report | None]) -> Iterator[MatrixRow]:
    by_run = [by_family(by_check(report)) if report is not None else {} for report in reports]
    for family in dict.fromkeys(family for families in by_run for family in families):
        found = [families.get(family, []) for families in by_run]
        cells = tuple(
            _family_cell(one) if report is not None else "" for one, report in zip(found, reports, strict=True)
        )
        failed = tuple(place for place, one in enumerate(found) if _failed_must(one))
        yield MatrixRow(name=family, meaning=family_about(family), cells=cells, worse=failed)


def _family_cell(checks: Sequence[CheckResults]) -> str:
    """Return how many of the checks that judged the server failed."""
    judged = [check for check in checks if check.applied]
    failed = with_outcome(judged, Outcome.FAIL)
    if not judged:
        return _NOT_JUDGED
    if not failed:
        return f"all {len(judged)} pass"
    return f"{len(failed)} of {len(judged)} fail" + ("" if _failed_must(checks) else " (SHOULD)")


def _failed_must(checks: Sequence[CheckResults]) -> bool:
    return any(check.severity is Severity.MUST for check in with_outcome(checks, Outcome.FAIL))


def _causes(reports: Sequence[Report | None]) -> Iterator[MatrixRow]:
    sentences: dict[str, str] = {}
    extents: dict[str, dict[int, int]] = {}
    threads: dict[str, dict[str, None]] = {}
    failed: dict[str, set[str]] = {}
    for run, report in enumerate(reports):
        for cause in report.causes if report is not None else ():
            name = _shared_id(cause)
            sentences.setdefault(name, text(value_at(cause, "sentence")))
            threads.setdefault(name, {}).update(dict.fromkeys(map(text, items(value_at(cause, "threads")))))
            failed.setdefault(name, set()).update(map(text, items(value_at(cause, "failed"))))
            of_cause = extents.setdefault(name, {})
            of_cause[run] = of_cause.get(run, 0) + (integer(value_at(cause, "results")) or 0)
    judged = [_judged_results(report) for report in reports]
    for name in sorted(extents, key=lambda one: (-len(extents[one]), one)):
        is_open = [
            report is not None and bool(failed[name]) and not one & failed[name]
            for report, one in zip(reports, judged, strict=True)
        ]
        cells = tuple(str(extents[name].get(run, _NOT_JUDGED if is_open[run] else "")) for run in range(len(reports)))
        worse = tuple(sorted(extents[name]))
        yield MatrixRow(
            name=name, meaning=sentences[name], cells=cells, worse=worse, threads=tuple(threads[name])[:_THREADS]
        )


def _judged_results(report: Report | None) -> frozenset[str]:
    """Return the names of the results that say something about the server."""
    results = report.results if report is not None else ()
    return frozenset(one.name for one in results if one.outcome in _JUDGED)


def _shared_id(cause: JsonObject) -> str:
    """Return the id by which a cause is compared with those of other engines."""
    shared = (*items(value_at(cause, "catalogue")), *items(value_at(cause, "defects")), value_at(cause, "id"))
    return text(shared[0])
