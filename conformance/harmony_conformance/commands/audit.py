"""`harmony-conformance audit PATH ...`: judge the exchanges of a log."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from harmony_conformance.command import Command, UsageError


def configure(parser: ArgumentParser) -> None:
    """Which logs."""
    parser.add_argument("paths", metavar="PATH", nargs="+", type=Path)


def execute(arguments: Namespace) -> int:
    """Scan, print; the exit code."""
    raise UsageError(f"{arguments.paths[0]}: reading logs comes next")


COMMAND = Command(name="audit", help="judge the exchanges of a log", configure=configure, run=execute)
