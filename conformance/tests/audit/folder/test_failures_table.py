"""Failures as a table, and rates by model."""

import hmac
import io
import json
import sys

import pyarrow.parquet as pq
import pytest

from harmony_conformance.audit.rates import groups
from harmony_conformance.audit.rates.groups import GroupTally
from harmony_conformance.audit.readers.files import sources
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit
from harmony_ref.extras import install_command

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
    assert "exchanges with a failure, by model (95 % intervals)\n  one: 1 of 2 (50 %, 9.45 % to 90.5 %)\n" in printed
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
    assert f"needs pyarrow: {install_command('logs')}" in capsys.readouterr().err


def test_the_number_of_groups_is_bounded_in_any_order(monkeypatch):
    monkeypatch.setattr(groups, "MAX_GROUPS", 2)
    parts = [Tally(groups={"model": {name: GroupTally(exchanges=1)}}) for name in "cabab"]
    forwards = parts[0] + parts[1] + (parts[2] + parts[3]) + parts[4]
    backwards = parts[4] + (parts[3] + parts[2] + parts[1]) + parts[0]
    assert forwards == backwards
    assert forwards.groups["model"] == {name: GroupTally(exchanges=2) for name in "ab"}


def test_rates_of_each_group_have_an_interval(log):
    audit(log)
    lines = [json.loads(line) for line in (log.parent / "out" / "audit.jsonl").read_text("utf-8").splitlines()]
    found = {(line["by"], line["name"]): line for line in lines if line["kind"] == "rate"}
    assert {(by, name): (one["exchanges"], one["failed"]) for (by, name), one in found.items() if by != "api"} == {
        ("day", "2026-01-01"): (1, 1),
        ("day", "unknown"): (4, 1),
        ("model", "asked"): (1, 0),
        ("model", "one"): (2, 1),
        ("model", "two"): (1, 1),
        ("model", "unknown"): (1, 0),
        ("provider", "OPENAI"): (1, 1),
        ("provider", "unknown"): (4, 1),
        ("route", "/v1/chat/completions"): (5, 2),
        ("engine", "unknown"): (5, 2),
        ("delivery", "unknown"): (5, 2),
    }
    one = found["model", "one"]
    assert one["share"] == 0.5
    assert (one["low"], one["high"]) == pytest.approx((0.094531, 0.905469), abs=1e-6)  # Wilson's interval of 1 of 2
    assert one["checks"]["channels.no_marker_leak"] == 1


@pytest.mark.parametrize(
    ("time", "day"),
    [
        ("2026-01-01T23:30:00-02:00", "2026-01-02"),
        (1767225600, "2026-01-01"),
        (1767225600123, "2026-01-01"),
        (1767225600.5, "2026-01-01"),
        ("yesterday", None),
        (True, None),
        (1e300, None),
    ],
)
def test_the_day_is_in_utc(log, time, day):
    log.write_text(json.dumps(pair(LEAK, "one", started=time)) + "\n", encoding="utf-8")
    audit(log)
    row = json.loads((log.parent / "out" / "failures.jsonl").read_text("utf-8").splitlines()[0])
    assert row["day"] == day


def test_users_are_known_by_a_keyed_hash_alone(log, monkeypatch, capsys):
    rows = [pair(LEAK, "one", user="sue@example.com"), pair(LEAK, "one", request={**ASKED, "user": "sue@example.com"})]
    log.write_text("".join(json.dumps(row) + "\n" for row in [*rows, pair(LEAK, "one")]), encoding="utf-8")
    monkeypatch.setenv("LOG_KEY", "a key of sixteen bytes or more")
    audit(log, "--user-key-env", "LOG_KEY")
    text = (log.parent / "out" / "failures.jsonl").read_text("utf-8")
    marked = [row for row in map(json.loads, text.splitlines()) if row["check"] == "channels.no_marker_leak"]
    expected = hmac.new(b"a key of sixteen bytes or more", b"sue@example.com", "sha256").hexdigest()[:32]
    assert [row["user"] for row in marked] == [expected, expected, None]
    assert "sue" not in text
    audit(log)
    assert "user" not in json.loads((log.parent / "out" / "failures.jsonl").read_text("utf-8").splitlines()[0])
    monkeypatch.setenv("LOG_KEY", "short")
    assert audit(log, "--user-key-env", "LOG_KEY") == Exit.USAGE
    assert "invalid --user-key-env LOG_KEY: expected a key of at least 16 bytes, got 5" in capsys.readouterr().err
