"""`harmony-conformance audit PATH ...`: judge the exchanges of a log, whatever its size, in one pass."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from harmony_conformance.audit.excerpt import Excerpts, apply_excerpts, apply_to_reason, names_in
from harmony_conformance.audit.lines import Place, Problem
from harmony_conformance.audit.readers import Form, LeftOut, read_exchanges
from harmony_conformance.audit.report import exit_code, make_audit, nothing_checked, unread
from harmony_conformance.audit.scan import Counting, Judged, Tally, judge_alone
from harmony_conformance.audit.terminal import print_audit
from harmony_conformance.check import Outcome
from harmony_conformance.checks import CHECKS
from harmony_conformance.command import Command, UsageError
from harmony_conformance.json_value import Json, JsonObject, dumps
from harmony_conformance.report.model import finding_json
from harmony_conformance.run_options import FAIL_ON

_PIPED_WIDTH = 160
Write = Callable[[JsonObject], object]


def configure(parser: ArgumentParser) -> None:
    """Which logs, how they are written, what may be quoted."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="JSON Lines, also compressed by gzip")
    parser.add_argument(
        "--format",
        choices=[form.value for form in Form],
        default=Form.AUTO.value,
        help='exchanges: our own exchanges.jsonl; openai: {"request": {…}, "response": {…}} (default: told line by line)',
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="write audit.jsonl, failures.jsonl and unreadable.jsonl there"
    )
    parser.add_argument(
        "--excerpts",
        choices=[excerpts.value for excerpts in Excerpts],
        default=Excerpts.REDACTED.value,
        help="what of the traffic the report quotes (default: redacted: letters and digits masked)",
    )
    parser.add_argument("--fail-on", choices=list(FAIL_ON), default="must", help="which failures give exit code 1")


def execute(arguments: Namespace) -> int:
    """Scan, write, print; the exit code."""
    paths: list[Path] = arguments.paths
    for path in paths:
        _refuse(path)
    excerpts = Excerpts(arguments.excerpts)
    with _kept(arguments.out) as (failures, unreadable):
        tallied = _scan(paths, Form(arguments.format), excerpts, failures, unreadable)
    audit = make_audit(tallied, tuple(map(str, paths)), excerpts, version("harmony-conformance"))
    if arguments.out is not None:
        (arguments.out / "audit.jsonl").write_bytes(b"".join(_line_bytes(line) for line in audit.jsonl()))
    why = nothing_checked(audit)
    if not tallied.exchanges:
        raise UsageError(f"nothing could be checked: {why}")
    if arguments.out is not None:
        print(f"audit kept in {arguments.out}", file=sys.stderr)
    print_audit(audit, _console())
    if tallied.unreadable:
        print(f"not all could be read: {unread(tallied)}", file=sys.stderr)
    if why:
        print(f"nothing could be checked: {why}", file=sys.stderr)
    return exit_code(audit, FAIL_ON[arguments.fail_on])


def _console() -> Console:
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_PIPED_WIDTH)


def _refuse(path: Path) -> None:
    if path.is_dir():
        raise UsageError(f"{path}: it is a folder, not a file: name its files, for example {path}/*.jsonl")
    if not path.exists():
        raise UsageError(f"{path}: no such file")


def _scan(paths: list[Path], form: Form, excerpts: Excerpts, failures: Write, unreadable: Write) -> Tally:
    counting = Counting()
    for path in paths:
        for place, found in _placed(path, form):
            match found:
                case Problem():
                    counting.add_problem(place, found)
                    unreadable({"file": place.file, "offset": place.offset, "kind": found.kind, "detail": found.detail})
                case LeftOut():
                    counting.leave_out()
                case Judged():
                    counting.add(found)
                    _write_failures(found, excerpts, failures)
    return counting.tally()


def _placed(path: Path, form: Form) -> Iterator[tuple[Place, Judged | LeftOut | Problem]]:
    for found in read_exchanges(path, form):
        place = Place(file=str(path), offset=found.offset)
        if isinstance(found, LeftOut | Problem):
            yield place, found
        else:
            yield place, Judged(place=place, exchange=found.exchange, results=judge_alone(found.exchange, CHECKS))


def _write_failures(judged: Judged, excerpts: Excerpts, write: Write) -> None:
    failed = [result for result in judged.results if result.outcome in (Outcome.FAIL, Outcome.ERROR)]
    if not failed:
        return
    names = names_in(judged.exchange)
    for result in failed:
        findings: list[Json] = [finding_json(apply_excerpts(told, excerpts, names)) for told in result.findings]
        write(
            {
                "exchange": str(judged.place),
                "check": result.check,
                "severity": result.severity.value,
                "outcome": result.outcome.value,
                "findings": findings,
                "reason": apply_to_reason(result.reason, excerpts),
            }
        )


@contextmanager
def _kept(out: Path | None) -> Generator[tuple[Write, Write]]:
    """What writes failing exchanges and unread lines, as they are found; nothing is written without a folder."""
    if out is None:
        yield _forget, _forget
        return
    try:
        out.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            failures, unreadable = (
                stack.enter_context((out / name).open("wb")) for name in ("failures.jsonl", "unreadable.jsonl")
            )
            yield (
                lambda value: failures.write(_line_bytes(dumps(value))),
                lambda value: unreadable.write(_line_bytes(dumps(value))),
            )
    except OSError as problem:
        raise UsageError(f"--out {out}: {problem.strerror or problem}") from None


def _forget(value: JsonObject) -> None:
    del value


def _line_bytes(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"


COMMAND = Command(name="audit", help="judge the exchanges of a log", configure=configure, run=execute)
