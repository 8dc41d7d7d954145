"""Failures as a table, and rates by model."""

import io
import json
import sys

import pyarrow.parquet as pq
import pytest

from harmony_conformance.audit import tallies
from harmony_conformance.audit.readers import sources
from harmony_conformance.audit.tallies import ModelTally, Tally
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit

ASKED = {"model": "asked", "messages": [{"role": "user", "content": "Hi"}]}
LEAK = "Hello.<|end|><|start|>assistant<|channel|>final<|message|>Sue Miller."


def pair(content, model, **others):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    body = {"object": "chat.completion", "id": "1", "created": 1, "choices": [choice], "usage": None}
    return {"request": ASKED, "response": {**body, **({"model": model} if model else {})}, **others}


ROWS = [
    pair("Hello.", "one"),
    pair(LEAK, "one", started="2026-01-01T00:00:00Z", provider="OPENAI"),
    pair(LEAK, "two"),
    pair("Hello.", None),
    pair("Hello.", "Sue Miller likes tea"),
]


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def audit(log, *more):
    return cli.main(["audit", str(log), "--out", str(log.parent / "out"), "--workers", "1", *more])


def test_the_table_has_the_rows_of_the_lines(log):
    assert audit(log, "--parquet") == Exit.DIVERGES
    path = log.parent / "out" / "failures.parquet"
    rows = pq.read_table(path).to_pylist()
    lines = [json.loads(line) for line in (path.parent / "failures.jsonl").read_text("utf-8").splitlines()]
    names = ("exchange", "model", "provider", "api", "started", "check", "severity", "outcome")
    assert [[row[name] for name in names] for row in rows] == [[line[name] for name in names] for line in lines]
    assert [json.loads(row["findings"]) for row in rows] == [line["findings"] for line in lines]
    assert (rows[0]["model"], rows[0]["provider"], rows[0]["started"]) == ("one", "OPENAI", "2026-01-01T00:00:00Z")
    assert rows[0]["message"] == lines[0]["findings"][0]["message"]
    assert "Miller" not in json.dumps(rows)
    assert sys.platform == "win32" or path.stat().st_mode & 0o777 == 0o600


def test_rates_are_by_model_and_a_text_is_no_model(log, capsys):
    audit(log)
    header = json.loads((log.parent / "out" / "audit.jsonl").read_text("utf-8").splitlines()[0])
    assert header["models"] == {
        "asked": {"exchanges": 1, "failed": 0},
        "one": {"exchanges": 2, "failed": 1},
        "two": {"exchanges": 1, "failed": 1},
        "unknown": {"exchanges": 1, "failed": 0},
    }
    printed = capsys.readouterr().out
    assert "exchanges with a failure, by model\n  one: 1 of 2 (50.0 %)\n" in printed
    assert "likes tea" not in printed


def test_the_table_of_an_earlier_audit_is_replaced_or_deleted(log):
    audit(log, "--parquet")
    path = log.parent / "out" / "failures.parquet"
    first = path.read_bytes()
    audit(log, "--parquet")
    assert pq.read_table(path).num_rows == pq.read_table(io.BytesIO(first)).num_rows
    audit(log)
    assert not path.exists()


def test_another_table_is_not_overwritten(log, capsys):
    audit(log)
    (path := log.parent / "out" / "failures.parquet").write_bytes(b"PAR1 mine")
    assert audit(log) == Exit.DIVERGES
    capsys.readouterr()
    assert audit(log, "--parquet") == Exit.USAGE
    assert "failures.parquet was not written by an audit and is not overwritten" in capsys.readouterr().err
    assert path.read_bytes() == b"PAR1 mine"


def test_a_table_needs_a_folder_and_its_library(log, monkeypatch, capsys):
    assert cli.main(["audit", str(log), "--parquet"]) == Exit.USAGE
    assert "invalid --parquet: expected --out" in capsys.readouterr().err
    monkeypatch.setattr(sources, "find_spec", lambda _: None)
    assert audit(log, "--parquet") == Exit.USAGE
    assert "needs pyarrow: pip install 'harmony-conformance[logs]'" in capsys.readouterr().err


def test_the_number_of_models_is_bounded_in_any_order(monkeypatch):
    monkeypatch.setattr(tallies, "MAX_MODELS", 2)
    parts = [Tally(models={name: ModelTally(exchanges=1, failed=0)}) for name in "cabab"]
    forwards = parts[0] + parts[1] + (parts[2] + parts[3]) + parts[4]
    backwards = parts[4] + (parts[3] + parts[2] + parts[1]) + parts[0]
    assert forwards == backwards
    assert forwards.models == {name: ModelTally(exchanges=2, failed=0) for name in "ab"}
