"""No line of a log ends its audit, whatever its names and texts are, and wherever an error is raised."""

import json
from io import StringIO

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console

from harmony_conformance.audit import batches as module
from harmony_conformance.audit.batches import Batch, ReadOptions, scan_batch
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.audit.results.report import exit_code, make_audit
from harmony_conformance.audit.results.terminal import print_audit
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit
from harmony_conformance.evidence.file_lines import Line
from harmony_conformance.judge.check import Outcome, Severity

TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}
TEMPLATES = ["get\\weather", "a\\", "\\g<1>", "\\q", "\\1", "{}", "{0!r:>9}", "%s", "\x9b2J", "\u202e", "\ud800", "\0"]
TEXTS = st.text(st.characters(exclude_categories=()), max_size=12) | st.sampled_from([*TEMPLATES, "[bold]", "[/]\\"])
MUST = frozenset({Severity.MUST})


def line(name, content="Hi"):
    call = {"id": "c", "type": "function", "function": {"name": name, "arguments": content}}
    message = {"role": "assistant", "content": content, "tool_calls": [call]}
    body = {"object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}]}
    asked = {"model": name, "messages": [{"role": "user", "content": content}], "tools": [TOOL]}
    return json.dumps({"request": asked, "response": body}).encode()


def batch(*lines):
    offsets = [sum(len(one) + 1 for one in lines[:number]) for number in range(len(lines))]
    pairs = zip(offsets, lines, strict=True)
    return Batch(file="log", lines=tuple(Line(offset=at, number=1, data=data) for at, data in pairs))


def audited(part, excerpts):
    scanned = scan_batch(part, ReadOptions(excerpts=excerpts))
    return scanned, make_audit(scanned.tally, ("log",), excerpts, "0")


def printed(audit):
    text = StringIO()
    print_audit(audit, Console(width=160, highlight=False, file=text))
    return text.getvalue()


@pytest.mark.parametrize("excerpts", ["none", "redacted", "full"])
@pytest.mark.parametrize("name", TEMPLATES)
def test_a_name_like_a_template_is_a_failure_among_good_lines(tmp_path, capsys, name, excerpts):
    path, good = tmp_path / "log.jsonl", line("get_weather", "{}")
    path.write_bytes(b"\n".join([good, good, line(name, "{}"), good, good]))
    assert cli.main(["audit", str(path), "--excerpts", excerpts]) == Exit.DIVERGES
    shown = capsys.readouterr().out
    assert "5 exchanges judged" in shown
    assert f"MUST tool_calls.name_is_declared: 1 of 5 exchanges\n  - {path}@{2 * len(good) + 2}\n" in shown


@settings(max_examples=100)
@given(TEXTS, TEXTS, st.sampled_from(Excerpts))
@example("\\g<0>", "<|end|>\ud800{}%s\\", Excerpts.REDACTED)
def test_every_name_and_text_is_judged_and_shown(name, content, excerpts):
    scanned, audit = audited(batch(line(name, content)), excerpts)
    assert (scanned.tally.exchanges, scanned.tally.errors, audit.counts[Outcome.ERROR]) == (1, 0, 0)
    rows = [json.loads(row) for row in scanned.failures.splitlines()]
    assert {row["exchange"] for row in rows} == {"log@0"}
    assert [json.loads(row.encode("utf-8", "backslashreplace"))["kind"] for row in audit.jsonl()][-1] == "footer"
    shown = printed(audit)
    assert "could not be shown" not in shown
    assert all(char.isprintable() or char == "\n" for char in shown)


@pytest.mark.parametrize(
    "where", ["read_line", "judge_split", "function_names", "apply_excerpts", "finding_json", "dumps", "JudgedExchange"]
)
@pytest.mark.parametrize("error", [KeyError, RecursionError, MemoryError, BaseException], ids=lambda one: one.__name__)
def test_an_internal_error_is_the_row_of_its_line_and_hides_no_other(monkeypatch, where, error):
    good, bad, function = line("get_weather", "{}"), line("other"), getattr(module, where)
    lines = batch(good, bad, good)
    alone = scan_batch(batch(good), ReadOptions()).tally
    calls = []

    def fail_on_second(*args, **named):
        if where in ("function_names", "apply_excerpts", "finding_json"):  # called for failures alone
            raise error("secret")
        calls.append(args)
        if where == "dumps" and args[0]["exchange"] != f"log@{len(good) + 1}":
            return function(*args, **named)
        if where == "dumps" and args[0]["check"] is None:
            return function(*args, **named)
        if where != "dumps" and len(calls) != 2:
            return function(*args, **named)
        raise error("secret")

    monkeypatch.setattr(module, where, fail_on_second)
    monkeypatch.setattr(module, "_memo_of", lambda _: None)  # the third record is like the first
    scanned, audit = audited(lines, Excerpts.REDACTED)
    (row,) = map(json.loads, scanned.failures.splitlines())
    assert (row["exchange"], row["check"], row["outcome"]) == (f"log@{len(good) + 1}", None, "error")
    assert row["reason"].startswith(f"{error.__name__} in harmony_conformance/audit/batches.py, line ")
    assert (scanned.tally.exchanges, scanned.tally.errors) == (2, 1)
    assert {name: check.counts for name, check in scanned.tally.checks.items()} == {
        name: {outcome: 2 * count for outcome, count in check.counts.items()} for name, check in alone.checks.items()
    }
    assert exit_code(audit, MUST) == Exit.INTERNAL_ERROR
    header = json.loads(next(audit.jsonl()))
    assert (header["errors"], list(header["not_judged"])) == (1, [row["reason"]])
    assert f"ERROR 1 x {row['reason']}\n  - {row['exchange']}\n" in printed(audit)
    assert "secret" not in printed(audit) + scanned.failures.decode() + "".join(audit.jsonl())


def test_an_audit_of_errors_alone_says_so(tmp_path, monkeypatch, capsys):
    def fail(*_, **__):
        raise KeyError

    path = tmp_path / "log.jsonl"
    path.write_bytes(line("a"))
    monkeypatch.setattr(module, "judge_split", fail)
    assert cli.main(["audit", str(path)]) == Exit.INTERNAL_ERROR
    told = capsys.readouterr().err
    assert "not judged because of internal errors: 1 x KeyError in harmony_conformance/audit/batches.py, line " in told


def test_a_failure_that_cannot_be_shown_hides_no_other(monkeypatch):
    def fail(finding):
        raise KeyError(finding.message)

    monkeypatch.setattr("harmony_conformance.audit.results.terminal._finding", fail)
    _, audit = audited(batch(line("other", "<|end|>")), Excerpts.REDACTED)
    shown = printed(audit)
    assert (
        "tool_calls.name_is_declared could not be shown: KeyError in harmony_conformance/audit/results/terminal.py"
        in shown
    )
    assert shown.endswith(f"{audit.summary()}\n")
