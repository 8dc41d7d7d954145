"""`--baseline` and `--baseline-write`: the baselines of a run, read before anything is sent."""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import dataclass

from harmony_conformance.errors import UsageError
from harmony_conformance.report.comparison.baseline import NO_ENTRIES, Expected, InvalidBaselineError, read_baseline
from harmony_conformance.report.comparison.baseline_file import BaselineFile, read_baseline_file


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """The entries that `--baseline` expects, and the file that `--baseline-write` changes. None without the option."""

    expected: tuple[Expected, ...] | None = None
    file: BaselineFile | None = None


def read_baselines(arguments: Namespace) -> Baselines:
    """Read the files of both options. A baseline without entries is named on standard error.

    Raises:
        UsageError: One is no baseline.
    """
    option = "--baseline"
    try:
        expected = read_baseline(arguments.baseline) if arguments.baseline is not None else None
        option = "--baseline-write"
        file = read_baseline_file(arguments.baseline_write) if arguments.baseline_write is not None else None
    except InvalidBaselineError as problem:
        raise UsageError(f"{option} {problem}") from None
    if expected == ():
        print(f"baseline {arguments.baseline}: {NO_ENTRIES}", file=sys.stderr)
    return Baselines(expected=expected, file=file)
