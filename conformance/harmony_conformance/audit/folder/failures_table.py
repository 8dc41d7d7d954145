"""`failures.parquet`: the rows of `failures.jsonl` as a table, for DuckDB, pandas and the like."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from harmony_conformance.audit.readers.files.sources import require
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.file_lines import Line, read_lines
from harmony_conformance.json_value import Json, dumps, items, loads, text, value_at
from harmony_conformance.runtime.private_files import unlinked_opener

TABLE = "failures.parquet"
_MARK = "harmony_conformance.audit"
_FOOTER = 65536
_ROWS = 1000
_COLUMNS = (
    "exchange",
    "model",
    "provider",
    "route",
    "engine",
    "api",
    "delivery",
    "started",
    "day",
    "user",
    "check",
    "severity",
    "outcome",
    "message",
    "at",
    "reason",
)


def prepare_table(folder: Path, *, is_wanted: bool) -> None:
    """Check that the table can be written, and delete that of an earlier audit.

    Raises:
        UsageError: The library is missing, or the file was not written by an audit.
    """
    if is_wanted:
        require("pyarrow", "writing Parquet")
    path = folder / TABLE
    if not os.path.lexists(path):
        return
    is_ours = path.is_file() and not path.is_symlink() and _MARK.encode() in _last_bytes(path)
    if is_ours:
        path.unlink()
    elif is_wanted:
        raise UsageError(
            f"--out {folder}: {TABLE} was not written by an audit and is not overwritten: use another folder"
        )


def write_table(folder: Path, failures: Path) -> None:
    """Write the table from the lines of `failures.jsonl`, in groups of rows.

    Raises:
        UsageError: The file cannot be written.
    """
    library, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    fields = [(name, library.string()) for name in (*_COLUMNS, "findings")]
    schema = library.schema(fields, metadata={"written_by": _MARK})
    part = folder / f".{TABLE}.part"
    try:
        with open(part, "wb", opener=unlinked_opener) as file, parquet.ParquetWriter(file, schema) as writer:
            rows = _rows(failures)
            while group := list(islice(rows, _ROWS)):
                writer.write_table(library.Table.from_pylist(group, schema=schema))
        part.replace(folder / TABLE)
    except OSError as problem:
        with suppress(OSError):
            part.unlink()
        raise UsageError(f"--out {folder}: {problem.strerror or problem}") from None


def _rows(failures: Path) -> Iterator[dict[str, Any]]:
    """Yield a row for each failing exchange and check, with its first finding; `findings` has all of them in JSON."""
    for line in read_lines(failures):
        if isinstance(line, Line):
            row = loads(line.data)
            first = next(iter(items(value_at(row, "findings"))), None)
            shown: dict[str, Json] = {"message": value_at(first, "message"), "at": value_at(first, "at")}
            values = {name: value_at(row, name) if name not in shown else shown[name] for name in _COLUMNS}
            texts = {name: _well_formed(text(value)) if value is not None else None for name, value in values.items()}
            yield {**texts, "findings": _well_formed(dumps(value_at(row, "findings")))}


def _well_formed(value: str) -> str:
    """Return a text that UTF-8 can encode: half of a surrogate pair is escaped."""
    return value.encode("utf-8", "backslashreplace").decode()


def _last_bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(file.tell() - _FOOTER, 0))
        return file.read()
