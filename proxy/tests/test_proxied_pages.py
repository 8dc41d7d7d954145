"""The pages of reports/proxied are those that `scripted.py page` writes for their tables."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "reports" / "proxied").glob("*.md")) if (ROOT / "reports").is_dir() else []
CELL = re.compile(r"(?<!\\)\|")


@pytest.fixture
def writer(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "engines" / "proxied"))
    made = runpy.run_path(str(ROOT / "engines" / "proxied" / "scripted.py"))
    for name in ("client_answer", "through"):
        sys.modules.pop(name, None)
    return made["_lines"]


def rows(text, columns):
    """The cells of each row of the table with this many columns."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]
    cells = [[one.strip().replace("\\|", "|") for one in CELL.split(line)[1:-1]] for line in lines]
    return [row for row in cells if len(row) == columns][1:]


def results_of(page):
    """The results that the page has, as the writer stores them."""
    answers = {
        request: {"reasoning": reasoning, "answer": answer, "calls": json.loads(calls or "[]"), "end": end}
        for request, reasoning, answer, calls, end in rows(page, 5)
    }
    failed = {
        request: re.findall(r"`([^`]+)`", checks)
        for request, checks in re.findall(r"^- (.+?): (`.+)$", page.partition("\n## What the guard")[2], re.MULTILINE)
    }
    kinds = list(dict.fromkeys(request.partition(",")[0] for request in answers))
    runs = []
    for shell, action, *cells in rows(page, 2 + len(kinds)):
        came = {}
        for kind, cell in zip(kinds, cells, strict=True):
            results = cell.split("; ")
            requests = [request for request in answers if request.startswith(f"{kind},")]
            came |= {request: results[number % len(results)] for number, request in enumerate(requests)}
        found = {request: failed.get(request, []) for request in answers}
        runs.append({"shell": shell, "action": action, "came": came, "failed": found, "missing": []})
    return {"straight": answers, "runs": runs}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_a_page_is_what_the_writer_makes_of_its_results(path, writer):
    page = path.read_text("utf-8")
    results = results_of(page)
    assert len(results["straight"]) == 20
    assert len(results["runs"]) >= 6
    server = page.partition("\n")[0].removeprefix("# The proxy before ")
    assert "\n".join(writer(results, server)) + "\n" == page
