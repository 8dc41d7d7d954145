"""The pages of published runs, and a list of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harmony_conformance.cli.report import recorded_exchanges
from harmony_conformance.report.model import Report
from harmony_conformance.report.pages.exchange_view import exchange_views, shown_exchanges
from harmony_conformance.report.pages.html import html
from harmony_conformance.runner.options import FAIL_ON
from site_sources.copied_pages import ROOT
from site_sources.markdown import write_page


def write_runs(folder: Path, reports: Mapping[str, Report], *, is_draft: bool) -> None:
    """Write the page of each published run, empty in a draft, and a list of them."""
    for name, report in reports.items():
        page = "" if is_draft else _page(name, report)
        (folder / name / "report.html").write_text(page, encoding="utf-8")
    rows = (f"- [{name}]({name}/report.html)" for name in reports)
    about = "Each page has filters by severity, cause, family and stream, and whole exchanges."
    write_page(folder / "pages.md", ("# Runs as pages\n", f"{about}\n", *rows))


def _page(name: str, report: Report) -> str:
    views = exchange_views(shown_exchanges(report), recorded_exchanges(ROOT / "reports" / name), str)
    return html(report, FAIL_ON["must"], views)
