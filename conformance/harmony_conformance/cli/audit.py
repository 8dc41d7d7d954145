"""`harmony-conformance audit PATH ...`: judge the exchanges of a log of any size in one pass."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path

from harmony_conformance.audit.batches import ReadOptions, batches
from harmony_conformance.audit.log_readers import LineFormat
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.audit.report import error_summary, exit_code, make_audit, unchecked_reason, unreadable_summary
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.audit.terminal import print_audit
from harmony_conformance.audit.workers import scan_all
from harmony_conformance.cli.command import Command
from harmony_conformance.errors import UsageError
from harmony_conformance.report.terminal import report_console
from harmony_conformance.runner.options import FAIL_ON, whole_number
from harmony_conformance.runtime.private_files import create_private_folder, private_opener, write_private

_PIPED_WIDTH = 160
Write = Callable[[bytes], object]


def configure(parser: ArgumentParser) -> None:
    """Add the options of `audit`."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path, help="JSON Lines file, plain or gzip")
    parser.add_argument(
        "--format",
        choices=[form.value for form in LineFormat],
        default=LineFormat.AUTO.value,
        help='exchanges: exchanges.jsonl of a run; openai: {"request": {…}, "response": {…}} (default: auto, per line)',
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for audit.jsonl, failures.jsonl and unreadable.jsonl"
    )
    parser.add_argument(
        "--excerpts",
        choices=[excerpts.value for excerpts in Excerpts],
        default=Excerpts.REDACTED.value,
        help="quotations of the traffic (default: redacted: letters and digits masked)",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of processes; a small log needs one (default: number of CPUs, %(default)s)",
    )
    parser.add_argument("--fail-on", choices=list(FAIL_ON), default="must", help="lowest severity for exit code 1")


def execute(arguments: Namespace) -> int:
    """Scan the logs, write the files, print the report and return the exit code."""
    paths: list[Path] = arguments.paths
    for path in paths:
        if path.is_dir():
            raise UsageError(f"invalid PATH: expected a file, for example {path}/*.jsonl, got the folder {path}")
        if not path.exists():
            raise UsageError(f"{path}: no such file")
    excerpts = Excerpts(arguments.excerpts)
    total = Tally()
    with _open_files(arguments.out) as (write_failure, write_unreadable):
        reading = ReadOptions(form=LineFormat(arguments.format), excerpts=excerpts)
        for scanned in scan_all(batches(paths), reading, workers=arguments.workers):
            total += scanned.tally
            write_unreadable(scanned.unreadable)
            write_failure(scanned.failures)
        audit = make_audit(total, tuple(map(str, paths)), excerpts, version("harmony-conformance"))
        if arguments.out is not None:
            write_private(arguments.out / "audit.jsonl", b"".join(_line_bytes(line) for line in audit.jsonl()))
    reason = unchecked_reason(audit)
    if not total.exchanges and not total.errors:
        raise UsageError(f"nothing could be checked: {reason}")
    if arguments.out is not None:
        print(f"audit written to {arguments.out}", file=sys.stderr)
    print_audit(audit, report_console(piped_width=_PIPED_WIDTH))
    if total.unreadable:
        print(f"unreadable lines: {unreadable_summary(total)}", file=sys.stderr)
    if total.errors:
        print(f"not judged because of internal errors: {error_summary(total)}", file=sys.stderr)
    if reason:
        print(f"nothing could be checked: {reason}", file=sys.stderr)
    return exit_code(audit, FAIL_ON[arguments.fail_on])


@contextmanager
def _open_files(out: Path | None) -> Generator[tuple[Write, Write]]:
    """Open failures.jsonl and unreadable.jsonl in `out` and yield a writer for each. Without a folder, nothing is written."""
    if out is None:
        yield (lambda _: None), (lambda _: None)
        return
    try:
        create_private_folder(out)
        with ExitStack() as stack:
            failures, unreadable = (
                stack.enter_context(open(out / name, "wb", opener=private_opener))
                for name in ("failures.jsonl", "unreadable.jsonl")
            )
            yield failures.write, unreadable.write
    except OSError as problem:
        raise UsageError(f"--out {out}: {problem.strerror or problem}") from None


def _line_bytes(line: str) -> bytes:
    return line.encode("utf-8", "backslashreplace") + b"\n"


COMMAND = Command(name="audit", help="judge the exchanges of a traffic log", configure=configure, run=execute)
