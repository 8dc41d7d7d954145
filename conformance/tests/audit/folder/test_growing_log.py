"""An audit of a log that is still written: what is added after its start is left out, also after a kill."""

import gzip
import json

import pytest

from harmony_conformance.audit.folder import out_folder
from harmony_conformance.cli import audit as command
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}


def exchange(content):
    message = {"role": "assistant", "content": content}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    return json.dumps({"request": ASKED, "response": body}).encode() + b"\n"


LINES = [exchange("Hello."), exchange("Hello.<|end|>"), exchange("<|channel|>final")]
MORE = [exchange("Later.<|end|>"), exchange("<|start|>later")]


def files(out):
    return {path.name: path.read_bytes() for path in out.iterdir()}


def audit(log, out, *more):
    return cli.main(["audit", str(log), "--out", str(out), "--workers", "1", *more])


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def kill_after(monkeypatch, batches):
    """Let the next audit end after so many batches, as by a kill: the folder stays as it is then."""
    scan_all = command.scan_all

    def scan_some(*args, **named):
        for number, scanned in enumerate(scan_all(*args, **named)):
            if number == batches:
                raise KeyboardInterrupt
            yield scanned
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "scan_all", scan_some)


@pytest.fixture(params=["structure", "needles"])
def plan(request):
    return ["--plan", request.param]


@pytest.mark.parametrize("batches", [0, 1, 2])
def test_a_killed_audit_of_a_growing_folder_continues_to_the_log_of_its_start(
    tmp_path, monkeypatch, capsys, plan, batches
):
    (log := tmp_path / "log").mkdir()
    (log / "a.jsonl").write_bytes(b"".join(LINES))
    (log / "b.jsonl.gz").write_bytes(gzip.compress(LINES[1]))
    assert audit(log, tmp_path / "whole", *plan) == Exit.DIVERGES
    whole = capsys.readouterr().out
    with monkeypatch.context() as patch:
        kill_after(patch, batches)
        assert audit(log, out := tmp_path / "out", *plan) == 130
    append(log / "a.jsonl", MORE[0])
    append(log / "b.jsonl.gz", gzip.compress(MORE[1]))
    (log / "a1.jsonl").write_bytes(MORE[1])
    capsys.readouterr()
    assert audit(log, out, *plan, "--resume") == Exit.DIVERGES
    shown = capsys.readouterr()
    assert shown.out == whole
    assert shown.err.startswith("plan needles" if "needles" in plan else "resuming without 1 file")
    assert "resuming without 1 file that the killed audit did not have\n" in shown.err
    assert files(out) == files(tmp_path / "whole")


def test_a_writer_that_is_faster_than_the_audit_does_not_keep_it(tmp_path, monkeypatch, capsys):
    (log := tmp_path / "log.jsonl").write_bytes(b"".join(LINES))
    scan_all = command.scan_all

    def append_while_judging(*args, **named):
        for scanned in scan_all(*args, **named):
            append(log, MORE[0])
            yield scanned

    real = command.batches
    monkeypatch.setattr(command, "scan_all", append_while_judging)
    monkeypatch.setattr(command, "batches", lambda paths, form, plan, **more: real(paths, form, plan, lines=1, **more))
    assert audit(log, tmp_path / "out") == Exit.DIVERGES
    assert "3 exchanges judged" in capsys.readouterr().out


def test_what_was_added_before_a_resume_is_new_to_the_next_nightly_audit(tmp_path, monkeypatch, capsys):
    (log := tmp_path / "log.jsonl").write_bytes(b"".join(LINES))
    with monkeypatch.context() as patch:
        kill_after(patch, 0)
        audit(log, out := tmp_path / "out", "--incremental")
    append(log, MORE[0])
    audit(log, out, "--incremental", "--resume")
    assert "3 new exchanges" in capsys.readouterr().err
    audit(log, out, "--incremental")
    assert "1 new exchange\n" in capsys.readouterr().err
    audit(log, tmp_path / "whole", "--incremental")
    assert {name: files(out)[name] for name in out_folder.ROW_FILES} == {
        name: files(tmp_path / "whole")[name] for name in out_folder.ROW_FILES
    }


@pytest.mark.parametrize(
    "place",
    ["harmony_conformance.audit.folder.out_folder.AuditFolder.finish", "harmony_conformance.cli.audit.write_progress"],
)
def test_a_nightly_audit_that_was_killed_while_it_ended_can_be_resumed(tmp_path, monkeypatch, capsys, place):
    (log := tmp_path / "log.jsonl").write_bytes(b"".join(LINES))

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(place, killed)
        assert audit(log, out := tmp_path / "out", "--incremental") == 130
    assert audit(log, out, "--incremental", "--resume") == Exit.DIVERGES
    capsys.readouterr()
    audit(log, tmp_path / "whole", "--incremental")
    assert files(out) == files(tmp_path / "whole")
