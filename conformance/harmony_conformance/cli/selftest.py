"""`harmony-conformance selftest`: every defect against every check, and blind mutants."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from harmony_conformance.cli.command import Command
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import Json, dumps
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.runner.run import make_plan
from harmony_conformance.selftest.mutation_score import BlindScore, judge_mutants_of
from harmony_conformance.selftest.selftest import EVERY_API, DefectResult, SelfTest, run_selftest, sample
from harmony_conformance.selftest.through_proxy import UnknownThroughError, Watched, run_through, way_named

_SHOWN = 20


def configure(parser: ArgumentParser) -> None:
    """Where the result goes."""
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write [{defect, caught, caught_by, unrelated}] to FILE"
    )
    parser.add_argument(
        "--every",
        type=_at_least_one,
        default=1,
        metavar="N",
        help="only each Nth defect, and no mutants: a sample, which proves what it ran and nothing of the rest (default 1: all of it)",
    )
    parser.add_argument(
        "--through",
        metavar="NAME",
        help="put what NAME offers (`proxy`) in between, and tell which defects it sees, which it cannot see, and why",
    )
    parser.add_argument(
        "--evidence",
        type=Path,
        metavar="FILE",
        help="write what shows each defect of the prompt to FILE, as golden/evidence.json has it",
    )


def _at_least_one(written: str) -> int:
    if not written.isdecimal() or int(written) < 1:
        raise ArgumentTypeError(f"{written!r} is no whole number from 1 on")
    return int(written)


def execute(arguments: Namespace) -> int:
    """Test the suite on itself."""
    console = Console(highlight=False)
    for option, file in (("--json", arguments.json), ("--evidence", arguments.evidence)):
        _try_to_write(option, file)
    if arguments.through is not None:
        return _through(console, arguments.through, tuple(DEFECTS)[:: arguments.every], arguments.json)
    if arguments.every > 1:
        return _sampled(console, tuple(DEFECTS)[:: arguments.every], arguments.json)
    outcome = run_selftest(DEFECTS, lambda result: _tell(console, result), _workers())
    blind = judge_mutants_of(sample(outcome.correct.series, make_plan(EVERY_API)), _workers())
    _summary(console, outcome, blind)
    rows: list[Json] = [dict(result.line()) for result in outcome.defects]
    _write("--json", arguments.json, rows)
    _write("--evidence", arguments.evidence, {switch: dict(shown.line()) for switch, shown in outcome.evidence.items()})
    return Exit.CONFORMS if outcome.passed and not blind.unexplained else Exit.DIVERGES


def _sampled(console: Console, defects: Sequence[str], file: Path | None) -> int:
    """Some of the defects only; what needs all of them (idle checks, mutants, the table of evidence) is left out, and said to be."""
    outcome = run_selftest(defects, lambda result: _tell(console, result), _workers())
    rows: list[Json] = [dict(result.line()) for result in outcome.defects]
    _write("--json", file, rows)
    for fault in outcome.faults:
        console.print(f"[bold red]{fault}[/]", soft_wrap=True)
    clean = sum(result.as_expected for result in outcome.defects)
    console.print(
        f"a sample: {clean} of {len(rows)} defects caught by just the checks that are named for them, {len(DEFECTS) - len(rows)} not run; no blind mutants"
    )
    return Exit.CONFORMS if clean == len(rows) and not outcome.faults else Exit.DIVERGES


def _through(console: Console, way: str, defects: Sequence[str], file: Path | None) -> int:
    """What a proxy sees of each defect."""
    try:
        through = way_named(way)
    except UnknownThroughError as problem:
        raise UsageError(f"--through {problem}") from None
    outcome = run_through(through, defects, lambda one: _tell_watched(console, one), workers=_workers())
    _write("--json", file, [dict(one.line()) for one in outcome.watched])
    for fault in outcome.faults:
        console.print(f"[bold red]{fault}[/]", soft_wrap=True)
    seen = sum(bool(one.seen) for one in outcome.watched)
    reasons = Counter(reason for one in outcome.watched if not one.seen for reason in _reasons(one))
    console.print(
        f"{outcome.exchanges} exchanges of the correct server went through; of {len(outcome.watched)} defects {seen} are seen in the traffic alone, "
        f"{len(outcome.watched) - seen} are not:",
        soft_wrap=True,
    )
    for reason, count in reasons.most_common():
        console.print(f"  {count}: {reason}", soft_wrap=True)
    return Exit.CONFORMS if outcome.passed else Exit.DIVERGES


def _tell_watched(console: Console, one: Watched) -> None:
    what = ", ".join(one.seen) if one.seen else "; ".join(_reasons(one))
    console.print(f"{'[green]seen[/]' if one.seen else 'not seen'} {one.defect}: {what}", soft_wrap=True)
    for problem, checks in (("missed", one.missed), ("failed, and is not there for it", one.unrelated)):
        if checks:
            console.print(f"  [bold red]{problem}:[/] {', '.join(checks)}", soft_wrap=True)


def _reasons(one: Watched) -> Sequence[str]:
    """Why none of the checks that are there for it failed, each reason once."""
    return tuple(dict.fromkeys(f"the check needs {reason}" for reasons in one.unseen.values() for reason in reasons))


def _workers() -> int:
    return os.cpu_count() or 1


def _try_to_write(option: str, file: Path | None) -> None:
    """Find out before minutes of work would be lost; a file that was not there is not left behind."""
    if file is None:
        return
    was_there = file.exists()
    try:
        file.open("ab").close()
        if not was_there:
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


def _tell(console: Console, result: DefectResult) -> None:
    verdict = "[green]caught[/]" if result.caught else "[bold red]MISSED[/]"
    console.print(
        f"{verdict} {result.defect}: {', '.join(result.caught_by) or 'no check that is there for it failed'}",
        soft_wrap=True,
    )
    if result.unrelated:
        console.print(f"  [bold red]unrelated checks failed too:[/] {', '.join(result.unrelated)}", soft_wrap=True)
    if result.missed:
        console.print(f"  [bold red]named for it, and did not fail:[/] {', '.join(result.missed)}", soft_wrap=True)


def _summary(console: Console, outcome: SelfTest, blind: BlindScore) -> None:
    for fault in outcome.faults:
        console.print(f"[bold red]{fault}[/]", soft_wrap=True)
    for check in outcome.never_triggered:
        console.print(f"[bold red]{check} catches nothing[/]", soft_wrap=True)
    console.print()
    console.print(
        f"blind mutants: {blind.made} made, {blind.killed} killed, {blind.varied} reported as a variant, "
        f"{sum(blind.excused.values())} survive with a reason, {len(blind.unexplained)} without",
        soft_wrap=True,
    )
    for reason, count in blind.excused.most_common():
        console.print(f"  {count} survive: {reason}", soft_wrap=True)
    for survivor in blind.unexplained[:_SHOWN]:
        console.print(f"  [bold red]unexplained:[/] {dumps(survivor)}", soft_wrap=True)
    caught = sum(result.caught for result in outcome.defects)
    console.print(
        f"named defects: {caught} of {len(outcome.defects)} caught, {sum(bool(result.unrelated) for result in outcome.defects)} with unrelated failures, "
        f"{sum(bool(result.missed) for result in outcome.defects)} with a named check that did not fail"
    )


COMMAND = Command(
    name="selftest", help="every defect against every check; blind mutants", configure=configure, run=execute
)
