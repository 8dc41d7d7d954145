"""`judge_batch`: the rows of the audit, however a table is split."""

import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from harmony_conformance.audit.arrow_batches import judge_batch, output_schema
from harmony_conformance.audit.batches import ReadOptions
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.cli import main as cli

CANARY = "Quetzalcoatlus"
ASKED = {"model": "gpt-oss-20b", "messages": [{"role": "user", "content": CANARY}]}


def record(content, **more):
    choices = [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}]
    return {"request": ASKED, "response": {"object": "chat.completion", "choices": choices}, **more}


LINES = [
    *(json.dumps(record(content)) for content in (CANARY, "Hi<|end|>", "\ud800 assistantfinal", "Hello.")),
    "{torn",
    json.dumps({"completion": "<|channel|>final<|message|>Hi", "answer": ""}),
    "[]",
]


def rows_of(folder):
    return sorted((json.loads(line) for line in (folder / "failures.jsonl").read_bytes().splitlines()), key=json.dumps)


def audit(log, out, *more):
    cli.main(["audit", str(log), "--out", str(out), "--workers", "1", *more])
    return rows_of(out), json.loads((out / "audit.jsonl").read_bytes().splitlines()[-1])


def flat(batches):
    return sorted(
        (row for batch in batches for text in batch["failures"].to_pylist() for row in json.loads(text)), key=json.dumps
    )


@pytest.fixture
def log(tmp_path):
    (path := tmp_path / "log.jsonl").write_text("".join(line + "\n" for line in LINES * 20), "utf-8")
    return path


def table(log):
    rows, offset = [], 0
    for line in log.read_bytes().splitlines(keepends=True):
        rows.append({"file": str(log), "offset": offset, "line": line.decode()})
        offset += len(line)
    return pa.Table.from_pylist(rows)


@pytest.mark.parametrize("size", [1, 7, 1000])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.binary()], ids=str)
def test_the_failures_are_those_of_the_audit(log, tmp_path, size, kind):
    lines = table(log)
    lines = lines.set_column(2, "line", lines["line"].cast(kind))
    judged = [judge_batch(batch) for batch in lines.to_batches(max_chunksize=size)]
    expected, footer = audit(log, tmp_path / "out")
    assert flat(judged) == expected
    assert expected
    assert (
        sum(problem is not None for batch in judged for problem in batch["problem"].to_pylist()) == footer["unreadable"]
    )
    for batch in judged:
        assert batch.schema == output_schema()
        for failed, rows in zip(batch["failed"].to_pylist(), batch["failures"].to_pylist(), strict=True):
            assert failed == [row["check"] for row in json.loads(rows)]


def test_the_order_of_the_rows_does_not_matter(log):
    lines = table(log)
    order = random.Random(7).sample(range(len(lines)), len(lines))
    assert flat([judge_batch(batch) for batch in lines.take(order).to_batches(max_chunksize=9)]) == flat(
        [judge_batch(batch) for batch in lines.to_batches()]
    )


def test_rows_of_a_table_are_records_as_of_a_parquet_file(tmp_path):
    rows = [record("Hi<|end|>", note=number) for number in range(5)] + [record("Hello.", note=5)]
    pq.write_table(pa.Table.from_pylist(rows), path := tmp_path / "log.parquet")
    (batch,) = pa.Table.from_pylist(rows).to_batches()
    expected, _ = audit(path, tmp_path / "out")
    assert flat([judge_batch(batch)]) == json.loads(json.dumps(expected).replace(str(path), ""))
    assert judge_batch(batch)["offset"].to_pylist() == [0, 1, 2, 3, 4, 5]


def test_columns_are_mapped_and_excerpts_left_out(tmp_path):
    rows = [{"q": json.dumps(ASKED), "a": json.dumps(record(f"{CANARY}<|end|>")["response"])}]
    (batch,) = pa.Table.from_pylist(rows).to_batches()
    columns = {"request": "q", "response": "a"}
    (whole,) = judge_batch(batch, ReadOptions(columns=columns, excerpts=Excerpts.FULL)).to_pylist()
    (bare,) = judge_batch(batch, ReadOptions(columns=columns, excerpts=Excerpts.NONE)).to_pylist()
    assert "channels.no_marker_leak" in whole["failed"]
    assert whole["failed"] == bare["failed"]
    assert CANARY in whole["failures"]
    assert CANARY not in bare["failures"]


def test_a_row_without_a_text_and_an_empty_batch_have_no_failures():
    schema = pa.schema([("line", pa.string())])
    assert judge_batch(pa.RecordBatch.from_pylist([{"line": None}], schema=schema)).to_pylist() == [
        {"file": "", "offset": 0, "problem": None, "failed": [], "failures": "[]"}
    ]
    assert judge_batch(pa.RecordBatch.from_pylist([], schema=schema)).num_rows == 0
