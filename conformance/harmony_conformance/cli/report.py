"""`harmony-conformance report RUN_DIR`, or its `report.jsonl`: render the report of a finished run again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from harmony_conformance.cli.command import Command
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.report.files import RENDERERS, REPORT
from harmony_conformance.report.model import InvalidReportError, Report, read_report
from harmony_conformance.runner.options import FAIL_ON


def configure(parser: ArgumentParser) -> None:
    """Add the options of `report`."""
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="folder of a run, or its report.jsonl")
    parser.add_argument("--format", choices=list(RENDERERS), default="html", help="output format (default: html)")


def execute(arguments: Namespace) -> int:
    """Print the rendered report."""
    print(RENDERERS[arguments.format](read_run(arguments.run_dir), FAIL_ON["must"]))
    return Exit.CONFORMS


def read_run(path: Path) -> Report:
    """Read the report of a run: its folder, or its `report.jsonl`.

    Raises:
        UsageError: There is no valid report.
    """
    if not path.is_file():
        path /= REPORT
    try:
        return read_report(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"{path}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path}: invalid UTF-8 at byte {problem.start}") from None
    except (InvalidReportError, ValueError) as problem:
        raise UsageError(f"{path}: {problem}") from None


COMMAND = Command(name="report", help="render the report of a finished run again", configure=configure, run=execute)
