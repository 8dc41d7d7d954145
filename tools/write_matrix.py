"""Write `reports/MATRIX.md`: the engines side by side, from the stored reports.

    python tools/write_matrix.py [--check] [FOLDER]

FOLDER has the reports, by default `reports`. With `--check`, nothing is written: exit code 1 if the page is not current.
"""

from __future__ import annotations

import re
import sys
from argparse import ArgumentParser
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from harmony_conformance.report.comparison.matrix import MatrixRow, make_matrix
from harmony_conformance.report.files import read_report_file
from harmony_conformance.report.formats.markdown import inline, prose, table
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import title

REPORTS = Path(__file__).parents[1] / "reports"
MOST_RUNS = 5
"""Largest number of runs in a table: a page of a repository shows so many without scrolling."""
_PAGE = "MATRIX.md"
_COUNT = re.compile(r"(?:all )?(\d+)(?: of (\d+) fail| pass)")
_HEAD = """# Engines side by side

The published runs, by engine. This page is written by `tools/write_matrix.py`. `harmony-conformance matrix RUN…` compares your own runs.

- A cell such as 3/14 means: 3 of 14 checks fail. It is bold if one of them is a MUST check, and empty if no check could judge the server.
- The counts are no ranking: what a server does not show, and scripts that it could not play, leave checks out.
- Causes with a common id of the [catalogue](../golden/defects.json) share a row. `harmony-conformance explain ID` explains each.
- The documentation site has the same as tables with links to each cause: [how to build it](../docs/install.md#the-documentation-as-a-site).
"""


def page(reports: Mapping[str, Report]) -> str:
    """Return the page. `reports`: by the names of their folders."""
    engines: dict[str, list[str]] = {}
    for name, report in reports.items():
        engines.setdefault(title(report).rpartition(" on ")[2].partition(" ")[0], []).append(name)
    parts = (_engine(engine, names, reports) for engine, names in sorted(engines.items()))
    return "\n".join((_HEAD, *_shared(reports, engines), *chain.from_iterable(parts)))


def _shared(reports: Mapping[str, Report], engines: Mapping[str, Sequence[str]]) -> Iterator[str]:
    engine_of = {name: engine for engine, names in engines.items() for name in names}
    yield "## Causes that several engines have\n"
    rows = []
    for row in make_matrix([*reports.values()], [*reports]).causes:
        found = dict.fromkeys(engine_of[[*reports][place]] for place in row.worse)
        if len(found) > 1:
            rows.append((f"`{row.name}`", ", ".join(map(inline, found)), prose(row.meaning)))
    yield f"{table(('cause', 'engines', 'what happens'), rows)}\n"


def _engine(engine: str, names: Sequence[str], reports: Mapping[str, Report]) -> Iterator[str]:
    yield f"## {engine}\n"
    for first in range(0, len(names), MOST_RUNS):
        few = names[first : first + MOST_RUNS]
        matrix = make_matrix([reports[name] for name in few], few)
        links = [f"[{inline(name)}]({name}/report.md)" for name in few]
        families = [(inline(row.name), *(_short(row, place) for place in range(len(few)))) for row in matrix.families]
        yield f"{table(('checks that fail', *links), families)}\n"
        causes = [(f"`{row.name}`", *row.cells, prose(row.meaning)) for row in matrix.causes]
        yield f"{table(('failed results by cause', *links, 'what happens'), causes)}\n"


def _short(row: MatrixRow, place: int) -> str:
    match = _COUNT.match(row.cells[place])
    if match is None:
        return ""
    if match[2] is None:
        return f"0/{match[1]}"
    counts = f"{match[1]}/{match[2]}"
    return f"**{counts}**" if place in row.worse else counts


def main() -> int:
    """Write the page, or compare it."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=REPORTS)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    reports = {file.parent.name: read_report_file(file) for file in sorted(folder.glob("*/report.jsonl.xz"))}
    file, text = folder / _PAGE, page(reports)
    if not arguments.check:
        file.write_text(text, "utf-8")
    elif not file.is_file() or file.read_text("utf-8") != text:
        sys.stderr.write(f"{file.name} is not current: run `python tools/write_matrix.py`\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
