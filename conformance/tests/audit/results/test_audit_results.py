"""Results of audits: the page, comparisons of rates, causes, incremental audits, and no content where none is wanted."""

import json
import re
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from harmony_conformance.audit.results import log_causes
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit
from harmony_conformance.report.intervals import fisher, shares_differ

LEAK = "Hello.<|end|><|start|>assistant<|channel|>final<|message|>Sue Miller."
DOCS = Path(__file__).parents[4] / "docs" / "audit-reference.md"


def pair(content, day="2026-11-01", model="gpt-oss-20b", engine="vllm-0.33.0-ab"):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    body = {"object": "chat.completion", "id": "1", "created": 1, "model": model, "choices": [choice], "usage": None}
    request = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    return {"request": request, "response": {**body, "system_fingerprint": engine}, "timestamp": f"{day}T10:00:00Z"}


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def audit(out, *more):
    return cli.main(["audit", "--workers", "1", "--out", str(out), *map(str, more)])


@pytest.fixture
def two_weeks(tmp_path):
    rows = [pair(LEAK if n < 1 else "Hello.", "2026-11-03") for n in range(60)]
    rows += [pair(LEAK if n < 15 else "Hello.", "2026-11-10", engine="vllm-0.34.0-cd") for n in range(60)]
    audit(tmp_path / "out", write(tmp_path / "log.jsonl", rows))
    return tmp_path / "out"


def test_periods_of_an_audit_are_compared(two_weeks, capsys):
    earlier, later = f"{two_weeks}@..2026-11-07", f"{two_weeks}@2026-11-08..2026-11-14"
    capsys.readouterr()
    assert cli.main(["compare", earlier, later, "--format", "json"]) == Exit.DIVERGES
    (change,) = json.loads(capsys.readouterr().out)["checks"]
    assert (change["check"], change["change"]) == ("channels.no_marker_leak", "higher")
    assert (change["before"], change["after"]) == ({"failed": 1, "exchanges": 60}, {"failed": 15, "exchanges": 60})
    assert change["p"] == pytest.approx(fisher(1, 60, 15, 60))
    assert 0.1 < change["difference"]["low"] < change["difference"]["high"] < 0.4
    assert cli.main(["compare", later, earlier]) == Exit.CONFORMS
    printed = capsys.readouterr().out
    assert (
        "60 exchanges\n\nexchanges with a failure of any MUST check: lower\n  15 of 60 (25 %) before, 1 of 60 (1.67 %) after"
        in printed
    )
    assert "\n\n1 check failed in one of them or in both\n" in printed
    assert "lower: 1 check\n  MUST channels.no_marker_leak: 15 of 60 (25 %) before, 1 of 60 (1.67 %) after" in printed
    assert cli.main(["compare", earlier, later, "--fail-on", "never"]) == Exit.CONFORMS
    assert cli.main(["compare", str(two_weeks), str(two_weeks)]) == Exit.CONFORMS


@pytest.mark.parametrize(
    ("earlier", "message"),
    [
        (
            "{out}@2025-01-01..2025-01-02",
            "expected exchanges in this period, got none: the audit has days from 2026-11-03",
        ),
        ("{out}/failures.jsonl", "expected two runs or two audits, got one of each"),
    ],
)
def test_a_wrong_comparison_is_refused_on_one_line(two_weeks, capsys, earlier, message):
    capsys.readouterr()
    assert cli.main(["compare", earlier.format(out=two_weeks), str(two_weeks)]) == Exit.USAGE
    assert message in capsys.readouterr().err


def test_a_torn_audit_is_no_audit(two_weeks, capsys):
    file = two_weeks / "audit.jsonl"
    file.write_text("".join(file.read_text("utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
    assert cli.main(["compare", str(two_weeks), str(two_weeks)]) == Exit.USAGE
    assert "expected a complete audit.jsonl from its header to its footer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        ("result", {"severity": "<script>"}, "a severity"),
        ("result", {"severity": [[]]}, "a severity"),
        ("result", {"counts": {"fail": -1}}, "numbers of exchanges"),
        ("header", {"exchanges": 10**400}, "numbers of exchanges"),
        ("rate", {"failed": 10**9}, "numbers of exchanges"),
    ],
)
def test_an_audit_of_another_author_is_refused_on_one_line(two_weeks, capsys, kind, change, expected):
    file = two_weeks / "audit.jsonl"
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    place = next(place for place, one in enumerate(lines) if one["kind"] == kind)
    lines[place] |= change
    file.write_text("".join(json.dumps(one) + "\n" for one in lines), encoding="utf-8")
    capsys.readouterr()
    assert cli.main(["compare", str(two_weeks), str(two_weeks)]) == Exit.USAGE
    assert f"invalid line {place + 1} of audit.jsonl: expected {expected}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("count", "of", "other", "of_other"), [(3, 900, 12, 900), (0, 1500, 9, 400), (40, 1900, 60, 90)]
)
def test_the_test_of_large_counts_is_near_fishers(monkeypatch, count, of, other, of_other):
    exact = fisher(count, of, other, of_other)
    monkeypatch.setattr("harmony_conformance.report.intervals._EXACT", 100)
    assert shares_differ(count, of, other, of_other) == pytest.approx(exact, rel=0.5, abs=0.01)


