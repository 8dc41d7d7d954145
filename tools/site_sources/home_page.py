"""The home page: what the tool is, one picture, two commands, and a card for each kind of reader."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import title

_SOURCE = Path(__file__).with_name("home.md")
_ASSETS = Path(__file__).with_name("assets")
"""The style sheet, a script for the side bars, and the mark."""
_COUNTS = "COUNTS"


def write_home(pages: Path, reports: Mapping[str, Report]) -> None:
    """Write the page, and the files that all pages use."""
    text = _SOURCE.read_text("utf-8")
    (pages / "index.md").write_text(text.replace(f"{_COUNTS}\n", f"{_counts(reports)}\n"), encoding="utf-8")
    shutil.copytree(_ASSETS, pages / _ASSETS.name)


def _counts(reports: Mapping[str, Report]) -> str:
    """Return what the published runs found, in a sentence."""
    engines = {title(report).rpartition(" on ")[2] for report in reports.values()}
    causes = {cause["id"] for report in reports.values() for cause in report.causes}
    return f"The {len(reports)} published runs of {len(engines)} versions of engines failed for {len(causes)} different causes."
