"""The pages of published runs. They are made by all processors while the other pages are written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from harmony_conformance.cli.report import read_run, recorded_exchanges
from harmony_conformance.report.pages.exchange_view import exchange_views, shown_exchanges
from harmony_conformance.report.pages.html import html
from harmony_conformance.runner.options import FAIL_ON
from site_sources.copied_pages import ROOT

_BRAND = '<div class="brand">harmony-conformance</div>'
_WAY_BACK = '<div class="brand"><a href="../../">harmony-conformance</a> · <a href="../">published runs</a></div>'
"""The pages have no navigation of the site."""


def published_runs() -> Sequence[str]:
    """Return the names of the folders of published runs."""
    return sorted(file.parent.name for file in (ROOT / "reports").glob("*/report.jsonl.xz"))


@contextmanager
def runs_written(folder: Path, names: Sequence[str], *, is_draft: bool) -> Iterator[None]:
    """Write the page of each published run, empty in a draft, until the end of the context."""
    for name in names:
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "report.html").touch()
    if is_draft:
        yield
        return
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        writing = [pool.submit(_write, folder / name / "report.html", name) for name in names]
        yield
        for one in writing:
            one.result()


def _write(page: Path, name: str) -> None:
    run = ROOT / "reports" / name
    report = read_run(run)
    views = exchange_views(shown_exchanges(report), recorded_exchanges(run), str)
    page.write_text(with_way_back(html(report, FAIL_ON["must"], views)), encoding="utf-8")


def with_way_back(page: str) -> str:
    """Return the page of a run with links to the site."""
    if _BRAND not in page:
        raise ValueError(f"invalid page of a run: expected {_BRAND}")
    return page.replace(_BRAND, _WAY_BACK, 1)