@pytest.mark.parametrize("between", ["\u2028", "\u0085"])
def test_an_audit_of_a_leak_with_a_line_separator_is_compared(tmp_path, between):
    log = write(tmp_path / "log.jsonl", [pair(f"<|channel|>final<|message|>one{between}two")])
    assert cli.main(["audit", str(log), "--out", str(out := tmp_path / "out"), "--workers", "1"]) == Exit.DIVERGES
    assert between in (out / "audit.jsonl").read_text("utf-8")
    assert cli.main(["compare", str(out), str(out)]) == Exit.CONFORMS


def test_counts_of_a_billion_are_compared():
    assert shares_differ(10, 10**9, 12, 10**9) > 0.5
    assert shares_differ(10, 10**9, 60, 10**9) < 1e-6
    assert shares_differ(10**8, 10**9, 10**8 + 100_000, 10**9) < 1e-6
    assert shares_differ(0, 10, 0, 10) == shares_differ(5, 0, 0, 10) == 1.0


def test_the_page_has_the_trend_and_connects_to_nothing(two_weeks):
    page = (two_weeks / "report.html").read_text("utf-8")
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert not re.search(r"<script|src=|href=\"(?!#)|url\(|@import|https?://", page)
    assert page.count("<rect ") == 2
    assert "2026-11-10: 15 of 60 (25 %, 15.8 % to 37.2 %)" in page
    assert "vllm-0.34.0-cd" in page
    assert 'xxxxx.<span class="chip">&lt;|end|&gt;</span>' in page
    assert "Miller" not in page


