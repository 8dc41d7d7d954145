"""`harmony-conformance matrix RUN…`: several runs side by side."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from harmony_conformance.cli.comparison.side_by_side import read_endpoint_folder, side_by_side
from harmony_conformance.errors import Exit
from harmony_conformance.json_value import dumps
from harmony_conformance.report.comparison.matrix import Matrix, MatrixRow
from harmony_conformance.report.formats.markdown import inline, prose, table
from harmony_conformance.report.pages.html import matrix_html
from harmony_conformance.runtime.terminal_text import print_document


def execute(arguments: Namespace) -> int:
    """Print the matrix."""
    folders = [read_endpoint_folder(path) for path in arguments.runs]
    titles = [one.title for one in folders]
    names = [one.title if titles.count(one.title) == 1 else f"{one.title} ({one.folder})" for one in folders]
    print_document(_FORMATS[arguments.format](side_by_side(folders, names)))
    return Exit.CONFORMS


def _markdown(matrix: Matrix) -> str:
    parts = "\n\n".join(
        (f"{title}:\n\n" if title else "") + _table("", matrix.runs, rows) for title, rows in matrix.parts()
    )
    return f"{parts}\n\nNo run has a failure." if matrix.summary and not matrix.causes else parts


def _table(name: str, runs: Sequence[str], rows: Sequence[MatrixRow]) -> str:
    lines = [[inline(row.name), prose(row.meaning), *map(inline, row.cells)] for row in rows]
    return table((name, "", *map(inline, runs)), lines)


def _json(matrix: Matrix) -> str:
    return dumps(matrix.to_json())


_FORMATS: Mapping[str, Callable[[Matrix], str]] = MappingProxyType(
    {"md": _markdown, "html": matrix_html, "json": _json}
)
