"""Published runs side by side: an overview of all, and a page for each engine."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.report.comparison.matrix import Matrix, MatrixRow, make_matrix
from harmony_conformance.report.model import Report
from harmony_conformance.report.summary import title
from site_sources.explained_pages import kinds
from site_sources.markdown import write_page

_ABOUT = (
    "Each number counts checks that fail, of those that could judge the server. What a server does not show, and scripts that it could not play,"
    " leave checks out, so the counts are no ranking. `harmony-conformance matrix RUN…` makes such a table of your own runs.\n"
)
_COUNT = re.compile(r"(?:all )?(\d+)(?: of (\d+) fail| pass)")
_BREAK = "<br>"


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table that scrolls sideways, whose first column stays.

    Attributes:
        heads: Cells of the first row, as HTML.
        rows: Cells of the others, each with its class, as HTML.
        is_vertical: Whether the texts of the first row run upwards.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[tuple[str, str]]]
    is_vertical: bool = False

    def __str__(self) -> str:
        """Return the table as HTML in one line, which Markdown leaves as it is."""
        head = "".join(f'<th scope="col">{cell}</th>' for cell in self.heads)
        body = "".join(
            f"<tr>{''.join(_cell(place, *cell) for place, cell in enumerate(row))}</tr>" for row in self.rows
        )
        kind = " vertical" if self.is_vertical else ""
        return f'<div class="matrix{kind}" tabindex="0"><table class="runs"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'


def _cell(place: int, text: str, kind: str) -> str:
    named = f' class="{kind}"' if kind else ""
    return f"<td{named}>{text}</td>" if place else f'<th scope="row">{text}</th>'


def write_matrix(folder: Path, reports: Mapping[str, Report]) -> None:
    """Write the overview and the pages of the engines. `reports` are the published ones, by folder."""
    engines: dict[str, list[str]] = {}
    for name, report in reports.items():
        engines.setdefault(title(report).rpartition(" on ")[2].partition(" ")[0], []).append(name)
    write_page(folder / "index.md", _overview(make_matrix([*reports.values()], [*reports]), engines))
    for engine, names in engines.items():
        matrix = make_matrix([reports[name] for name in names], names)
        write_page(folder / f"{engine}.md", (f"# {engine}\n", _ABOUT, *_parts(matrix)))


def _overview(matrix: Matrix, engines: Mapping[str, Sequence[str]]) -> Iterator[str]:
    yield "---\nhide:\n  - toc\n---\n"
    yield "# Engines side by side\n"
    yield _ABOUT
    yield "## Families of checks by run\n"
    yield "A cell such as 3/14 means: 3 of 14 checks fail. Red: a MUST check fails. A dash: no check could judge the server.\n"
    engine_of = {name: engine for engine, names in engines.items() for name in names}
    rows = [
        [
            (f'<a href="{engine_of[run]}/#{_place(run)}">{html.escape(run)}</a>', ""),
            *(_short(row, place) for row in matrix.families),
        ]
        for place, run in enumerate(matrix.runs)
    ]
    heads = [
        f'<a href="../../reference/checks/{row.name}/" title="{html.escape(row.meaning)}">{row.name.replace("_", " ")}</a>'
        for row in matrix.families
    ]
    yield str(Table(heads=["Run", *heads], rows=rows, is_vertical=True))
    yield "## Causes that several engines have\n"
    yield "Causes with a common id of the [catalogue](../../reference/causes/catalogue/index.md) share a row.\n"
    shared = [(row, list(dict.fromkeys(engine_of[matrix.runs[place]] for place in row.worse))) for row in matrix.causes]
    yield str(
        Table(
            heads=("Cause", "Engines", "What happens"),
            rows=[
                [
                    (_explained(row.name, "../../"), ""),
                    (", ".join(f'<a href="{engine}/">{engine}</a>' for engine in found), ""),
                    (html.escape(row.meaning), "text"),
                ]
                for row, found in shared
                if len(found) > 1
            ],
        )
    )
    yield "## By engine\n"
    yield from (f"- [{engine}]({engine}.md): {', '.join(names)}" for engine, names in sorted(engines.items()))


def _short(row: MatrixRow, place: int) -> tuple[str, str]:
    """Return a cell of a family in short form, and its class."""
    match = _COUNT.match(row.cells[place])
    if match is None:
        return "-", "unjudged"
    if match[2] is None:
        return f"0/{match[1]}", "passes"
    return f"{match[1]}/{match[2]}", "fails" if place in row.worse else "warns"


def _parts(matrix: Matrix) -> Iterator[str]:
    heads = [f'<a id="{_place(run)}" href="../../{run}/report.html">{html.escape(run)}</a>' for run in matrix.runs]
    for name, rows in matrix.parts():
        yield f"## {name or 'Summary'}\n"
        is_causes = rows == matrix.causes
        yield str(
            Table(
                heads=("", *heads, "Meaning"),
                rows=[
                    [
                        (
                            _explained(row.name, "../../../") if is_causes else html.escape(row.name.replace("_", " ")),
                            "",
                        ),
                        *(
                            (html.escape(cell).replace("\n", _BREAK), "fails" if place in row.worse else "")
                            for place, cell in enumerate(row.cells)
                        ),
                        (html.escape(row.meaning), "text"),
                    ]
                    for row in rows
                ],
            )
        )


def _explained(name: str, up: str) -> str:
    """Return a link to the page of a cause or defect."""
    kind = kinds().get(name)
    shown = f"<code>{html.escape(name)}</code>"
    return f'<a href="{up}reference/{kind}/{html.escape(name)}/">{shown}</a>' if kind else shown


def _place(run: str) -> str:
    return re.sub(r"[^\w-]", "-", run)
