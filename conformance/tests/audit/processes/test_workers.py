"""A log in batches, judged here and in other processes."""

import gc
import json
import multiprocessing
import os
import signal
import time
from argparse import ArgumentParser
from concurrent.futures import Future
from functools import partial, reduce
from multiprocessing import active_children
from operator import add
from pathlib import Path

import pytest

from harmony_conformance.audit import batches as batches_module
from harmony_conformance.audit.batches import ReadOptions, batches, scan_batch
from harmony_conformance.audit.processes import line_process, workers
from harmony_conformance.audit.processes.workers import scan_all
from harmony_conformance.audit.readers.files import sources
from harmony_conformance.audit.readers.records import shapes
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.cli import audit
from harmony_conformance.cli import main as cli
from harmony_conformance.cli.options.logs import configure_audit
from harmony_conformance.evidence.file_lines import Line, UnreadableLine
from harmony_conformance.runtime import time_limit
from harmony_ref.extras import install_command

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


FATAL, SLOW, STUCK, ONCE = (f'{{"{word}": 1}}'.encode() for word in ("fatal", "slow", "stuck", "once"))


def _ended_from_outside(batch, reading):
    """Judge lines like `scan_batch`, but end the process on a marker."""
    once = Path(batch.file).with_name("killed")
    for line in batch.lines:
        if line.data == FATAL or (line.data == ONCE and not once.exists()):
            once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
    return scan_batch(batch, reading)


def _read_slowly(line, form, **named):
    """Read a line like `read_line`. Two markers take for ever: one in Python, one in C code that no signal interrupts."""
    if line.data == STUCK:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    if line.data in (STUCK, SLOW):
        time.sleep(600)
    return shapes.read_line(line, form, **named)


def _scan_slowly(batch, reading):
    batches_module.read_line = _read_slowly
    return scan_batch(batch, reading)


@pytest.fixture
def forked_workers(monkeypatch):
    fork = multiprocessing.get_context("fork")
    monkeypatch.setattr(workers, "process_context", lambda: fork)
    monkeypatch.setattr(line_process, "get_context", lambda _: fork)


def test_who_stops_reading_leaves_no_process_behind(tmp_path):
    before = set(active_children())
    came = scan_all(batches([log(tmp_path / "log", LINES)], lines=1), ReadOptions(), workers=2)
    next(came)
    assert len(set(active_children()) - before) == 2
    came.close()
    assert set(active_children()) <= before


def error_rows(scanned):
    rows = [json.loads(line) for one in scanned for line in one.failures.splitlines()]
    return [(row["exchange"], row["check"], row["reason"]) for row in rows if row["outcome"] == "error"]


@pytest.mark.usefixtures("forked_workers")
def test_a_line_that_kills_its_process_once_is_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "scan_batch", _ended_from_outside)
    files = [log(tmp_path / "a", LINES), log(tmp_path / "b", [*LINES, ONCE]), log(tmp_path / "c", LINES)]
    scanned = list(scan_all(batches(files), ReadOptions(), workers=2))
    monkeypatch.undo()
    assert total(scanned) == total(map(partial(scan_batch, reading=ReadOptions()), batches(files)))


@pytest.mark.usefixtures("forked_workers")
def test_a_line_that_kills_its_process_twice_costs_no_other_line(tmp_path, monkeypatch):
    monkeypatch.setattr(workers, "scan_batch", _ended_from_outside)
    lines = [GOOD, FATAL, LEAK, b"{", FATAL, GOOD]
    files = [log(tmp_path / "a", LINES), log(tmp_path / "b", lines), log(tmp_path / "c", LINES)]
    scanned = list(scan_all(batches(files), ReadOptions(), workers=2))
    starts = [sum(len(line) + 1 for line in lines[:number]) for number in range(len(lines))]
    assert error_rows(scanned) == [
        (
            f"{files[1]}@{starts[number]}",
            None,
            f"{line_process.KILLED}: bytes {starts[number]} to {starts[number + 1] - 1}",
        )
        for number in (1, 4)
    ]
    assert (total(scanned).exchanges, total(scanned).errors, total(scanned).unreadable) == (4 + 3 + 4, 2, 2 + 1 + 2)
    assert [one.digest for one in scanned] == [batch.digest for batch in batches(files)]
    failures, unreadable = told(scanned[1:2])
    assert set(failures) == {f"{files[1]}@{starts[number]}" for number in (1, 2, 4)}
    assert unreadable == [(starts[3], "no JSON")]


