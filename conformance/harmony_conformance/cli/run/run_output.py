"""Output of a finished run: the summary on standard output, notes on standard error, the exit code."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from harmony_conformance.errors import Exit
from harmony_conformance.json_value import JsonObject, dumps, integer, items, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import Result, run_outcome
from harmony_conformance.report.comparison.baseline_file import BaselineUpdate
from harmony_conformance.report.files import HTML_REPORT
from harmony_conformance.report.formats.ci_formats import github_annotations
from harmony_conformance.report.formats.markdown import markdown
from harmony_conformance.report.formats.run_json import run_json
from harmony_conformance.report.formats.terminal import (
    NO_EDGE,
    print_report,
    print_summary,
    report_console,
    summary_line,
    visible,
)
from harmony_conformance.report.model import Report
from harmony_conformance.runner.limits.access_loss import INCOMPLETE_RUN_KINDS, early_stop_reason
from harmony_conformance.runner.options import failing_severities, fails_on_inconclusive
from harmony_conformance.runner.run import Run
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.terminal_text import print_commands
from harmony_conformance.transport.messages import FailureKind

_REASONS_SHOWN = 5


def print_run(arguments: Namespace, report: Report, finished: Run, out: Path, written: BaselineUpdate | None) -> int:
    """Print a finished run and return the exit code."""
    fails_on = failing_severities(arguments.fail_on)
    code = _exit_code(arguments, report, finished)
    if arguments.format == "json":
        paths: JsonObject = {"folder": str(out), "report": str(out / HTML_REPORT)}
        print(dumps({"$schema": "run.schema.json", "exit_code": int(code), **run_json(report, fails_on), **paths}))
    elif arguments.quiet:
        counted = f"; {_baseline_counts(report)}" if arguments.baseline is not None else ""
        updated = f"; {visible(str(written))}" if written is not None else ""
        print(f"{summary_line(report, fails_on, out)}{counted}{updated}")
    else:
        console = report_console(piped_width=NO_EDGE)
        (print_report if arguments.verbose else print_summary)(report, console, fails_on, out)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        _annotate(report, fails_on)
    for note in (*_notes(arguments, report, finished, code), *_update_notes(written)):
        print(visible(note), file=sys.stderr)
    return code


def _annotate(report: Report, fails_on: frozenset[Severity]) -> None:
    """Write the annotations and the summary of a step of GitHub Actions."""
    print_commands(github_annotations(report, fails_on), sys.stderr)
    if (summary := os.environ.get("GITHUB_STEP_SUMMARY")) is not None:
        try:
            with Path(summary).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(markdown(report, fails_on))
        except OSError as problem:
            print(f"GITHUB_STEP_SUMMARY: {summary}: {problem.strerror}", file=sys.stderr)


def _exit_code(arguments: Namespace, report: Report, finished: Run) -> int:
    code = _judged_code(finished.results, failing_severities(arguments.fail_on))
    if code in (Exit.CONFORMS, Exit.DIVERGES) and arguments.baseline is not None:
        code = _baseline_code(report, failing_severities(arguments.fail_on))
    is_open = report.counts[Outcome.INCONCLUSIVE] > 0 or value_at(report.header, "incomplete") is not None
    if items(value_at(report.header, "missing_features")) or (is_open and fails_on_inconclusive(arguments.fail_on)):
        code = code or Exit.DIVERGES
    cut = early_stop_reason(finished.series)
    kind = cut.kind if cut is not None else None
    if finished.missing_part or finished.unsent_part or kind in INCOMPLETE_RUN_KINDS - {FailureKind.SERVER_GONE}:
        code = max(code, Exit.USAGE)
    return code or Exit.USAGE if kind is FailureKind.SERVER_GONE else code


def _judged_code(results: tuple[Result, ...], fails_on: frozenset[Severity]) -> int:
    outcome = run_outcome(results, fails_on)
    if outcome is Outcome.ERROR:
        return Exit.INTERNAL_ERROR
    if not _has_judged(results):
        return Exit.USAGE
    return Exit.DIVERGES if outcome is Outcome.FAIL else Exit.CONFORMS


def _baseline_code(report: Report, fails_on: frozenset[Severity]) -> int:
    unexpected = frozenset(_of_baseline(report, "unexpected"))
    fails = any(result.name in unexpected and result.severity in fails_on for result in report.results)
    return Exit.DIVERGES if fails or _of_baseline(report, "stale") else Exit.CONFORMS


def _has_judged(results: tuple[Result, ...]) -> bool:
    return any(result.applied and result.severity is Severity.MUST for result in results)


def _notes(arguments: Namespace, report: Report, finished: Run, code: int) -> Iterator[str]:
    if finished.latency_skip_reason:
        yield f"latency not measured: {finished.latency_skip_reason}"
    if not _has_judged(finished.results):
        commonest = Counter(result.reason for result in finished.results if result.reason).most_common(_REASONS_SHOWN)
        details = "; ".join(f"{reason}: {times}" for reason, times in commonest)
        missing = f"no MUST check was applicable ({details})" if details else "no MUST check was selected"
        yield f"nothing could be checked: {missing}"
    for name in items(value_at(report.header, "missing_features")):
        answers = integer(value_at(report.header, "features", "answers"))
        yield f"--require {text(name)}: in none of {number_of(answers or 0, 'answer')}"
    yield from _baseline_notes(arguments, report)
    if finished.missing_part:
        yield f"recording incomplete: {finished.missing_part}; only what it contains is judged"
    cut = early_stop_reason(finished.series)
    if stopped := cut.detail if cut is not None else finished.unsent_part:
        yield f"run stopped early: {stopped}"
    reasons = [result.reason for result in report.results if result.outcome is Outcome.INCONCLUSIVE]
    if reasons and (code == Exit.CONFORMS or fails_on_inconclusive(arguments.fail_on)):
        yield f"{number_of(len(reasons), 'inconclusive result')}, for example: {reasons[0]}"


def _baseline_notes(arguments: Namespace, report: Report) -> Iterator[str]:
    if arguments.baseline is not None:
        yield f"baseline {arguments.baseline}: {_baseline_counts(report)}"
        unexpected = frozenset(_of_baseline(report, "unexpected"))
        for cause in report.causes:
            if own := sorted(unexpected.intersection(map(text, items(value_at(cause, "failed"))))):
                yield f"  not expected: {text(value_at(cause, 'id'))}: {number_of(len(own), 'failure')}, for example {own[0]}"
        yield from (f"  stale: {entry} explains no failure" for entry in _of_baseline(report, "stale"))


def _update_notes(written: BaselineUpdate | None) -> Iterator[str]:
    if written is not None:
        yield f"baseline {written}{written.todo}"


def _baseline_counts(report: Report) -> str:
    expected, unexpected, stale = (len(_of_baseline(report, name)) for name in ("expected", "unexpected", "stale"))
    return f"{number_of(expected, 'failure')} expected, {unexpected} not expected, {number_of(stale, 'stale entry', 'stale entries')}"


def _of_baseline(report: Report, name: str) -> list[str]:
    return [*map(text, items(value_at(report.header, "baseline", name)))]
