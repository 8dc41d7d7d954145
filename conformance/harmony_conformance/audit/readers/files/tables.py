"""Tables: Parquet, Arrow, SQLite and DuckDB. Rows are read one by one; a value that is no JSON becomes a text.

A text of a Parquet column that rows share is kept once, unless it is nested. Expressions of databases are not evaluated.
"""

from __future__ import annotations

import json
import os
import sqlite3
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from harmony_conformance.audit.readers.files.container import (
    Container,
    InputFile,
    Records,
    json_line,
    one_file,
    problem,
)
from harmony_conformance.audit.readers.files.sources import PeekableStream, require
from harmony_conformance.evidence.file_lines import LINE_LIMIT, UnreadableLine
from harmony_conformance.runtime.memory_limit import memory_limit

_SQLITE_HEADER = 100
_ROWS = 64
"""Rows of a Parquet file that are decoded together."""
GROUP_MEMORY = 1024 * 1024 * 1024
"""Memory for the rows of Parquet, Arrow or DuckDB that are decoded together, in bytes. A few compressed kilobytes can stand for much more."""
_ROW_BYTES = 4
"""The fewest bytes that SQLite needs for a row: its place in the page, its size and its key."""
_NOT_A_FILE = "{} is read from a file: store the decompressed data in one"


def _plain(value: object) -> object:
    """Return a value that JSON lacks as a text, or as a list."""
    if isinstance(value, bytes | bytearray):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return b64encode(value).decode()
    return str(value)


def _no_number(_: str) -> None:
    """Return null for NaN and infinity, which JSON lacks."""


def row_record(number: int, row: Mapping[str, object]) -> Records:
    """Yield the record of a row as JSON, or the problem of one that JSON cannot have."""
    try:
        text = json.dumps(row, default=_plain)
        if "NaN" in text or "Infinity" in text:
            text = json.dumps(json.loads(text, parse_constant=_no_number))
    except (ValueError, TypeError, RecursionError) as error:
        yield problem("a row that cannot be written as JSON", type(error).__name__, number)
        return
    data = text.encode()
    if len(data) > LINE_LIMIT:
        yield problem("the row is too long", f"{len(data)} bytes, at most {LINE_LIMIT} are read", number)
    else:
        yield json_line(number, data)


def _read_arrow_batches(batches: Iterator[Any]) -> Records:
    number = 0
    try:
        while (batch := _next_batch(batches)) is not None:
            for place in range(batch.num_rows):
                with memory_limit(GROUP_MEMORY):
                    (row,) = batch.slice(place, 1).to_pylist(maps_as_pydicts="lossy")
                yield from row_record(number, row)
                number += 1
    except MemoryError:
        yield problem("a part of the file needs too much memory", f"more than {GROUP_MEMORY} bytes", number)
    except Exception as error:  # noqa: BLE001 - the library raises its errors, and those of Python
        yield problem("the file is damaged", _first_line(error), number)


def _next_batch(batches: Iterator[Any]) -> Any:  # noqa: ANN401 - of the library
    """Return the next group of rows, None at the end."""
    with memory_limit(GROUP_MEMORY):
        batch = next(batches, None)
        if batch is not None:
            batch.validate(full=True)  # or damaged offsets would be read beyond the end of the memory
        return batch


def choose_arrow_allocator() -> None:
    """Let Arrow use the allocator of the system, before it is imported. Its own one reserves more memory than `memory_limit` allows."""
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")


def _import_arrow(name: str) -> Any:  # noqa: ANN401 - a module
    choose_arrow_allocator()
    return import_module(name)


