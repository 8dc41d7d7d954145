"""`harmony-conformance audit PATH ...`: judge the exchanges of a log, whatever its size, in one pass."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from rich.console import Console

from harmony_conformance.audit.batches import ReadOptions, batches
from harmony_conformance.audit.log_readers import LineFormat
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.audit.report import exit_code, make_audit, nothing_checked, unread
from harmony_conformance.audit.scan import Tally
from harmony_conformance.audit.terminal import print_audit
from harmony_conformance.audit.workers import scan_all
from harmony_conformance.cli.command import Command
from harmony_conformance.errors import UsageError
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.runner.options import FAIL_ON

_PIPED_WIDTH = 160
Write = Callable[[JsonObject], object]


def configure(parser: ArgumentParser) -> None:
    """Which logs, how they are written, what may be quoted."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="JSON Lines, also compressed by gzip")
    parser.add_argument(
        "--format",
        choices=[form.value for form in LineFormat],
        default=LineFormat.AUTO.value,
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
    parser.add_argument(
        "--workers",
        type=_count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="judge in so many processes; a small log is judged in one (default: as many as there are processors, %(default)s)",
    )
    parser.add_argument("--fail-on", choices=list(FAIL_ON), default="must", help="which failures give exit code 1")


def _count(value: str) -> int:
    if not value.isdecimal() or int(value) < 1:
        raise ArgumentTypeError(f"{value!r} is no number of processes: 1 or more")
    return int(value)


def execute(arguments: Namespace) -> int:
    """Scan, write, print; the exit code."""
    paths: list[Path] = arguments.paths
    for path in paths:
        if path.is_dir():
            raise UsageError(f"{path}: it is a folder, not a file: name its files, for example {path}/*.jsonl")
        if not path.exists():
            raise UsageError(f"{path}: no such file")
    excerpts = Excerpts(arguments.excerpts)
    with _kept(arguments.out) as (failures, unreadable):
        reading = ReadOptions(form=LineFormat(arguments.format), excerpts=excerpts)
        tallied = _scan(paths, reading, arguments.workers, failures, unreadable)
        audit = make_audit(tallied, tuple(map(str, paths)), excerpts, version("harmony-conformance"))
        if arguments.out is not None:
            (arguments.out / "audit.jsonl").write_bytes(b"".join(_line_bytes(line) for line in audit.jsonl()))
    why = nothing_checked(audit)
    if not tallied.exchanges:
        raise UsageError(f"nothing could be checked: {why}")
    if arguments.out is not None:
        print(f"audit kept in {arguments.out}", file=sys.stderr)
    console = Console(highlight=False)
    print_audit(audit, console if console.is_terminal else Console(highlight=False, width=_PIPED_WIDTH))
    if tallied.unreadable:
        print(f"not all could be read: {unread(tallied)}", file=sys.stderr)
    if why:
        print(f"nothing could be checked: {why}", file=sys.stderr)
    return exit_code(audit, FAIL_ON[arguments.fail_on])


def _scan(paths: list[Path], reading: ReadOptions, workers: int, failures: Write, unreadable: Write) -> Tally:
    total = Tally()
    for scanned in scan_all(batches(paths), reading, workers=workers):
        total += scanned.tally
        for told in scanned.unreadable:
            unreadable(told)
        for told in scanned.failures:
            failures(told)
    return total


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
