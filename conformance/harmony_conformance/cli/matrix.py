"""`harmony-conformance matrix RUN…`: several runs side by side."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.cli.report import read_run
from harmony_conformance.errors import Exit
from harmony_conformance.json_value import dumps
from harmony_conformance.report.html import matrix_html
from harmony_conformance.report.markdown import inline, prose, table
from harmony_conformance.report.matrix import Matrix, MatrixRow, make_matrix
from harmony_conformance.report.summary import title


def configure(parser: ArgumentParser) -> None:
    """Add the options of `matrix`."""
    parser.add_argument("runs", metavar="RUN", nargs="+", type=Path, help="folder of a run, or its report.jsonl")
    parser.add_argument("--format", choices=list(_FORMATS), default="md", help="output format (default: md)")


def execute(arguments: Namespace) -> int:
    """Print the matrix."""
    reports = [read_run(path) for path in arguments.runs]
    titles = [title(report) for report in reports]
    folders = [path.name if path.is_dir() else path.resolve().parent.name for path in arguments.runs]
    names = [
        one if titles.count(one) == 1 else f"{one} ({folder})" for one, folder in zip(titles, folders, strict=True)
    ]
    print(_FORMATS[arguments.format](make_matrix(reports, names)))
    return Exit.CONFORMS


def _markdown(matrix: Matrix) -> str:
    summary = _table("", matrix.runs, matrix.summary)
    families = _table("checks", matrix.runs, matrix.families)
    causes = _table("cause", matrix.runs, matrix.causes) if matrix.causes else "No run has a failure."
    return f"{summary}\n\n{families}\n\nFailed results by cause:\n\n{causes}"


def _table(name: str, runs: Sequence[str], rows: Sequence[MatrixRow]) -> str:
    lines = [[inline(row.name), prose(row.meaning), *map(inline, row.cells)] for row in rows]
    return table((name, "", *map(inline, runs)), lines)


def _json(matrix: Matrix) -> str:
    return dumps(matrix.to_json())


_FORMATS: Mapping[str, Callable[[Matrix], str]] = MappingProxyType(
    {"md": _markdown, "html": matrix_html, "json": _json}
)