def _unreadable_database(error: BaseException) -> UnreadableLine:
    """Return the reason why a database cannot be read. Only a damaged one has no remedy."""
    text = _first_line(error)
    return problem(
        next((kind for mark, kind in _DATABASE_PROBLEMS.items() if mark in text), "the file is damaged"), text
    )


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _read_parquet(stream: PeekableStream) -> Records:
    require("pyarrow", "reading Parquet")
    if stream.file is None or not stream.file.seekable():
        yield problem(_NOT_A_FILE.format("Parquet"))
        return
    stream.file.seek(0)
    try:
        library = _import_arrow("pyarrow.parquet")
        with memory_limit(GROUP_MEMORY):
            file = library.ParquetFile(stream.file, pre_buffer=False)
        columns = [file.schema.column(place) for place in range(len(file.schema))]
        texts = [one.path for one in columns if one.physical_type == "BYTE_ARRAY" and "." not in one.path]
        stream.file.seek(0)  # a text of the dictionary, which all rows may share, is kept once
        with memory_limit(GROUP_MEMORY):
            file = library.ParquetFile(stream.file, pre_buffer=False, read_dictionary=texts)
    except Exception as error:  # noqa: BLE001 - see above
        yield problem("the file is damaged", _first_line(error))
        return
    yield from _read_arrow_batches(iter(file.iter_batches(batch_size=_ROWS, use_threads=False)))


def _read_arrow(stream: PeekableStream) -> Records:
    require("pyarrow", "reading Arrow")
    library = _import_arrow("pyarrow.ipc")
    options = library.IpcReadOptions(use_threads=False)
    try:
        if stream.peek(6) != _ARROW_FILE:
            batches: Iterator[Any] = iter(library.open_stream(stream, options=options))
        elif stream.file is None or not stream.file.seekable():
            yield problem(_NOT_A_FILE.format("Arrow"))
            return
        else:
            stream.file.seek(0)
            reader = library.open_file(stream.file, options=options)
            batches = (reader.get_batch(index) for index in range(reader.num_record_batches))
    except Exception as error:  # noqa: BLE001 - see above
        yield problem("the file is damaged", _first_line(error))
        return
    yield from _read_arrow_batches(batches)


_ARROW_FILE = b"ARROW1"
_ARROW_STREAM = b"\xff\xff\xff\xff"


_LOCKED = "the database is locked by the process that writes it: read a copy, or wait"
_DATABASE_PROBLEMS = {
    "database is locked": _LOCKED,
    "Could not set lock": _LOCKED,
    "storage version number": "the database has the format of another version of DuckDB: read it by that version, or export it as Parquet",
}
"""The remedies, by the words of SQLite and DuckDB."""


def _read_sqlite(stream: PeekableStream, name: str) -> Iterable[InputFile]:
    if not Path(name).is_file() or stream.file is None:
        return [_no_database("SQLite", "sqlite", name)]
    return _sqlite_tables(name)


def _sqlite_tables(name: str) -> Iterator[InputFile]:
    try:
        database = sqlite3.connect(f"file:{quote(str(Path(name).resolve()))}?mode=ro", uri=True)
    except sqlite3.Error as error:
        yield InputFile(name=name, format="sqlite", records=iter([_unreadable_database(error)]), mark="#")
        return
    try:
        if _is_cut(Path(name)):
            yield InputFile(name=name, format="sqlite", records=iter([problem("the file is truncated")]), mark="#")
        database.text_factory = _decode
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LINE_LIMIT)
        tables = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name NOT LIKE 'sqlite_%' ORDER BY name"
        for (table,) in database.execute(tables).fetchall():
            found = database.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden IN (0, 3)", (table,))
            size = _size_of(database)
            records = _read_table(database.cursor(), [str(table)], [str(column) for (column,) in found], size=size)
            yield InputFile(name=f"{name}:{table}", format="sqlite", records=records, mark="#")
    except (sqlite3.Error, ValueError) as error:  # names may be no text
        yield InputFile(name=name, format="sqlite", records=iter([_unreadable_database(error)]), mark="#")
    finally:
        database.close()


def _is_cut(path: Path) -> bool:
    """Return True for a database with fewer pages than its header says. SQLite reads null values in place of the others."""
    with path.open("rb") as file:
        header = file.read(_SQLITE_HEADER)
        size = file.seek(0, 2)
    page_size, pages = int.from_bytes(header[16:18]), int.from_bytes(header[28:32])
    is_known = header[24:28] == header[92:96]  # old versions of SQLite leave the number of pages as it was
    return is_known and size < pages * (65536 if page_size == 1 else page_size)