@pytest.mark.usefixtures("forked_workers")
@pytest.mark.parametrize("marker", [SLOW, STUCK])
def test_a_line_that_takes_too_long_costs_no_other_line(tmp_path, monkeypatch, marker):
    monkeypatch.setattr(workers, "scan_batch", _scan_slowly)
    monkeypatch.setattr(time_limit, "GRACE_SECONDS", 0.3)
    monkeypatch.setattr(line_process, "GRACE_SECONDS", 0.3)
    files = [log(tmp_path / "a", LINES), log(tmp_path / "b", [GOOD, marker, LEAK]), log(tmp_path / "c", LINES)]
    scanned = list(scan_all(batches(files), ReadOptions(line_seconds=0.7), workers=2))
    ((place, check, reason),) = error_rows(scanned)
    assert (place, check) == (f"{files[1]}@{len(GOOD) + 1}", None)
    assert reason.startswith("judging took longer than 0.7 s")
    assert (total(scanned).exchanges, total(scanned).errors) == (10, 1)


@pytest.mark.timeout(60, method="thread")  # the limit is not set while another timer is active
def test_a_line_that_takes_too_long_in_this_process_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(batches_module, "read_line", _read_slowly)
    path = log(tmp_path / "log", [GOOD, SLOW, LEAK])
    scanned = list(scan_all(batches([path]), ReadOptions(line_seconds=0.5), workers=1))
    assert error_rows(scanned) == [(f"{path}@{len(GOOD) + 1}", None, "judging took longer than 0.5 s")]
    assert (total(scanned).exchanges, total(scanned).errors) == (2, 1)


def test_the_timer_that_ends_a_stuck_process_is_set_once_for_many_lines(tmp_path, monkeypatch):
    started = []
    monkeypatch.setattr(time_limit, "_exit_files", [None])
    monkeypatch.setattr(time_limit.faulthandler, "dump_traceback_later", lambda *_, **more: started.append(more))
    monkeypatch.setattr(time_limit.faulthandler, "cancel_dump_traceback_later", lambda: started.append("cancelled"))
    monkeypatch.setattr(time_limit, "monotonic", lambda: 100.0)
    (batch,) = batches([log(tmp_path / "log", LINES)])
    assert batches_module.scan_batch(batch, ReadOptions()).tally.exchanges == 4
    assert started == [{"exit": True, "file": None}, "cancelled"]


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_a_number_of_processes_is_one_or_more(capsys, value):
    parser = ArgumentParser()
    configure_audit(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(["log", f"--workers={value}"])
    assert f"expected a whole number from 1, got {value!r}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("where", "said"),
    [("batches", "harmony-conformance audit: stopped"), ("all_commands", "harmony-conformance: stopped")],
)
def test_who_stops_it_gets_one_line(tmp_path, monkeypatch, capsys, where, said):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(audit if where == "batches" else cli, where, stopped)
    assert cli.main(["audit", str(log(tmp_path / "log", LINES))]) == 130
    assert capsys.readouterr().err == f"{said}\n"


def test_a_cluster_without_its_library_says_what_to_install(tmp_path, monkeypatch, capsys):
    found = sources.find_spec
    monkeypatch.setattr(sources, "find_spec", lambda name: None if name == "ray" else found(name))
    assert cli.main(["audit", str(log(tmp_path / "log", LINES)), "--engine", "ray"]) == 2
    expected = f"--engine ray needs ray: {install_command('ray')}"
    assert capsys.readouterr().err == f"harmony-conformance audit: {expected}\n"


def _thresholds(batch):
    return gc.get_threshold()


def test_processes_that_judge_collect_garbage_less_often_than_python_does(tmp_path):
    pool = workers.WorkerPool(_thresholds, 1, 60.0)
    (part,) = batches([log(tmp_path / "log", LINES)])
    try:
        assert pool.submit(part).result()[0] > 700
    finally:
        pool.close()
