"""`harmony-conformance report RUN_DIR`, or its `report.jsonl`: render the report of a finished run again."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from harmony_conformance.cli.command import Command
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.report.files import RENDERERS
from harmony_conformance.report.model import InvalidReportError, read_report
from harmony_conformance.runner.options import FAIL_ON


def configure(parser: ArgumentParser) -> None:
    """Add the options of `report`."""
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="folder of a run, or its report.jsonl")
    parser.add_argument("--format", choices=list(RENDERERS), default="html", help="output format (default: html)")


def execute(arguments: Namespace) -> int:
    """Print the rendered report."""
    path: Path = arguments.run_dir
    if not path.is_file():
        path /= "report.jsonl"
    try:
        report = read_report(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise UsageError(f"{path}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise UsageError(f"{path}: invalid UTF-8 at byte {problem.start}") from None
    except (InvalidReportError, ValueError) as problem:
        raise UsageError(f"{path}: {problem}") from None
    print(RENDERERS[arguments.format](report, FAIL_ON["must"]))
    return Exit.CONFORMS


COMMAND = Command(name="report", help="render the report of a finished run again", configure=configure, run=execute)