def _size_of(database: sqlite3.Connection) -> int:
    """Return the bytes of all pages, those of a write-ahead log included."""
    pages, page = (database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    return int(pages) * int(page)


def _decode(data: bytes) -> str:
    return data.decode("utf-8", "replace")


_DUCKDB_CONFIG: Mapping[str, str] = MappingProxyType(
    {
        "enable_external_access": "false",
        "memory_limit": f"{GROUP_MEMORY}B",
        "temp_directory": "",  # nothing is written
        "threads": "1",
    }
)


def _read_duckdb(stream: PeekableStream, name: str) -> Iterable[InputFile]:
    require("duckdb", "reading DuckDB")
    if not Path(name).is_file() or stream.file is None:
        return [_no_database("DuckDB", "duckdb", name)]
    return _duckdb_tables(name)


def _duckdb_tables(name: str) -> Iterator[InputFile]:
    library = import_module("duckdb")
    try:
        with memory_limit(GROUP_MEMORY):
            database = library.connect(name, read_only=True, config={**_DUCKDB_CONFIG})
        try:
            rows = database.execute(
                "SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'BASE TABLE' ORDER BY 1, 2"
            ).fetchall()
            for schema, table in rows:
                found = database.execute(
                    "SELECT column_name FROM information_schema.columns WHERE table_schema = ? AND table_name = ?"
                    " AND is_generated = 'NEVER' ORDER BY ordinal_position",
                    [schema, table],
                )
                columns = [column for (column,) in found.fetchall()]
                records = _read_table(database.cursor(), [schema, table], columns, memory=GROUP_MEMORY)
                yield InputFile(name=f"{name}:{table}", format="duckdb", records=records, mark="#")
        finally:
            database.close()
    except library.Error as error:
        yield InputFile(name=name, format="duckdb", records=iter([_unreadable_database(error)]), mark="#")


def _no_database(title: str, form: str, name: str) -> InputFile:
    return InputFile(name=name, format=form, records=iter([problem(_NOT_A_FILE.format(title))]), mark="#")


def _read_table(
    cursor: Any,  # noqa: ANN401 - of sqlite3 or of DuckDB
    table: Sequence[str],
    columns: Sequence[str],
    *,
    size: int | None = None,
    memory: int | None = None,
) -> Records:
    """Yield the rows of a table, without columns that an expression of the file computes.

    `size`: the bytes of a database that stores every row once. Pages that point to each other would yield rows without end.
    `memory`: the most bytes for the rows that a library decodes together. Compressed, they may have few bytes.
    """
    chosen, of_table = ", ".join(map(_quote_name, columns)), ".".join(map(_quote_name, table))
    number = read = 0
    try:
        with memory_limit(memory) if memory is not None else nullcontext():
            cursor.execute(f"SELECT {chosen} FROM {of_table}")  # noqa: S608 - quoted above
        while (row := _next_row(cursor, memory)) is not None:
            read += _ROW_BYTES + sum(len(value) for value in row if isinstance(value, str | bytes))
            if size is not None and read > size:
                yield problem("the file is damaged", f"a table with more text than its {size} bytes", number)
                return
            yield from row_record(number, dict(zip(columns, row, strict=True)))
            number += 1
    except MemoryError:
        yield problem("a part of the file needs too much memory", f"more than {memory} bytes", number)
    except Exception as error:  # noqa: BLE001 - each database has its own errors
        yield problem("the table cannot be read further", _first_line(error), number)


def _next_row(cursor: Any, memory: int | None) -> Any:  # noqa: ANN401 - see above
    with memory_limit(memory) if memory is not None else nullcontext():
        return cursor.fetchone()


def _quote_name(name: str) -> str:
    return f'"{name.replace(chr(34), chr(34) * 2)}"'


PARQUET = Container(
    name="parquet",
    title="Parquet",
    matches=lambda head, _: head.startswith(b"PAR1"),
    read=one_file("parquet", _read_parquet, "#"),
)
ARROW = Container(
    name="arrow",
    title="Arrow, Feather",
    matches=lambda head, _: head.startswith((_ARROW_FILE, _ARROW_STREAM)),
    read=one_file("arrow", _read_arrow, "#"),
)
SQLITE = Container(
    name="sqlite",
    title="tables of SQLite",
    matches=lambda head, _: head.startswith(b"SQLite format 3\0"),
    read=_read_sqlite,
)
DUCKDB = Container(
    name="duckdb",
    title="tables of DuckDB",
    matches=lambda head, _: head[8:12] == b"DUCK" and head[:1] not in b"{[",
    read=_read_duckdb,
)
