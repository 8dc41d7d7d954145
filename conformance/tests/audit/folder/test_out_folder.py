"""An audit replaces only files of audits: no log that it reads, no file of others, nothing behind a link."""

import json
import os

import pytest

from harmony_conformance.audit.folder.out_folder import AUDIT, JOURNAL, ROW_FILES
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit

NAMES = (AUDIT, JOURNAL, *ROW_FILES)
LINE = {
    "request": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "response": {"object": "chat.completion", "choices": [{"index": 0, "message": {"content": "Hi<|end|>"}}]},
}
LOG = (json.dumps(LINE) + "\n{\n").encode()


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.jsonl"
    path.write_bytes(LOG)
    return path


def audit(path, out):
    return cli.main(["audit", str(path), "--out", str(out), "--workers", "1"])


def refusal(capsys):
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("pattern", ["logs", "logs/", "logs/*.jsonl", "logs/**/*", "logs/day"])
def test_the_folder_of_the_log_is_refused_before_anything_is_written(tmp_path, monkeypatch, log, capsys, pattern):
    monkeypatch.chdir(tmp_path)
    for folder in ("logs", "logs/day"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.jsonl").write_bytes(LOG)
    before = sorted(tmp_path.rglob("*"))
    assert audit(pattern, "logs") == Exit.USAGE
    assert refusal(capsys) == (
        "harmony-conformance audit: invalid --out: expected a folder that has no log, got logs, which has " + pattern
    )
    assert sorted(tmp_path.rglob("*")) == before
    assert audit("logs", "logs/audit") == Exit.DIVERGES  # a folder within the log is left out of it
    assert audit("logs", "logs/audit") == Exit.DIVERGES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("link", [None, os.symlink, os.link], ids=["same path", "symlink", "hard link"])
def test_an_input_is_not_overwritten(tmp_path, log, capsys, name, link):
    out = tmp_path / "out"
    out.mkdir()
    if link is None:
        log = log.rename(out / name)
    else:
        link(log, out / name)
    assert audit(log, out) == Exit.USAGE
    assert f"--out {out}: the audit would overwrite its input {log}: use another folder" in refusal(capsys)
    assert log.read_bytes() == LOG
    assert [path.name for path in out.iterdir()] == [name]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_no_audit_wrote_is_not_overwritten(tmp_path, log, capsys, name):
    out = tmp_path / "out"
    out.mkdir()
    (out / name).write_bytes(LOG)
    assert audit(log, out) == Exit.USAGE
    assert f"{name} was not written by an audit and is not overwritten: use another folder" in refusal(capsys)
    assert (out / name).read_bytes() == LOG


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("content", [b"", b"mine\n", None], ids=["empty", "full", "dangling"])
def test_a_link_is_not_followed(tmp_path, log, capsys, name, content):
    out, target = tmp_path / "out", tmp_path / "target"
    audit(log, out)
    capsys.readouterr()
    if content is not None:
        target.write_bytes(content)
    (out / name).unlink(missing_ok=True)
    (out / name).symlink_to(target)
    assert audit(log, out) == Exit.USAGE
    assert f"{name} is no regular file and is not overwritten: use another folder" in refusal(capsys)
    assert (target.read_bytes() if target.exists() else None) == content


@pytest.mark.parametrize("kept", [*ROW_FILES, AUDIT])
def test_any_file_of_an_audit_is_replaced(tmp_path, log, kept):
    out = tmp_path / 'out "quoted"'
    assert audit(log, out) == Exit.DIVERGES
    written = {name: (out / name).read_bytes() for name in (AUDIT, *ROW_FILES)}
    for name in written.keys() - {kept}:
        (out / name).unlink()
    assert audit(log, out) == Exit.DIVERGES
    assert {name: (out / name).read_bytes() for name in written} == written


@pytest.mark.parametrize(
    "command",
    [["run", "reference", "--select", "errors.*"], ["rates", "reference"], ["load", "reference", "--rate", "1"]],
)
@pytest.mark.parametrize("left", ["all", "journal.jsonl", "report.html"])
def test_no_other_command_writes_into_the_folder_of_an_audit(tmp_path, log, capsys, command, left):
    """`run` replaced the page of the audit, whose title has the same end."""
    out = tmp_path / "out"
    if left == "journal.jsonl":  # of a killed audit
        out.mkdir()
        (out / left).write_text('{"version":"0.1.0","files":["a.jsonl"]}\n')
    else:
        assert audit(log, out) != Exit.USAGE
        for path in out.iterdir():
            if left not in ("all", path.name):
                path.unlink()
    capsys.readouterr()
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert cli.main([*command, "--out", str(out)]) == Exit.USAGE
    assert "was written by an audit and is not overwritten: use another folder" in refusal(capsys)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_an_audit_replaces_no_page_of_a_run_in_its_own_folder(tmp_path, log, capsys):
    """Such a page lay in the folder of an audit that was killed."""
    out = tmp_path / "out"
    assert audit(log, out) != Exit.USAGE
    page = "<!doctype html><title>openai at h (harmony-conformance)</title>"
    (out / "report.html").write_text(page)
    capsys.readouterr()
    assert audit(log, out) == Exit.USAGE
    assert "report.html was not written by an audit and is not overwritten: use another folder" in refusal(capsys)
    assert (out / "report.html").read_text() == page
