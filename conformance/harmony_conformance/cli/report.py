"""`harmony-conformance report RUN_DIR`, or its `report.jsonl`: render the report of a finished run again."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.recording_file import read_recorded
from harmony_conformance.report.files import RENDERERS, Renderer, read_report_file
from harmony_conformance.report.formats.ci_formats import badge_json, badge_svg, ctrf, github_annotations, sarif
from harmony_conformance.report.formats.junit import junit
from harmony_conformance.report.model import InvalidReportError, Report
from harmony_conformance.report.pages.exchange_view import exchange_views, shown_exchanges
from harmony_conformance.report.pages.html import html
from harmony_conformance.runner.options import FAIL_ON
from harmony_conformance.runner.shared_run import EXCHANGES
from harmony_conformance.runtime.terminal_text import print_commands, print_document

_FORMATS: Mapping[str, Renderer] = MappingProxyType(
    {
        **RENDERERS,
        "junit-all": partial(junit, with_unapplied=True),
        "sarif": sarif,
        "ctrf": ctrf,
        "github": github_annotations,
        "badge-json": badge_json,
        "badge-svg": badge_svg,
    }
)


def execute(arguments: Namespace) -> int:
    """Print the rendered report."""
    report = read_run(arguments.run_dir)
    if arguments.format == "html":
        views = exchange_views(shown_exchanges(report), recorded_exchanges(arguments.run_dir), str)
        document = html(report, FAIL_ON["must"], views)
    else:
        document = _FORMATS[arguments.format](report, FAIL_ON["must"])
    if arguments.format == "github":
        print_commands(document, sys.stdout)
    else:
        print_document(document)
    return Exit.CONFORMS


def recorded_exchanges(path: Path) -> Iterator[Exchange]:
    """Yield the exchanges of a run: its folder, its report or its recording. Nothing if there is no recording."""
    folder = path if path.is_dir() else path.parent
    files = (path,) if path.name.startswith(EXCHANGES) else (folder / EXCHANGES, folder / f"{EXCHANGES}.gz")
    if (file := next(filter(Path.is_file, files), None)) is not None:
        yield from (x for series in read_recorded(file) for x in series.exchanges.values())


def read_run(path: Path) -> Report:
    """Read the report of a run: its folder or file.

    Raises:
        UsageError: There is no valid report.
    """
    try:
        return read_report_file(path)
    except InvalidReportError as problem:
        raise UsageError(str(problem)) from None
