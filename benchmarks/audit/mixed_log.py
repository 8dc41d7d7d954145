"""A generated log as a folder of mixed formats, with damaged files and records: `mixed_log.py FOLDER [--size 200MB]`."""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard
from generate import DEFAULT_LEAKS, DEFAULT_MENTIONS, parse_size, records

Rows = list[bytes]
PLAIN_SHARE = 0.5
"""The share of the log in plain JSON lines. The other formats share the rest."""
TEXTS = ("request", "response")


def write_folder(folder: Path, size: int, seed: int = 1, leaks: float = 10 * DEFAULT_LEAKS) -> dict:
    """Write the log, and return what it has."""
    folder.mkdir()
    made = (record for record, _ in records(seed, leaks, 5 * DEFAULT_MENTIONS))
    share = round(size * (1 - PLAIN_SHARE) / len(WRITERS))
    counts = {"a.jsonl": write_plain(folder / "a.jsonl", take(made, round(size * PLAIN_SHARE)))}
    for name, write in WRITERS.items():
        rows = take(made, share)
        write(folder / name, rows)
        counts[name] = len(rows)
    torn = gzip.compress(b"".join(take(made, share // 10)))
    (folder / "torn.jsonl.gz").write_bytes(torn[: len(torn) * 2 // 3])
    (folder / "empty.jsonl").touch()
    (folder / "garbage.bin").write_bytes(bytes(range(256)) * 64)
    return {"records": counts, "bytes": sum(path.stat().st_size for path in folder.iterdir())}


def take(made: Iterator[bytes], size: int) -> Rows:
    rows: Rows = []
    while size > 0:
        rows += islice(made, 1)
        size -= len(rows[-1])
    return rows


def write_plain(path: Path, rows: Rows) -> int:
    """Write lines; some are no records. The last one is torn."""
    with path.open("wb") as file:
        for number, row in enumerate(rows):
            file.write(row)
            if not number % 500:
                file.write(b'{"request": \n\xff\xfe\n{"time": 1}\n\n')
        file.write(rows[0][: len(rows[0]) // 2])
    return len(rows)


def as_texts(rows: Rows) -> Iterator[dict[str, str]]:
    for row in map(json.loads, rows):
        yield {name: json.dumps(row[name]) for name in TEXTS}


def write_har(path: Path, rows: Rows) -> None:
    entries = []
    for row in map(json.loads, rows):
        answer = row["response"]
        is_stream = not isinstance(answer, dict)
        text = "".join(f"data: {json.dumps(event)}\n\n" for event in answer) if isinstance(answer, list) else answer
        content = {
            "mimeType": "text/event-stream" if is_stream else "application/json",
            "text": text if is_stream else json.dumps(answer),
        }
        request = {"method": "POST", "url": "https://api.example.org/v1/chat/completions", "headers": []}
        entries.append(
            {
                "request": {
                    **request,
                    "postData": {"mimeType": "application/json", "text": json.dumps(row["request"])},
                },
                "response": {"status": 200, "headers": [], "content": content},
            }
        )
    path.write_text(json.dumps({"log": {"version": "1.2", "entries": entries}}), "utf-8")


def write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, TEXTS)
        writer.writeheader()
        writer.writerows(as_texts(rows))


def write_sqlite(path: Path, rows: Rows) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE calls (request TEXT, response TEXT)")
        database.executemany("INSERT INTO calls VALUES (:request, :response)", as_texts(rows))
    database.close()


WRITERS: dict[str, Callable[[Path, Rows], object]] = {
    "b.jsonl.gz": lambda path, rows: path.write_bytes(gzip.compress(b"".join(rows), 1)),
    "c.jsonl.zst": lambda path, rows: path.write_bytes(zstandard.compress(b"".join(rows))),
    "d.json": lambda path, rows: path.write_bytes(b"[" + b",\n".join(rows) + b"]"),
    "e.har": write_har,
    "f.csv": write_csv,
    "g.parquet": lambda path, rows: pq.write_table(
        pa.Table.from_pylist(list(as_texts(rows))), path, row_group_size=500
    ),
    "h.db": write_sqlite,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--size", type=parse_size, default="200MB")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    print(json.dumps(write_folder(given.folder, given.size, given.seed), indent=2))


if __name__ == "__main__":
    main()
