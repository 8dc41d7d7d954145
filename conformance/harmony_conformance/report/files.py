"""A report as the files of a run directory: `report.jsonl`, `junit.xml`, `report.md`, `report.html`."""

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
from harmony_conformance.runtime.processes import cores, forked, may_fork

Renderer = Callable[[Report, frozenset[Severity]], str]
RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {
        "html": html,
        "md": markdown,
        "junit": junit,
    }
)
_NAMES = {"html": "report.html", "md": "report.md", "junit": "junit.xml"}
_BESIDE = ("junit", "md")
_WORTH_A_PROCESS = 5_000
"""Results: to draw the files of 45,000 takes two seconds."""

REPORT = "report.jsonl"
"""The file that says everything; the others are drawn from it."""


def write_files(report: Report, out: Path, fails_on: frozenset[Severity]) -> None:
    """Write all files; from the JSON lines all others can be drawn again. Where there is much to write, two are drawn in a process of their own meanwhile."""
    is_long = len(report.results) >= _WORTH_A_PROCESS and cores() > 1
    beside = forked(_draw_beside, report, out, fails_on) if is_long and may_fork() else None
    lines = "".join(line + "\n" for line in report.lines())
    (out / REPORT).write_bytes(lines.encode("utf-8", "backslashreplace"))
    _draw(report, out, fails_on, [form for form in RENDERERS if form not in _BESIDE])
    if beside is not None:
        beside.join()
    if beside is None or beside.exitcode != 0:  # whatever kept it from it is told here
        _draw(report, out, fails_on, _BESIDE)


def _draw(report: Report, out: Path, fails_on: frozenset[Severity], forms: Iterable[str]) -> None:
    for form in forms:
        (out / _NAMES[form]).write_bytes(RENDERERS[form](report, fails_on).encode("utf-8", "backslashreplace"))


def _draw_beside(report: Report, out: Path, fails_on: frozenset[Severity]) -> None:
    gc.disable()  # to look through what the other process made would copy all of it
    try:
        _draw(report, out, fails_on, _BESIDE)
    except OSError:
        sys.exit(1)
