"""Tables whose few bytes stand for much memory, and databases that compute: read within a limit, and not evaluated."""

import json
import sqlite3
import subprocess
import sys

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harmony_conformance.audit.readers.files.formats import open_logs

TEXT = "x" * 20_000_000
MEMORY = """
import sys
from harmony_conformance.audit.readers.files.formats import open_logs
rows = [len(line.data) for log in open_logs([sys.argv[1]], "auto") for line in log.records]
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))  # `ru_maxrss` has the peak of the parent too
print(len(rows), int(peak.split()[1]) // 1024)
"""


def rows_of(path):
    return [json.loads(line.data) for log in open_logs([str(path)], "auto") for line in log.records]


def test_an_expression_of_sqlite_is_not_evaluated(tmp_path):
    with sqlite3.connect(path := tmp_path / "log.db") as database:
        database.execute(
            "CREATE TABLE log (id INTEGER, size INTEGER, text TEXT AS (printf('%.*c', size, 'x')) VIRTUAL)"
        )
        database.execute("INSERT INTO log VALUES (1, 3)")
        database.execute("CREATE VIEW every AS SELECT * FROM log")
    database.close()
    assert rows_of(path) == [{"id": 1, "size": 3}]


def test_a_stored_column_of_sqlite_is_read(tmp_path):
    with sqlite3.connect(path := tmp_path / "log.db") as database:
        database.execute("CREATE TABLE log (id INTEGER, twice INTEGER AS (id * 2) STORED)")
        database.execute("INSERT INTO log VALUES (1)")
    database.close()
    assert rows_of(path) == [{"id": 1, "twice": 2}]


def test_an_expression_of_duckdb_is_not_evaluated(tmp_path):
    with duckdb.connect(path := tmp_path / "log.duckdb") as database:
        database.execute("CREATE TABLE log (id INTEGER, text VARCHAR AS (repeat('x', id)))")
        database.execute("INSERT INTO log VALUES (1)")
    assert rows_of(path) == [{"id": 1}]


@pytest.mark.slow
def test_a_text_that_all_rows_of_a_parquet_file_share_is_kept_once(tmp_path):
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 60, pa.int32()), pa.array([TEXT]))
    path = tmp_path / "log.parquet"
    pq.write_table(
        pa.table({"completion": shared}), path, compression="zstd", write_statistics=False, store_schema=False
    )
    assert path.stat().st_size < 10_000
    done = subprocess.run([sys.executable, "-c", MEMORY, str(path)], capture_output=True, text=True, check=True)
    count, mebibytes = map(int, done.stdout.split())
    assert count == 60
    assert mebibytes < 800  # 60 copies would be 1,144 MiB more


def test_nested_texts_and_binary_columns_of_parquet_are_read(tmp_path):
    rows = [{"a": {"b": ["x", "y"]}, "c": b"z", "d": [{"e": "f"}]}, {"a": None, "c": None, "d": []}]
    pq.write_table(pa.Table.from_pylist(rows), path := tmp_path / "log.parquet", row_group_size=1)
    assert rows_of(path) == [{"a": {"b": ["x", "y"]}, "c": "z", "d": [{"e": "f"}]}, {"a": None, "c": None, "d": []}]


def test_row_groups_with_different_dictionaries_are_read(tmp_path):
    rows = [{"completion": str(number)} for number in range(300)]
    pq.write_table(pa.Table.from_pylist(rows), path := tmp_path / "log.parquet", row_group_size=7)
    assert rows_of(path) == rows


LIMITED = """
import sys
from harmony_conformance.audit.readers.files import tables
from harmony_conformance.audit.readers.files.formats import open_logs
tables.GROUP_MEMORY = 64 * 1024 * 1024
for log in open_logs([sys.argv[1]], "auto"):
    for line in log.records:
        print(log.name[-1], getattr(line, "data", b"").decode() or f"{line.kind}: {line.detail}")
"""


def test_rows_of_duckdb_that_are_decoded_together_have_a_limit_of_memory(tmp_path):
    """DuckDB decodes 2,048 rows at once. A file of 1.3 MB took 3.8 GB."""
    path = tmp_path / "log.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute("CREATE TABLE a AS SELECT repeat('x', 8000000) AS x, i FROM range(20) rows(i)")
        database.execute("CREATE TABLE b AS SELECT 'short' AS x")
    assert path.stat().st_size < 2_000_000
    command = [sys.executable, "-c", LIMITED, str(path)]
    unread, read = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "emory" in unread
    assert read == 'b {"x": "short"}'
