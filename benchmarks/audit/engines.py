"""Run `judge_batch` once in an engine, and compare its rows with those of `audit`: `engines.py duckdb|daft [--records N]`.

Run it in an environment that has the engine and harmony-conformance[logs]. It writes a Parquet file of JSON lines, audits the same lines by the
command, and exits with 1 if the rows differ.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from harmony_conformance.audit.arrow_batches import judge_batch

ASKED = {"model": "gpt-oss-20b", "messages": [{"role": "user", "content": "Hi"}]}
CONTENTS = (
    "Hello.",
    "Hello.<|end|>",
    "assistantfinalHello.",
    "The user greets. We should answer: hello.",
    "Fine, and you?",
)


def line(number: int) -> str:
    if number % 17 == 0:
        return "{torn"
    message = {"role": "assistant", "content": CONTENTS[number % len(CONTENTS)]}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return json.dumps(
        {"request": ASKED, "response": {"id": str(number), "object": "chat.completion", "choices": choices}}
    )


def write(folder: Path, records: int) -> tuple[Path, Path]:
    """Write a log, and a Parquet file of its lines with their places, in several row groups."""
    log, table = folder / "log.jsonl", folder / "lines.parquet"
    rows, offset = [], 0
    with log.open("wb") as file:
        for text in map(line, range(records)):
            rows.append({"file": str(log), "offset": offset, "line": text})
            offset += file.write(text.encode() + b"\n")
    pq.write_table(pa.Table.from_pylist(rows), table, row_group_size=max(records // 8, 1))
    return log, table


def by_duckdb(table: Path) -> Iterator[str]:
    import duckdb
    from duckdb.sqltypes import BIGINT, VARCHAR

    def failures(file: pa.Array, offset: pa.Array, text: pa.Array) -> pa.Array:
        rows = pa.table({"file": file, "offset": offset, "line": text}).combine_chunks()
        return pa.chunked_array([judge_batch(batch)["failures"] for batch in rows.to_batches()], pa.string())

    connection = duckdb.connect()
    connection.create_function("failures", failures, [VARCHAR, BIGINT, VARCHAR], VARCHAR, type="arrow")
    query = f"SELECT failures(file, \"offset\", line) FROM '{table}'"
    yield from (row[0] for row in connection.execute(query).fetchall())


def by_daft(table: Path) -> Iterator[str]:
    import daft

    @daft.func.batch(return_dtype=daft.DataType.string())
    def failures(file: daft.Series, offset: daft.Series, text: daft.Series) -> pa.Array:
        columns = {"file": file.to_arrow(), "offset": offset.to_arrow(), "line": text.to_arrow()}
        batches = pa.table(columns).combine_chunks().to_batches()
        return pa.concat_arrays([judge_batch(batch)["failures"] for batch in batches])

    lines = daft.read_parquet(str(table))
    judged = lines.select(failures(lines["file"], lines["offset"], lines["line"]).alias("failures"))
    yield from judged.to_pydict()["failures"]


ENGINES: dict[str, Callable[[Path], Iterator[str]]] = {
    "duckdb": by_duckdb,
    "daft": by_daft,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--records", type=int, default=2000)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log, table = write(folder, chosen.records)
        command = [
            sys.executable,
            "-m",
            "harmony_conformance",
            "audit",
            str(log),
            "--out",
            str(folder / "out"),
            "--fail-on",
            "never",
        ]
        subprocess.run(command, check=True, capture_output=True)
        expected = sorted((folder / "out" / "failures.jsonl").read_text("utf-8").removesuffix("\n").split("\n"))
        rows = [row for text in ENGINES[chosen.engine](table) for row in json.loads(text)]
    found = sorted(json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    is_equal = found == expected and bool(found)
    print(
        f"{chosen.engine}: {len(found)} rows of {chosen.records} records, {'equal to' if is_equal else 'other than'} those of audit"
    )
    return 0 if is_equal else 1


if __name__ == "__main__":
    sys.exit(main())
