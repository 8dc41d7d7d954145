"""A log that is rotated while it is audited: what the audit began with is read on, and what is gone is counted."""

import gzip
import json
import os
from dataclasses import replace

import pytest

from harmony_conformance.audit.batches import ReadOptions, batches, scan_batch
from harmony_conformance.audit.plans import blocks
from harmony_conformance.audit.plans.plan import PlanName, choose_plan
from harmony_conformance.audit.renamed_files import REPLACED, identities, open_same
from harmony_conformance.audit.tallies import Tally

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def exchange(content):
    message = {"role": "assistant", "content": content}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return json.dumps({"request": ASKED, "response": body}).encode() + b"\n"


LOG = b"".join(exchange(f"Hello {number}.{'<|end|>' * (number % 3 == 0)}") for number in range(60))
NEXT = exchange("The next log.<|end|>") * 100


@pytest.fixture(params=["structure", "needles"])
def plan(request, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    return choose_plan(PlanName(request.param), None, [])


def rename(path):
    path.rename(path.with_name("log.1"))


def rename_and_begin_anew(path):
    rename(path)
    path.write_bytes(NEXT)


def rename_and_compress(path):
    rename_and_begin_anew(path)
    path.with_name("log.1.gz").write_bytes(gzip.compress(LOG))
    path.with_name("log.1").unlink()


def audit(paths, plan, rotate=lambda: None, *, after=2):
    """Return the tally, the failures and the unreadable records of an audit during which a log is rotated, after so many batches were sent."""
    total, failures, unreadable = Tally(), [], []
    names = list(map(str, paths))
    found = batches(names, "auto", plan, ends={str(path): path.stat().st_size for path in paths}, lines=5)
    pending = [next(found) for _ in range(after)]
    rotate()
    for batch in (*pending, *found):
        scanned = scan_batch(batch, replace(ReadOptions(), plan=plan))
        total += scanned.tally
        failures += scanned.failures.splitlines()
        unreadable += map(json.loads, scanned.unreadable.splitlines())
    return total, failures, unreadable


@pytest.mark.parametrize("rotate", [rename, rename_and_begin_anew])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_log_that_is_renamed_is_read_on(tmp_path, plan, rotate, pack):
    (path := tmp_path / "log.jsonl").write_bytes(pack(LOG))
    expected = audit([path], plan)
    assert audit([path], plan, lambda: rotate(path)) == expected
    assert len(expected[1]) == 20


def test_each_file_of_a_folder_that_is_rotated_is_read_once(tmp_path, plan):
    paths = [tmp_path / name for name in ("log", "log.1", "log.2")]
    for number, path in enumerate(paths):
        path.write_bytes(exchange(f"Log {number}.<|end|>") * 9)
    expected = audit(paths, plan)

    def rotate():
        for path in reversed(paths):
            path.rename(path.with_name(f"log.{paths.index(path) + 1}"))
        paths[0].write_bytes(NEXT)

    assert audit(paths, plan, rotate, after=1) == expected
    assert expected[0].exchanges + expected[0].passed_over == 27


def test_a_file_that_is_compressed_before_its_turn_is_counted(tmp_path, plan):
    first, second = tmp_path / "a.jsonl", tmp_path / "log.jsonl"
    for path in (first, second):
        path.write_bytes(LOG)
    _, failures, unreadable = audit([first, second], plan, lambda: rename_and_compress(second))
    assert {json.loads(row)["exchange"].partition("@")[0] for row in failures} == {str(first)}
    assert [(one["file"], one["kind"]) for one in unreadable] == [(str(second), REPLACED)]


@pytest.mark.parametrize(
    ("rotate", "kind"),
    [
        (rename_and_compress, REPLACED),
        (os.unlink, REPLACED),
        (lambda path: os.truncate(path, 0), "the file became shorter while it was read"),
        (
            lambda path: path.write_bytes(b"x" * 100_000),
            "the file was rewritten while it was read, as by a rotation that truncates",
        ),
    ],
)
def test_blocks_that_are_gone_before_a_process_reads_them_are_counted(tmp_path, monkeypatch, rotate, kind):
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 2000)
    (path := tmp_path / "log.jsonl").write_bytes(LOG)
    plan = choose_plan(PlanName.NEEDLES, None, [])
    parts = list(blocks.split_file(str(path), plan, len(LOG), identities([str(path)])[str(path)]))
    rotate(path)
    for part in parts[1:]:
        selection = blocks.read_block(part)
        (lost,) = selection.lines
        assert (lost.offset, lost.kind, lost.detail) == (part.start, kind, f"bytes {part.start} to {part.end}")
        assert not selection.passed_over


def test_a_file_of_another_machine_is_known_by_its_name_alone(tmp_path):
    (path := tmp_path / "log.jsonl").write_bytes(LOG)
    elsewhere = replace(identities([str(path)])[str(path)], machine="another", inode=1)
    with open_same(str(path), elsewhere) as file:
        assert file.read() == LOG


def test_pipes_urls_and_missing_files_have_no_identity(tmp_path):
    os.mkfifo(pipe := tmp_path / "pipe")
    assert not identities(["-", "s3://bucket/log.jsonl", str(pipe), str(tmp_path / "missing"), "\0"])
