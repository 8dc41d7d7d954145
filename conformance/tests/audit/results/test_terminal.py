"""The terminal report of an audit: the verdict and the failures come first, what passed last, and no file is silently left out."""

import gzip
import json

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit

LEAK = "<|channel|>final<|message|>Hello."
BASELINE = """[[expected]]
check = "channels.no_marker_leak"
reason = "known"
"""


def record(content):
    message = {"role": "assistant", "content": content}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    return json.dumps({"request": asked, "response": {"object": "chat.completion", "choices": choices}}) + "\n"


def printed(capsys, *arguments):
    """Return the exit code, and the lines on the terminal."""
    code = main(["audit", *map(str, arguments), "--workers", "1"])
    return code, capsys.readouterr().out.splitlines()


@pytest.fixture
def log(tmp_path):
    (path := tmp_path / "log.jsonl").write_text(record(LEAK) + record("Hello."), encoding="utf-8")
    return path


def test_the_verdict_comes_first_then_failures_then_what_passed(log, capsys):
    code, lines = printed(capsys, log)
    assert code == Exit.DIVERGES
    assert lines[0] == "FAIL: 1 check failed, 1 of them MUST, in 1 of 2 exchanges"
    assert lines[2] == "FAILED MUST channels.no_marker_leak: 1 of 2 exchanges"
    (passed,) = (place for place, line in enumerate(lines) if line.startswith("passed: "))
    assert passed > lines.index(next(line for line in lines if line.startswith("  spec: ")))
    assert lines[passed] == "passed: 12 checks (channels 7, client 1, errors 2, tool_calls 2); --out DIR lists each"
    assert lines[-1].endswith(" 0 error")


def test_a_failure_that_the_baseline_expects_is_marked_and_comes_last(log, tmp_path, capsys):
    (file := tmp_path / "known.toml").write_text(BASELINE, encoding="utf-8")
    code, lines = printed(capsys, log, "--baseline", file)
    assert (code, lines[0]) == (
        Exit.CONFORMS,
        "NO NEW FAILURE: 1 check failed, 1 of them MUST, in 1 of 2 exchanges; 1 as the baseline expects",
    )
    assert lines[2] == "EXPECTED MUST channels.no_marker_leak: 1 of 2 exchanges"
    with log.open("a", encoding="utf-8") as more:
        more.write(record("analysisThe user greets.assistantfinalHello!"))
    code, lines = printed(capsys, log, "--baseline", file)
    failures = [line for line in lines if line.startswith(("FAILED MUST", "EXPECTED MUST"))]
    assert code == Exit.DIVERGES
    assert failures[0].startswith("FAILED MUST channels.no_channel_words")
    assert failures[-1].startswith("EXPECTED MUST channels.no_marker_leak")


def test_a_log_without_a_failure_says_so_first(log, capsys):
    log.write_text(record("Hello."), encoding="utf-8")
    code, lines = printed(capsys, log)
    assert (code, lines[0]) == (Exit.CONFORMS, "NO FAILURE FOUND: 0 of 1 exchange")


@pytest.mark.parametrize("out", [False, True], ids=["printed", "with a folder"])
def test_empty_files_among_others_are_named(log, tmp_path, capsys, out):
    folder = tmp_path / "out"
    (empty := tmp_path / "empty.jsonl").touch()
    (rotated := tmp_path / "log.jsonl.1.gz").write_bytes(gzip.compress(b""))
    code, lines = printed(capsys, log, empty, rotated, *(("--out", folder) if out else ()))
    assert code == Exit.DIVERGES
    place = lines.index("empty 2 files, without a record")
    assert lines[place + 1 : place + 3] == [f"  - {empty}", f"  - {rotated}"]
    if out:
        header = json.loads((folder / "audit.jsonl").read_text("utf-8").splitlines()[0])
        assert header["empty_files"] == [str(empty), str(rotated)]
        assert f"an empty file: <code>{empty}</code>" in (folder / "report.html").read_text("utf-8")
