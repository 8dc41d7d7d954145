"""Files of a run directory: `report.jsonl`, `junit.xml`, `report.md`, `report.html`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.judge.check import Severity
from harmony_conformance.report.html import html
from harmony_conformance.report.junit import junit
from harmony_conformance.report.markdown import markdown
from harmony_conformance.report.model import Report
from harmony_conformance.runtime.private_files import write_private
from harmony_conformance.runtime.processes import cores, forked, may_fork

Renderer = Callable[[Report, frozenset[Severity]], str]
RENDERERS: Mapping[str, Renderer] = MappingProxyType({"html": html, "md": markdown, "junit": junit})
_NAMES = {"html": "report.html", "md": "report.md", "junit": "junit.xml"}
_IN_SECOND_PROCESS = ("junit", "md")
_MIN_FOR_SECOND_PROCESS = 5_000
"""Minimum number of results for a second process. Rendering the files of 45,000 results takes two seconds."""

REPORT = "report.jsonl"
"""The complete report; all other files are rendered from it."""


def write_files(report: Report, out: Path, fails_on: frozenset[Severity]) -> None:
    """Write all files to `out`. For a long report, a second process renders two of them meanwhile."""
    is_long = len(report.results) >= _MIN_FOR_SECOND_PROCESS and cores() > 1
    process = forked(_render_in_second_process, report, out, fails_on) if is_long and may_fork() else None
    lines = "".join(line + "\n" for line in report.lines())
    write_private(out / REPORT, lines.encode("utf-8", "backslashreplace"))
    _render(report, out, fails_on, [form for form in RENDERERS if form not in _IN_SECOND_PROCESS])
    if process is not None:
        process.join()
    if process is None or process.exitcode != 0:  # after a failure, try again here, where the error is reported
        _render(report, out, fails_on, _IN_SECOND_PROCESS)


def _render(report: Report, out: Path, fails_on: frozenset[Severity], forms: Iterable[str]) -> None:
    for form in forms:
        write_private(out / _NAMES[form], RENDERERS[form](report, fails_on).encode("utf-8", "backslashreplace"))


def _render_in_second_process(report: Report, out: Path, fails_on: frozenset[Severity]) -> None:
    gc.disable()  # a collection would touch, and so copy, all memory shared with the parent
    try:
        _render(report, out, fails_on, _IN_SECOND_PROCESS)
    except OSError:
        sys.exit(1)
