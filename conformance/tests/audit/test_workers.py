"""A log in batches, judged here and in other processes."""

import json
import os
import signal
from argparse import ArgumentParser
from concurrent.futures import Future
from functools import reduce
from multiprocessing import active_children
from operator import add
from pathlib import Path

import pytest

from harmony_conformance.audit import workers
from harmony_conformance.audit.batches import ReadOptions, batches, scan_batch
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.audit.workers import scan_all
from harmony_conformance.cli import audit
from harmony_conformance.cli import main as cli
from harmony_conformance.evidence.file_lines import Line, UnreadableLine

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def exchange(content):
    message = {"role": "assistant", "content": content}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return json.dumps({"request": ASKED, "response": body}).encode()


GOOD, LEAK = exchange("Hello."), exchange("<|channel|>analysis<|message|>Greet.<|end|>Hello.")
DISCOVERED = json.dumps({"kind": "exchange", "scenario": "discovery"}).encode()
LINES = [GOOD, LEAK, b"{", DISCOVERED, LEAK, b"\xff", GOOD]


def log(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


def total(scanned):
    return reduce(add, (one.tally for one in scanned), Tally())


def told(scanned):
    failures = [line["exchange"] for one in scanned for line in map(json.loads, one.failures.splitlines())]
    unreadable = [line for one in scanned for line in map(json.loads, one.unreadable.splitlines())]
    return failures, [(line["offset"], line["kind"]) for line in unreadable]


def test_a_batch_holds_what_it_may_and_no_file_shares_one(tmp_path):
    one, other = log(tmp_path / "one", LINES), log(tmp_path / "other", LINES[:1])
    found = list(batches([one, other, tmp_path / "absent"], lines=3, size=10**6))
    assert [(Path(batch.file).name, len(batch.lines)) for batch in found] == [
        ("one", 3),
        ("one", 3),
        ("one", 1),
        ("other", 1),
        ("absent", 1),
    ]
    assert [line.data for batch in found[:3] for line in batch.lines] == LINES
    assert isinstance(found[-1].lines[0], UnreadableLine)


def test_a_line_longer_than_a_batch_is_a_batch(tmp_path):
    found = list(batches([log(tmp_path / "log", LINES)], lines=100, size=len(LEAK)))
    assert [len(batch.lines) for batch in found] == [1, 1, 2, 1, 2]
    assert all(isinstance(line, Line) for batch in found for line in batch.lines)


def test_it_is_the_same_whatever_the_batches_and_processes(tmp_path):
    path = log(tmp_path / "log", LINES)
    whole = [scan_batch(batch, ReadOptions()) for batch in batches([path])]
    offsets = [sum(len(line) + 1 for line in LINES[:number]) for number in range(len(LINES))]
    failures, unreadable = told(whole)
    assert len(whole) == 1
    assert sorted(set(failures)) == sorted(f"{path}@{offsets[number]}" for number in (1, 4))
    assert unreadable == [(offsets[2], "no JSON"), (offsets[5], "no UTF-8")]
    assert (total(whole).exchanges, total(whole).discovery_exchanges, total(whole).unreadable) == (4, 1, 2)
    for processes in (1, 2):
        parted = list(scan_all(batches([path], lines=2), ReadOptions(), workers=processes))
        assert len(parted) == 4
        assert told(parted) == (failures, unreadable)
        assert total(parted) == total(whole)


def test_no_more_is_read_than_can_be_judged_soon():
    begun = []

    class Pool:
        def submit(self, part):
            begun.append(part)
            future = Future()
            future.set_result(part)
            return future

    came = workers._in_order(Pool(), iter(range(100)), 4)
    assert next(came) == 0
    assert begun == [0, 1, 2, 3, 4]
    assert next(came) == 1
    assert len(begun) == 6


def _ended_from_outside(batch, reading):
    mark = Path(batch.file)
    if mark.name == "fatal" or (mark.name == "once" and not mark.with_name("killed").exists()):
        mark.with_name("killed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return scan_batch(batch, reading)


def test_who_stops_reading_leaves_no_process_behind(tmp_path):
    before = set(active_children())
    came = scan_all(batches([log(tmp_path / "log", LINES)], lines=1), ReadOptions(), workers=2)
    next(came)
    assert len(set(active_children()) - before) == 2
    came.close()
    assert set(active_children()) <= before


@pytest.mark.parametrize("name", ["once", "fatal"])
def test_a_batch_whose_process_is_killed_is_judged_once_more_and_then_reported(tmp_path, monkeypatch, name):
    monkeypatch.setattr(workers, "scan_batch", _ended_from_outside)
    monkeypatch.setattr(workers, "get_context", lambda _: __import__("multiprocessing").get_context("fork"))
    files = [log(tmp_path / one, LINES) for one in ("a", name, "b", "c")]
    scanned = list(scan_all(batches(files), ReadOptions(), workers=2))
    assert [json.loads(one.failures.splitlines()[0])["exchange"].rpartition("@")[0] for one in scanned] == [
        *map(str, files)
    ]
    sum_of_all = total(scanned)
    if name == "once":
        assert (sum_of_all.exchanges, sum_of_all.errors) == (16, 0)
        return
    assert (sum_of_all.exchanges, sum_of_all.errors) == (12, len(LINES))
    rows = [json.loads(line) for line in scanned[1].failures.splitlines()]
    end = sum(len(line) + 1 for line in LINES) - 1
    assert {(row["outcome"], row["check"], row["reason"]) for row in rows} == {
        ("error", None, f"{workers.KILLED}: bytes 0 to {end}")
    }
    assert [row["exchange"] for row in rows] == [
        f"{files[1]}@{sum(len(line) + 1 for line in LINES[:number])}" for number in range(len(LINES))
    ]


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_number_of_processes_is_one_or_more(capsys, value):
    parser = ArgumentParser()
    audit.COMMAND.configure(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["log", f"--workers={value}"])
    assert f"expected a whole number from 1, got {value!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "said"), [("batches", "harmony-conformance audit: stopped"), ("load", "harmony-conformance: stopped")]
)
def test_who_stops_it_gets_one_line(tmp_path, monkeypatch, capsys, where, said):
    def stopped(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(audit if where == "batches" else cli, where, stopped)
    assert cli.main(["audit", str(log(tmp_path / "log", LINES))]) == 130
    assert capsys.readouterr().err == f"{said}\n"
