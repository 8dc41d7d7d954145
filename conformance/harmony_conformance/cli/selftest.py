"""`harmony-conformance selftest`: test every check on every defect, and on blind mutants."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console

from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import Json, dumps
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.report.formats.terminal import report_console
from harmony_conformance.runner.run import make_plan
from harmony_conformance.selftest.mutation_score import MutationScore, judge_mutants_of
from harmony_conformance.selftest.selftest import (
    ALL_APIS_OPTIONS,
    DefectResult,
    SelfTest,
    run_selftest,
    select_mutation_series,
)
from harmony_conformance.selftest.through_proxy import (
    ProxyDefectResult,
    UnknownProxyError,
    load_proxy,
    run_proxy_selftest,
)

_SHOWN = 20
_WORKERS = os.cpu_count() or 1


def execute(arguments: Namespace) -> int:
    """Run the selftest and return the exit code."""
    console = report_console(piped_width=None)
    for option, file in (("--json", arguments.json), ("--evidence", arguments.evidence)):
        _check_writable(option, file)
    defects = tuple(DEFECTS)[:: arguments.every]
    if arguments.through is not None:
        return _through(console, arguments.through, defects, arguments.json)
    outcome = run_selftest(defects, lambda result: _print_defect(console, result), _WORKERS)
    rows: list[Json] = [dict(result.to_json()) for result in outcome.defects]
    if arguments.every > 1:
        _write("--json", arguments.json, rows)
        return _summarize_sample(console, outcome)
    blind = judge_mutants_of(select_mutation_series(outcome.correct_run.series, make_plan(ALL_APIS_OPTIONS)), _WORKERS)
    _summarize(console, outcome, blind)
    _write("--json", arguments.json, rows)
    _write(
        "--evidence", arguments.evidence, {switch: dict(shown.to_json()) for switch, shown in outcome.evidence.items()}
    )
    return Exit.CONFORMS if outcome.passed and not blind.unexplained else Exit.DIVERGES


def _summarize_sample(console: Console, outcome: SelfTest) -> int:
    """Print the result for a part of the defects. Idle checks, mutants and the table of evidence need all of them."""
    _print_faults(console, outcome.correct_run_problems)
    clean = sum(result.is_as_expected for result in outcome.defects)
    console.print(
        f"sample: {clean} of {len(outcome.defects)} defects detected by exactly the expected checks, "
        f"{len(DEFECTS) - len(outcome.defects)} not run; no blind mutants"
    )
    return Exit.CONFORMS if clean == len(outcome.defects) and not outcome.correct_run_problems else Exit.DIVERGES


def _through(console: Console, way: str, defects: Sequence[str], file: Path | None) -> int:
    """Run the defects through a proxy, print those that are detected in its traffic, and return the exit code."""
    try:
        through = load_proxy(way)
    except UnknownProxyError as problem:
        raise UsageError(f"--through {problem}") from None
    outcome = run_proxy_selftest(through, defects, lambda one: _print_watched(console, one), workers=_WORKERS)
    _write("--json", file, [dict(one.to_json()) for one in outcome.defect_results])
    _print_faults(console, outcome.correct_run_problems)
    seen = sum(bool(one.detected_by) for one in outcome.defect_results)
    reasons = Counter(reason for one in outcome.defect_results if not one.detected_by for reason in _reasons(one))
    console.print(
        f"{outcome.exchange_count} exchanges of the correct server were proxied; {seen} of {len(outcome.defect_results)} defects "
        f"are detected in the traffic alone, {len(outcome.defect_results) - seen} are not:",
        soft_wrap=True,
    )
    for reason, count in reasons.most_common():
        console.print(f"  {count}: {reason}", soft_wrap=True)
    return Exit.CONFORMS if outcome.passed else Exit.DIVERGES


def _print_watched(console: Console, one: ProxyDefectResult) -> None:
    details = ", ".join(one.detected_by) if one.detected_by else "; ".join(_reasons(one))
    console.print(
        f"{'[green]detected[/]' if one.detected_by else 'not detected'} {one.defect}: {details}", soft_wrap=True
    )
    _print_problems(console, (("missed", one.missed), ("unexpected failures", one.unrelated)))


def _reasons(one: ProxyDefectResult) -> Sequence[str]:
    """Return the distinct reasons why none of the defect's checks failed."""
    return tuple(
        dict.fromkeys(
            f"the check needs {reason}" for reasons in one.undetectable_reasons.values() for reason in reasons
        )
    )


def _check_writable(option: str, file: Path | None) -> None:
    """Raise before minutes of work would be lost. A file that did not exist is removed again."""
    if file is None:
        return
    existed = file.exists()
    try:
        file.open("ab").close()
        if not existed:
            file.unlink()
    except OSError as problem:
        raise UsageError(f"{option} {file}: {problem.strerror}") from None


def _write(option: str, file: Path | None, value: Json) -> None:
    if file is None:
        return
    try:
        file.write_text(dumps(value) + "\n", encoding="utf-8")
    except OSError as problem:
        raise UsageError(f"{option} {file}: {problem.strerror}") from None


def _print_defect(console: Console, result: DefectResult) -> None:
    verdict = "[green]caught[/]" if result.is_caught else "[bold red]MISSED[/]"
    console.print(
        f"{verdict} {result.defect}: {', '.join(result.caught_by) or 'no expected check failed'}", soft_wrap=True
    )
    problems = (("unrelated checks failed too", result.unrelated), ("expected to fail but passed", result.missed))
    _print_problems(console, problems)


def _print_problems(console: Console, problems: Iterable[tuple[str, Sequence[str]]]) -> None:
    for problem, checks in problems:
        if checks:
            console.print(f"  [bold red]{problem}:[/] {', '.join(checks)}", soft_wrap=True)


def _print_faults(console: Console, faults: Iterable[str]) -> None:
    for fault in faults:
        console.print(f"[bold red]{fault}[/]", soft_wrap=True)


def _summarize(console: Console, outcome: SelfTest, blind: MutationScore) -> None:
    _print_faults(
        console, (*outcome.correct_run_problems, *(f"{check} detects no defect" for check in outcome.never_triggered))
    )
    console.print()
    console.print(
        f"blind mutants: {blind.made} made, {blind.killed} killed, {blind.reported_as_variant} reported as a variant, "
        f"{sum(blind.excused.values())} survive with a reason, {len(blind.unexplained)} without",
        soft_wrap=True,
    )
    for reason, count in blind.excused.most_common():
        console.print(f"  {count} survive: {reason}", soft_wrap=True)
    for survivor in blind.unexplained[:_SHOWN]:
        console.print(f"  [bold red]unexplained:[/] {dumps(survivor)}", soft_wrap=True)
    results = outcome.defects
    console.print(
        f"named defects: {sum(result.is_caught for result in results)} of {len(results)} caught, "
        f"{sum(bool(result.unrelated) for result in results)} with unrelated failures, "
        f"{sum(bool(result.missed) for result in results)} with an expected check that passed"
    )