def test_an_empty_page_of_another_author_is_not_replaced(tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.html").write_text("<p>mine")
    assert audit(out, write(tmp_path / "log.jsonl", [pair("Hello.")])) == Exit.USAGE
    assert "report.html was not written by an audit" in capsys.readouterr().err
    assert (out / "report.html").read_text() == "<p>mine"


@pytest.mark.parametrize(
    ("fingerprint", "engine"),
    [("b11549-3a2bd4f12", "llamacpp"), ("vllm-0.32.0-ab", "vllm"), ("fp_ollama", "ollama"), ("fp_1", None)],
)
def test_a_fingerprint_names_the_engine_whose_causes_are_known(fingerprint, engine):
    assert {cause.engine for cause in log_causes._known([fingerprint])} == ({engine} if engine else set())


def test_failures_have_causes_as_in_a_run(tmp_path, capsys):
    row = pair("Hello.", engine="fp_ollama")
    row["request"] |= {"tool_choice": "none", "tools": [{"type": "function", "function": {"name": "look"}}]}
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    row["response"]["choices"][0] |= {
        "message": {"role": "assistant", "tool_calls": [call]},
        "finish_reason": "tool_calls",
    }
    audit(tmp_path / "a" / "b" / "c" / "out", write(tmp_path / "log.jsonl", [row, pair("Hello.")]))
    lines = [json.loads(line) for line in (tmp_path / "a/b/c/out/audit.jsonl").read_text("utf-8").splitlines()]
    (cause,) = (line for line in lines if line["kind"] == "cause")
    assert cause["id"] == "ollama-foreign-calls-returned"
    assert cause["checks"] == ["tool_calls.none_means_none"]
    assert cause["example"]["exchange"] == f"{tmp_path}/log.jsonl@0"
    assert "likely causes of these failures\n  ollama-foreign-calls-returned: " in capsys.readouterr().out
    assert "ollama-foreign-calls-returned" in (tmp_path / "a/b/c/out/report.html").read_text("utf-8")


def results_of(out):
    header, *lines = (json.loads(line) for line in (out / "audit.jsonl").read_text("utf-8").splitlines())
    counts = [(one["check"], one["counts"]) for one in lines if one["kind"] == "result"]
    failures = sorted((out / "failures.jsonl").read_text("utf-8").splitlines())
    return header["exchanges"], header["unreadable"], counts, failures, [one for one in lines if one["kind"] == "rate"]


def test_an_incremental_audit_equals_one_of_everything(tmp_path, capsys):
    logs, out = tmp_path / "logs", tmp_path / "out"
    logs.mkdir()
    write(logs / "a.jsonl", [pair(LEAK), pair("Hello.")])
    assert audit(out, logs, "--incremental", "--parquet") == Exit.DIVERGES
    torn = json.dumps(pair(LEAK, "2026-11-02"))
    with (logs / "a.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(pair(LEAK, "2026-11-02")) + "\n" + torn[:40])
    capsys.readouterr()
    assert audit(out, logs, "--incremental", "--parquet") == Exit.DIVERGES
    assert "1 new exchange\n" in capsys.readouterr().err
    with (logs / "a.jsonl").open("a", encoding="utf-8") as file:
        file.write(torn[40:] + "\n")
    write(logs / "b.jsonl", [pair("Hello."), pair(LEAK)])
    (logs / "c.jsonl").write_text("no JSON\n")
    assert audit(out, logs, "--incremental", "--parquet") == Exit.DIVERGES
    assert "3 new exchanges" in capsys.readouterr().err
    assert audit(out, logs, "--incremental", "--parquet") == Exit.DIVERGES
    assert "0 new exchanges" in capsys.readouterr().err
    assert audit(tmp_path / "whole", logs) == Exit.DIVERGES
    assert results_of(out) == results_of(tmp_path / "whole")
    assert results_of(out)[:2] == (6, 1)
    assert pq.read_table(out / "failures.parquet").num_rows == len(results_of(out)[3])


def test_a_log_that_was_rewritten_is_refused(tmp_path, capsys):
    log, out = write(tmp_path / "log.jsonl", [pair("Hello."), pair(LEAK)]), tmp_path / "out"
    audit(out, log, "--incremental")
    before = results_of(out)
    write(log, [pair("Hello again."), pair(LEAK), pair(LEAK)])
    capsys.readouterr()
    assert audit(out, log, "--incremental") == Exit.USAGE
    assert f"invalid --incremental: expected {log} with the 2 records of the last audit" in capsys.readouterr().err
    assert audit(out, log, "--incremental", "--excerpts", "none") == Exit.USAGE
    assert "got other excerpts" in capsys.readouterr().err
    assert audit(out, log) == Exit.DIVERGES
    assert results_of(out)[0] == before[0] + 1
    assert not (out / "progress.json").exists()


CANARY = "Zq7canary"


def test_without_excerpts_no_output_has_content(tmp_path, capsys, monkeypatch):
    """Every text of an exchange that a user, a model or an application wrote has the canary."""
    text = f"{CANARY} <|end|><|start|>assistant<|channel|>final<|message|>{CANARY}"
    tool = {
        "type": "function",
        "function": {
            "name": CANARY,
            "description": text,
            "parameters": {"type": "object", "properties": {CANARY: {"type": "string"}}},
        },
    }
    call = {
        "id": CANARY,
        "type": "function",
        "function": {"name": f"{CANARY}<|channel|>", "arguments": f'{{"{CANARY}": "<|end|>{CANARY}'},
    }
    request = {
        "model": "m",
        "messages": [{"role": "system", "content": text}, {"role": "user", "content": text, "name": CANARY}],
        "tools": [tool],
        "stop": [CANARY],
        "user": CANARY,
        "metadata": {CANARY: CANARY},
        CANARY: CANARY,
    }
    message = {"role": "assistant", "content": text, "reasoning": text, "tool_calls": [call], CANARY: CANARY}
    choice = {"index": 0, "message": message, "finish_reason": CANARY, CANARY: CANARY}
    usage = {"prompt_tokens": -1, "completion_tokens": 2, "total_tokens": 9, CANARY: CANARY}
    whole = {
        "object": CANARY,
        "id": CANARY,
        "created": CANARY,
        "model": f"{CANARY} x",
        "choices": [choice],
        "usage": usage,
        CANARY: text,
    }
    chunk = {**whole, "choices": [{"index": 7, "delta": message, "finish_reason": None}]}
    headers = {"x-request-id": CANARY, "server": f"{CANARY}?", "content-type": f"application/json; {CANARY}"}
    path = f"/{CANARY.lower()}/v1/chat/completions"
    rows = [
        {"request": request, "response": whole, "path": path, "timestamp": CANARY, "user": CANARY},
        {"request": {**request, "stream": True}, "response": [chunk, {CANARY: CANARY}, chunk]},
        {
            "request": {"path": f"/v1/chat/completions?key={CANARY}", "headers": headers, "body": request},
            "response": {"status": 500, "headers": headers, "body": {"error": text}},
        },
        {"request": request, "response": f"{CANARY} is no JSON"},
        {"request": request, CANARY: CANARY},
        {"messages": [*request["messages"], message]},
        {"completion": text},
        {
            "request": {"model": "m", "input": text},
            "response": {
                "object": "response",
                "id": CANARY,
                "status": CANARY,
                "output": [{"type": CANARY, "id": CANARY, "content": text}],
            },
        },
    ]
    log = write(tmp_path / "log.jsonl", rows)
    with log.open("a", encoding="utf-8") as file:
        file.write(f'{{"{CANARY}": {CANARY}\n')
    monkeypatch.setenv("LOG_KEY", "a key of sixteen bytes or more")
    out = tmp_path / "out"
    assert (
        audit(out, log, "--excerpts", "none", "--parquet", "--incremental", "--user-key-env", "LOG_KEY")
        == Exit.DIVERGES
    )
    printed = capsys.readouterr()
    outputs = {path.name: path.read_bytes() for path in out.iterdir()}
    assert outputs.keys() >= {
        "audit.jsonl",
        "failures.jsonl",
        "unreadable.jsonl",
        "failures.parquet",
        "report.html",
        "progress.json",
    }
    outputs["stdout"], outputs["stderr"] = printed.out.encode(), printed.err.encode()
    outputs["rows of the table"] = json.dumps(pq.read_table(out / "failures.parquet").to_pylist()).encode()
    for name, content in outputs.items():
        found = re.search(rb".{0,80}" + CANARY.encode() + rb".{0,80}", content, re.IGNORECASE)
        assert found is None, (name, found and found[0])
    assert outputs["failures.jsonl"].count(b"\n") > 10
    assert cli.main(["compare", str(out), str(out), "--format", "json"]) == Exit.CONFORMS
    assert CANARY.lower() not in capsys.readouterr().out.lower()


def test_the_queries_of_the_page_run(two_weeks, tmp_path, monkeypatch):
    audit(two_weeks, tmp_path / "log.jsonl", "--parquet")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "audit").symlink_to(two_weeks)
    queries = re.findall(r"```sql\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)
    assert len(queries) >= 4
    tables = [duckdb.sql(query).fetchall() for query in queries]
    assert all(tables), [query for query, rows in zip(queries, tables, strict=True) if not rows]
    assert ("2026-11-10", "channels.no_marker_leak", 15) in tables[0]


NAMED = [
    *("output-unparsed", "reasoning-in-tags", "reasoning-repeated", "channel-name-left", "reasoning-tokens-too-many"),
    *("total-without-prompt", "final-as-reasoning", "content-as-object", "finish-tool-calls-without-calls"),
    "required-inverted",
]
"""Defects that a log of a few scenarios shows clearly."""
NOT_CLEAR = [
    *("usage-all-zero", "reasoning-tokens-zero", "raw-call-in-content", "raw-call-escaped", "calls-dropped"),
    *("same-id-for-all", "later-choices-unparsed", "cut-reasoning-lost", "call-on-analysis-as-text"),
    *("stream-without-done", "finished-reasoning-kept", "call-reasoning-hidden"),
]
"""Defects whose failures others explain as well, or that the log does not show."""
SELECTED = ("simple_answer", "tool_round_trip", "several_choices", "cut_in_reasoning")


def recorded(folder, defect, scenarios):
    selected = (word for name in scenarios for word in ("--select", name))
    cli.main(["run", f"reference:defect={defect}", *selected, "--latency", "0", "--out", str(folder), "-q"])
    return folder / "exchanges.jsonl"


def named_by(out):
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_text("utf-8").splitlines()]
    return [line for line in lines if line["kind"] == "cause" and line["defects"]]


@pytest.mark.parametrize("defect", [*NAMED, *NOT_CLEAR])
def test_the_log_of_a_defect_names_it_or_none(tmp_path, defect):
    audit(tmp_path / "out", recorded(tmp_path / "run", defect, SELECTED))
    named = [one["id"] for one in named_by(tmp_path / "out")]
    assert named == [defect] if defect in NAMED else named in ([], [defect])


@pytest.mark.parametrize("scenarios", [SELECTED[:1], SELECTED[:2]], ids=["2 answers", "6 answers"])
def test_a_few_answers_of_a_leaking_server_name_its_defect(tmp_path, scenarios):
    audit(tmp_path / "out", recorded(tmp_path / "run", "output-unparsed", scenarios))
    assert [one["id"] for one in named_by(tmp_path / "out")] == ["output-unparsed"]


def test_few_leaks_of_many_answers_are_named_as_a_group(tmp_path, capsys):
    leak = "analysisThe user greets.assistantfinalHello!"
    rows = [pair(leak if n < 66 else "Hello.") for n in range(2800)]
    audit(tmp_path / "out", write(tmp_path / "log.jsonl", rows))
    assert not named_by(tmp_path / "out")
    shown = capsys.readouterr().out
    assert (
        "no known cause fits; failures that are alike\n  channels.no_channel_words: content contains channel words"
        in shown
    )
