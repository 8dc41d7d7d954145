import bz2
import errno
import gzip
import json
import lzma
import os
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path

import pytest

from harmony_conformance.audit.folder import out_folder
from harmony_conformance.checks import CHECKS
from harmony_conformance.cli import audit as command
from harmony_conformance.cli.options.logs import configure_audit
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.recording_file import append_atomically
from harmony_conformance.report.model import read_report

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Who is patient 12?"}]}
SECRET = "Sue Miller"
USAGE = {
    "prompt_tokens": 70,
    "completion_tokens": 9,
    "total_tokens": 79,
    "completion_tokens_details": {"reasoning_tokens": 0},
}


def answer(content, usage=True):
    body = {
        "id": "1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}],
    }
    return body | ({"usage": USAGE} if usage else {"usage": None})


GOOD = {"request": ASKED, "response": answer(f"{SECRET}.")}
LEAK = {"request": ASKED, "response": answer(f"<|channel|>analysis<|message|>{SECRET}<|end|>Hi")}


def log(path, *lines):
    data = b"".join((line if isinstance(line, bytes) else json.dumps(line).encode()) + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def audit(*arguments):
    parser = ArgumentParser()
    configure_audit(parser)
    return command.execute(parser.parse_args([str(argument) for argument in arguments]))


def test_a_clean_log_conforms(tmp_path, capsys):
    assert audit(log(tmp_path / "log.jsonl", GOOD, GOOD)) == Exit.CONFORMS
    printed = capsys.readouterr().out.splitlines()
    assert printed[-4:-1] == [
        "0 lines could not be read as exchanges",
        "plan structure: all checks on every record",
        "2 exchanges judged; counts are exchanges times checks",
    ]
    counts = [int(part.split()[0]) for part in printed[-1].split(", ")]
    assert [part.partition(" ")[2] for part in printed[-1].split(", ")] == [
        "passed",
        "failed",
        "variant",
        "inconclusive",
        "not applicable",
        "error",
    ]
    assert counts[1:4] == [0, 0, 0]
    assert sum(counts) == 2 * len(CHECKS)


def test_a_leak_is_reported_with_file_and_offset_and_without_the_text(tmp_path, capsys):
    path = log(tmp_path / "log.jsonl.gz", GOOD, LEAK)
    assert audit(path) == Exit.DIVERGES
    printed = capsys.readouterr().out
    assert "FAIL" in printed
    assert f"- {path}@{len(json.dumps(GOOD)) + 1}\n" in printed
    assert "<|channel|>analysis<|message|>xxx xxxxxx<|end|>" in printed
    assert SECRET not in printed


@pytest.mark.parametrize(("excerpts", "quoted"), [("full", True), ("redacted", False), ("none", False)])
def test_what_is_written_quotes_as_much_as_was_allowed(tmp_path, capsys, excerpts, quoted):
    out = tmp_path / "out"
    audit(log(tmp_path / "log.jsonl", LEAK), "--excerpts", excerpts, "--out", out)
    written = "".join(path.read_text(encoding="utf-8") for path in out.iterdir()) + capsys.readouterr().out
    assert (SECRET in written) is quoted
    assert ('"excerpt":' in written) is (excerpts != "none")


def test_the_written_audit_is_a_report_with_a_line_for_each_check(tmp_path):
    out = tmp_path / "out"
    path = log(tmp_path / "log.jsonl", GOOD, LEAK, b"{", {"messages": []})
    audit(path, "--out", out)
    report = read_report((out / "audit.jsonl").read_text(encoding="utf-8"))
    assert [line.check for line in report.results] == sorted(rule.id for rule in CHECKS)
    (leaked,) = (line for line in report.results if line.check == "channels.no_marker_leak")
    assert (leaked.passed, leaked.applied, leaked.tries) == (1, 2, 2)
    assert leaked.exchanges == (f"{path}@{len(json.dumps(GOOD)) + 1}",)
    assert (report.header["exchanges"], report.header["unreadable"]) == (2, 2)
    failures = [json.loads(line) for line in (out / "failures.jsonl").read_text(encoding="utf-8").splitlines()]
    assert ("channels.no_marker_leak", leaked.exchanges[0]) in {(one["check"], one["exchange"]) for one in failures}
    unreadable = [json.loads(line) for line in (out / "unreadable.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [one["kind"] for one in unreadable] == ["no JSON", "no exchange: it has messages, but no answer"]


def test_the_audit_of_a_log_is_the_same_however_its_files_are_ordered(tmp_path):
    first, second = log(tmp_path / "a.jsonl", GOOD, LEAK), log(tmp_path / "b.jsonl", LEAK, b"bad", GOOD)
    audit(first, second, "--out", tmp_path / "one")
    audit(second, first, "--out", tmp_path / "other")
    one, other = (
        (tmp_path / name / "audit.jsonl").read_text(encoding="utf-8").splitlines() for name in ("one", "other")
    )
    assert one[1:] == other[1:]


@pytest.mark.parametrize(
    ("fail_on", "code"), [("must", Exit.DIVERGES), ("should", Exit.DIVERGES), ("never", Exit.CONFORMS)]
)
def test_which_failures_count_is_chosen(tmp_path, fail_on, code):
    assert audit(log(tmp_path / "log.jsonl", LEAK), "--fail-on", fail_on) == code


@pytest.mark.parametrize(
    ("data", "said"),
    [
        pytest.param(b"", "the input is empty", id="empty"),
        pytest.param(
            b'{"request": {"messages',
            "1 x no JSON: the last line is torn, or still being written, first at {path}@0",
            id="cut JSON",
        ),
        pytest.param(
            bytes(range(256)) * 9,
            "1 x the file is binary, and of no format that is read, first at {path}@0",
            id="binary",
        ),
        pytest.param(
            json.dumps(GOOD).encode("utf-16"), "1 x the file is UTF-16: convert it", id="UTF-16 with its mark"
        ),
        pytest.param(b"\x28\xb5\x2f\xfd\x04\0", "1 x the compressed file is", id="cut zstd"),
        pytest.param(bz2.compress(b"{}\n")[:-9], "1 x the compressed file is", id="cut bzip2"),
        pytest.param(lzma.compress(b"{}")[:-9], "1 x the compressed file is", id="cut xz"),
        pytest.param(b"PK\x03\x04\x14\0", "1 x the file is a zip archive: unpack it", id="zip"),
        pytest.param(b"PAR1\x15\x04", "1 x the file is damaged", id="broken Parquet"),
        pytest.param(b"SQLite format 3\0", "1 x the file is damaged", id="broken SQLite"),
        pytest.param(
            json.dumps(GOOD, indent=1).encode()[:90], "1 x no JSON, first at {path}@0", id="cut, over several lines"
        ),
        pytest.param(b"[[]]", "1 x no exchange: not a JSON object", id="a list of nothing"),
        pytest.param(
            json.dumps(GOOD).encode("utf-16-le"),
            "1 x the file is UTF-16 without a mark: convert it",
            id="UTF-16 without",
        ),
        pytest.param(gzip.compress(json.dumps(GOOD).encode())[:60], "the compressed file is truncated", id="cut gzip"),
        pytest.param(
            b'{"kind": "exchange", "scenario": "discovery", "request": {}}', "only discovery requests", id="discovery"
        ),
        pytest.param(b"\x1f\x8bnonsense", "the compressed file is damaged", id="no gzip after all"),
    ],
)
def test_a_file_without_exchanges_is_said_to_be_one(tmp_path, capsys, data, said):
    path = tmp_path / "log.jsonl"
    path.write_bytes(data)
    with pytest.raises(
        UsageError, match=r"^nothing could be checked: no exchange in the input \(.*\); expected pairs of "
    ) as raised:
        audit(path, "--out", tmp_path / "out")
    assert said.format(path=path) in str(raised.value)
    assert capsys.readouterr() == ("", "")
    assert read_report((tmp_path / "out" / "audit.jsonl").read_text(encoding="utf-8")).header["exchanges"] == 0


def test_unreadable_lines_do_not_hide_the_others(tmp_path, capsys):
    path = log(tmp_path / "log.jsonl", b"\x00\xff", LEAK, b'{"a": 1}')
    assert audit(path) == Exit.DIVERGES
    told = capsys.readouterr()
    assert "2 lines could not be read as exchanges" in told.out
    assert told.err.count("\n") == 1
    assert f"1 x no UTF-8, first at {path}@0" in told.err


def test_a_line_that_was_cut_is_reported_on_standard_error(tmp_path, capsys):
    path = log(tmp_path / "log.jsonl", GOOD, json.dumps(GOOD).encode()[:50])
    audit(path)
    assert capsys.readouterr().err == f"unreadable lines: 1 x no JSON, first at {path}@{len(json.dumps(GOOD)) + 1}\n"


def test_discovery_is_told_apart_from_what_could_not_be_read(tmp_path, capsys):
    discovery = {"kind": "exchange", "scenario": "discovery", "request": {}}
    audit(log(tmp_path / "log.jsonl", discovery, discovery, GOOD), "--out", tmp_path / "out")
    printed = capsys.readouterr().out
    assert "0 lines could not be read as exchanges\n2 discovery exchanges not judged\n" in printed
    assert "\n1 exchange judged; counts" in printed
    header = read_report((tmp_path / "out" / "audit.jsonl").read_text(encoding="utf-8")).header
    assert (header["exchanges"], header["left_out"], header["unreadable"]) == (1, 2, 0)


def test_checks_that_passed_are_counted_by_family_and_so_are_those_that_applied_to_nothing(tmp_path, capsys):
    audit(log(tmp_path / "log.jsonl", GOOD), "--out", tmp_path / "out")
    lines = capsys.readouterr().out.splitlines()
    results = read_report((tmp_path / "out" / "audit.jsonl").read_text(encoding="utf-8")).results
    shown = Counter(line.check.partition(".")[0] for line in results if line.applied)
    families = ", ".join(f"{family} {count}" for family, count in sorted(shown.items()))
    assert f"passed: {sum(shown.values())} checks ({families}); --out DIR lists each" in lines
    (idle,) = (line for line in lines if " more checks applied to no exchange (" in line)
    assert int(idle.split()[0]) == len(CHECKS) - sum(shown.values())


@pytest.mark.parametrize(
    ("name", "said"), [("absent", "no such file"), ("*.absent", "no such file"), ("empty", "the folder has no file")]
)
def test_a_path_that_is_no_file_is_refused_before_anything_is_read(tmp_path, capsys, name, said):
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=said):
        audit(log(tmp_path / "log.jsonl", GOOD), tmp_path / name)
    assert capsys.readouterr().out == ""


def test_an_output_that_is_no_folder_is_refused(tmp_path):
    path = log(tmp_path / "log.jsonl", GOOD)
    with pytest.raises(UsageError, match="--out"):
        audit(path, "--out", path)


@pytest.mark.parametrize("full_file", ["journal.jsonl", "failures.jsonl", "audit.jsonl"])
def test_a_full_disk_is_reported_in_one_line(tmp_path, monkeypatch, full_file):
    def append(file, data):
        if Path(file.name).name == full_file:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        append_atomically(file, data)

    path, out = log(tmp_path / "log.jsonl", LEAK), tmp_path / "out"
    monkeypatch.setattr(out_folder, "append_atomically", append)
    with pytest.raises(UsageError, match=f"--out {out}: No space left on device$"):
        audit(path, "--out", out)
    monkeypatch.undo()
    assert audit(path, "--out", out, "--resume") == Exit.DIVERGES


@pytest.mark.parametrize(
    ("content", "check"),
    [
        ("analysisWe greet.assistantfinalHello!", "channels.no_channel_words"),
        ("&lt;|channel|&gt;final&lt;|message|&gt;Hello!", "channels.no_marker_leak"),
        ("Hello!<|return|>", "channels.no_marker_leak"),
        ("<think>We greet.</think>Hello!", "channels.no_reasoning_in_content"),
        ("Write `<|channel|>analysis<|message|>` first, or assistantfinal.", None),
    ],
)
def test_leaks_are_found_in_a_log_that_has_only_the_text(tmp_path, content, check):
    out = tmp_path / "out"
    audit(log(tmp_path / "log.jsonl", {"request": ASKED, "response": answer(content, usage=False)}), "--out", out)
    report = read_report((out / "audit.jsonl").read_text(encoding="utf-8"))
    failed = {
        line.check for line in report.results if line.outcome.value == "fail" and line.check.startswith("channels.")
    }
    assert failed == ({check} if check else set())


SAME = {
    "one name twice": (["log.jsonl", "log.jsonl"], "log.jsonl: named 2 times, read once"),
    "a folder and a file of it": ([".", "log.jsonl"], "log.jsonl: named 2 times, read once"),
    "two spellings": (["log.jsonl", "./log.jsonl"], "./log.jsonl: the same file as log.jsonl, read once"),
    "a link before its file": (["current", "log.jsonl"], "current: the same file as log.jsonl, read once"),
    "two links": (["current", "latest"], "latest: the same file as current, read once"),
}


@pytest.mark.parametrize("case", SAME)
def test_a_file_that_is_named_twice_is_read_once(tmp_path, monkeypatch, capsys, case):
    """Folders, globs and links such as `current.log` overlap. A file that counts twice makes wrong rates."""
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "log.jsonl", LEAK)
    names, note = SAME[case]
    for name in {"current", "latest"} & {*names}:
        (tmp_path / name).symlink_to("log.jsonl")
    assert audit(*names) == Exit.DIVERGES
    printed = capsys.readouterr()
    assert [line for line in printed.err.splitlines() if line.endswith("read once")] == [note]
    assert "\n1 exchange judged" in printed.out


def test_files_of_equal_content_are_read_each(tmp_path, capsys):
    audit(log(tmp_path / "a.jsonl", GOOD), log(tmp_path / "b.jsonl", GOOD))
    printed = capsys.readouterr()
    assert "\n2 exchanges judged" in printed.out
    assert "read once" not in printed.err
