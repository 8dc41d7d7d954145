"""An audit that was killed ends its processes, and continues to the result of one that was not."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path

import pytest

from harmony_conformance.audit.folder import out_folder
from harmony_conformance.audit.folder.journal import JournalEntry, entry_json, read_entry
from harmony_conformance.audit.folder.out_folder import ROW_FILES
from harmony_conformance.audit.tallies import CheckTally, FindingExample, Tally
from harmony_conformance.cli import audit as command
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit
from harmony_conformance.evidence.file_lines import LinePosition
from harmony_conformance.evidence.folder_lock import lock_folder
from harmony_conformance.judge.check import Finding, Outcome, Verdict
from harmony_conformance.redactable_text import RedactableText

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
WRITTEN = ("report.html", "audit.jsonl", *ROW_FILES)


def exchange(content):
    message = {"role": "assistant", "content": content}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return json.dumps({"request": ASKED, "response": body}).encode()


def log(path, lines):
    path.write_bytes(b"".join(line + b"\n" for line in lines))
    return path


LINES = [exchange("Hello."), exchange("Hello.<|end|>"), b"{", exchange("\ud800 assistantfinal"), b"\xff"]


def arguments(path, out, *more):
    return ["audit", str(path), "--out", str(out), "--workers", "1", *more]


def files(out):
    return {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(
        command, "batches", lambda paths, form, plan, **more: batches_of(paths, form, plan, lines=1, **more)
    )


batches_of = command.batches


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("stopped_after", range(len(LINES) + 1))
def test_an_audit_stopped_after_any_batch_continues_to_the_same_files(tmp_path, monkeypatch, capsys, stopped_after):
    path = log(tmp_path / "log.jsonl", LINES)
    assert cli.main(arguments(path, tmp_path / "whole")) == Exit.DIVERGES
    whole = capsys.readouterr().out
    scan_all = command.scan_all

    def scan_some(*args, **named):
        for number, scanned in enumerate(scan_all(*args, **named)):
            if number == stopped_after:
                raise KeyboardInterrupt
            yield scanned
        raise KeyboardInterrupt

    out = tmp_path / "out"
    with monkeypatch.context() as patch:
        patch.setattr(command, "scan_all", scan_some)
        assert cli.main(arguments(path, out)) == 130
    assert capsys.readouterr().err == ("harmony-conformance audit: stopped; the same command with --resume continues\n")
    assert "audit.jsonl" not in files(out)
    for name in (*ROW_FILES, out_folder.JOURNAL):  # the process was killed within its next write
        with (out / name).open("ab") as file:
            file.write(b'{"torn": ')
    judged = []
    monkeypatch.setattr(
        command,
        "scan_all",
        lambda parts, *args, **named: scan_all((judged.append(part) or part for part in parts), *args, **named),
    )
    assert cli.main(arguments(path, out, "--resume")) == Exit.DIVERGES
    assert len(judged) == len(LINES) - stopped_after
    assert capsys.readouterr().out == whole
    assert files(out) == files(tmp_path / "whole")
    assert set(files(out)) == set(WRITTEN)


@pytest.fixture
def interrupted(tmp_path, monkeypatch, small_batches):
    path, out = log(tmp_path / "log.jsonl", LINES), tmp_path / "out"
    scan_all = command.scan_all

    def scan_two(*args, **named):
        scanned = scan_all(*args, **named)
        yield next(scanned)
        yield next(scanned)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(command, "scan_all", scan_two)
        cli.main(arguments(path, out))
    return path, out


def test_another_option_or_another_log_is_refused(interrupted, capsys):
    path, out = interrupted
    capsys.readouterr()
    assert cli.main(arguments(path, out, "--resume", "--excerpts", "none")) == Exit.USAGE
    expected = f"invalid --resume: expected the options of the audit in {out}, got other excerpts"
    assert capsys.readouterr().err == f"harmony-conformance audit: {expected}\n"
    log(path, [LINES[1], *LINES[1:]])
    assert cli.main(arguments(path, out, "--resume")) == Exit.USAGE
    assert f"invalid --resume: the log has changed at {path}@0: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "size"),
    [("failures.jsonl", 3), ("journal.jsonl", 0), ("journal.jsonl", 9), ("journal.jsonl", -1), ("journal.jsonl", -9)],
)
def test_lines_that_were_lost_with_the_machine_are_judged_again(interrupted, tmp_path, name, size):
    path, out = interrupted
    os.truncate(out / name, size if size >= 0 else (out / name).stat().st_size + size)
    for _ in range(2):  # the second time, nothing of the first attempt is left but the files
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(out_folder.AuditFolder, "finish", lambda *_: None)
            cli.main(arguments(path, out, "--resume"))
    cli.main(arguments(path, out, "--resume"))
    cli.main(arguments(path, tmp_path / "whole"))
    assert files(out) == files(tmp_path / "whole")


def test_a_folder_without_a_journal_is_begun_and_without_a_folder_there_is_nothing_to_resume(tmp_path, capsys):
    path = log(tmp_path / "log.jsonl", LINES)
    assert cli.main(arguments(path, tmp_path / "out", "--resume")) == Exit.DIVERGES
    capsys.readouterr()
    assert cli.main(["audit", str(path), "--resume"]) == Exit.USAGE
    assert "expected --out with the folder of the killed audit, got none" in capsys.readouterr().err


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no locks of this kind")
def test_a_folder_in_use_is_refused_and_stays_as_it_is(interrupted, capsys):
    path, out = interrupted
    before = files(out)
    capsys.readouterr()
    with lock_folder(out):
        assert cli.main(arguments(path, out)) == Exit.USAGE
        assert f"in use by process {os.getpid()}" in capsys.readouterr().err
    assert files(out) == before


def test_no_text_of_the_traffic_is_in_the_journal(tmp_path, monkeypatch):
    path, out = log(tmp_path / "log.jsonl", [exchange("<|channel|>analysis<|message|>Sue Miller")]), tmp_path / "out"
    monkeypatch.setattr(out_folder.AuditFolder, "finish", lambda *_: None)
    cli.main(arguments(path, out))
    assert b"xxx xxxxxx" in files(out)[out_folder.JOURNAL]
    assert b"Miller" not in files(out)[out_folder.JOURNAL]


def test_a_finding_has_each_of_its_members_after_a_resume():
    """A cause has the clause of its example."""
    texts = {one.name: RedactableText("a {} of " + one.name, 1) for one in fields(Finding) if one.name != "verdict"}
    texts |= {name: str(texts[name]) for name in texts.keys() - {"message"}}
    finding = Finding(verdict=Verdict.VARIANT, **texts)
    example = FindingExample(place=LinePosition(file="log", offset=7), outcome=Outcome.FAIL, findings=(finding,))
    tally = Tally(exchanges=1, checks={"a.check": CheckTally(counts={Outcome.FAIL: 1}, examples=(example,))})
    entry = JournalEntry(digest="log@7", tally=tally, sizes=(1, 2))
    assert read_entry(json.dumps(entry_json(entry)).encode()) == entry


def children(pid):
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return [*found, *(below for child in found for below in children(child))]


def wait_until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="needs /proc to find the processes")
def test_kill_leaves_no_process_and_the_audit_continues(tmp_path):
    path, out = log(tmp_path / "log.jsonl", LINES * 240), tmp_path / "out"
    program = [sys.executable, "-m", "harmony_conformance", "audit", str(path), "--workers", "2", "--out"]
    killed = subprocess.Popen([*program, str(out)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    journal = out / out_folder.JOURNAL
    wait_until(lambda: journal.exists() and journal.read_bytes().count(b"\n") >= 2)
    workers = children(killed.pid)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert len(workers) >= 2
    assert not (out / "audit.jsonl").exists()
    wait_until(lambda: not any(map(is_running, workers)))
    resumed = subprocess.run([*program, str(out), "--resume"], capture_output=True, check=False)
    whole = subprocess.run([*program, str(tmp_path / "whole")], capture_output=True, check=False)
    assert resumed.stderr.startswith(b"resuming after ")
    assert (resumed.returncode, resumed.stdout) == (whole.returncode, whole.stdout)
    assert {name: files(out)[name] for name in WRITTEN} == files(tmp_path / "whole")
