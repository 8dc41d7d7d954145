"""Judge the records of an Arrow batch, for engines that split and distribute tables themselves, such as DuckDB and Daft.

The function is pure: the result of a row depends on that row and the options alone. So the results are the same, however a table is split.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

from harmony_conformance.audit.batches import Batch, BatchResult, ReadOptions, scan_batch
from harmony_conformance.audit.plans.plan import AuditPlan
from harmony_conformance.audit.readers.files.container import json_line
from harmony_conformance.audit.readers.files.sources import require
from harmony_conformance.audit.readers.files.tables import row_record
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.evidence.file_lines import Line, UnreadableLine
from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, loads, members, text, value_at

LINE, FILE, OFFSET = "line", "file", "offset"
"""Columns of the input with a meaning: the text of a record, and its place."""


def output_schema() -> Any:  # noqa: ANN401 - of the library
    """Return the schema of the result of `judge_batch`."""
    require("pyarrow", "judge_batch")
    library = import_module("pyarrow")
    return library.schema(
        [
            (FILE, library.string()),
            (OFFSET, library.int64()),
            ("problem", library.string()),
            ("failed", library.list_(library.string())),
            ("failures", library.string()),
        ]
    )


def judge_batch(batch: Any, reading: ReadOptions | None = None) -> Any:  # noqa: ANN401 - of the library
    """Return a row for each row of a `pyarrow.RecordBatch`, in its order, with the checks that failed.

    The column `line` has the records as texts, such as JSON lines. Without it, each row is a record, like the rows of a Parquet file.
    The columns `file` and `offset` are the place of a record. Without them it is the number of the row in the batch.

    Columns of the result: `file` and `offset`; `problem`, the reason why a record could not be read, else null; `failed`, the ids of the
    checks that failed; `failures`, a JSON list of the rows that `audit` writes into `failures.jsonl`. Of the options, a plan is not applied.

    Raises:
        UsageError: pyarrow is missing.
    """
    schema = output_schema()
    library = import_module("pyarrow")
    rows: list[dict[str, Any]] = batch.to_pylist(maps_as_pydicts="lossy")
    mark = "@" if LINE in batch.schema.names else "#"
    records = [record for number, row in enumerate(rows) for record in _records(number, row)]
    options = replace(reading or ReadOptions(), plan=AuditPlan())
    result = (
        scan_batch(Batch(file="", lines=tuple(records), mark="#"), options) if records else BatchResult(tally=Tally())
    )
    failures: list[list[Json]] = [[] for _ in rows]
    problems: list[str | None] = [None for _ in rows]
    for found in map(members, map(loads, result.failures.splitlines())):
        number, part = _place(text(found["exchange"]))
        named: JsonObject = {"exchange": f"{_file(rows[number])}{mark}{_offset(rows[number], number)}{part}"}
        findings: list[Json] = [{**members(finding), **named} for finding in items(found["findings"])]
        failures[number].append({**found, **named, "findings": findings})
    for unread in map(loads, result.unreadable.splitlines()):
        number = integer(value_at(unread, "offset")) or 0
        problems[number] = text(value_at(unread, "kind"))
    judged = [
        {
            FILE: _file(row),
            OFFSET: _offset(row, number),
            "problem": problems[number],
            "failed": [text(value_at(one, "check")) for one in failures[number] if value_at(one, "check") is not None],
            "failures": dumps(failures[number]).encode("utf-8", "backslashreplace").decode(),
        }
        for number, row in enumerate(rows)
    ]
    return library.RecordBatch.from_pylist(judged, schema=schema)


def _records(number: int, row: dict[str, Any]) -> Iterator[Line | UnreadableLine]:
    """Yield the record of a row under its number in the batch. A row without a text has none."""
    if LINE not in row:
        yield from row_record(number, {name: value for name, value in row.items() if name not in (FILE, OFFSET)})
    elif row[LINE] is not None:
        line = row[LINE]
        yield json_line(number, line.encode("utf-8", "surrogatepass") if isinstance(line, str) else bytes(line))


def _place(exchange: str) -> tuple[int, str]:
    """Return the number of a row, and the part of its record."""
    number, slash, part = exchange.removeprefix("#").partition("/")
    return int(number), slash + part


def _file(row: dict[str, Any]) -> str:
    return str(row.get(FILE) or "")


def _offset(row: dict[str, Any], number: int) -> int:
    offset = row.get(OFFSET)
    return offset if isinstance(offset, int) else number
