"""A report as the files of a run directory: `report.jsonl`, `junit.xml`, `report.md`, `report.html`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.check import Severity
from harmony_conformance.report.html import html
from harmony_conformance.report.junit import junit
from harmony_conformance.report.markdown import markdown
from harmony_conformance.report.model import Report

Renderer = Callable[[Report, frozenset[Severity]], str]
RENDERERS: Mapping[str, Renderer] = MappingProxyType(
    {
        "html": html,
        "md": markdown,
        "junit": junit,
    }
)
_NAMES = {"html": "report.html", "md": "report.md", "junit": "junit.xml"}


REPORT = "report.jsonl"
"""The file that says everything; the others are drawn from it."""


def write_files(report: Report, out: Path, fails_on: frozenset[Severity]) -> None:
    """Write all files; the JSON lines first, from which all others can be drawn again."""
    lines = "".join(line + "\n" for line in report.lines())
    (out / REPORT).write_bytes(lines.encode("utf-8", "backslashreplace"))
    for form, render in RENDERERS.items():
        (out / _NAMES[form]).write_bytes(render(report, fails_on).encode("utf-8", "backslashreplace"))
