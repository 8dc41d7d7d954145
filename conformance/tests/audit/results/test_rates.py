"""Rates of an audit: their denominators with each plan, days on the terminal, and the comparison of any MUST failure."""

import json
from math import comb

import pytest

from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit

LEAK, WORDS = "Hello.<|end|>", "analysisThe user greets.assistantfinalHello!"
WRONG_SUM = {"prompt_tokens": 70, "completion_tokens": 5, "total_tokens": 99}


def record(content="Hello.", day="2026-11-01", usage=None, route="/v1/chat/completions"):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    body = {"object": "chat.completion", "id": "1", "created": 1, "model": "m", "choices": [choice], "usage": usage}
    asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
    return {"request": asked, "response": body, "path": route, "timestamp": f"{day}T10:00:00Z"}


@pytest.fixture
def audit(tmp_path, capsys):
    """Audit rows into a folder. Return the lines on the terminal."""

    def run(rows, out="out", *options):
        log = tmp_path / f"{out}.jsonl"
        log.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        cli.main(["audit", "--workers", "1", "--out", str(tmp_path / out), str(log), *options])
        return capsys.readouterr().out.splitlines()

    return run


def needles(leaks):
    """Return 200 records, of which one has a wrong sum, and so many have a leak on the second of two days."""
    leaking = [record(LEAK, "2026-11-02", WRONG_SUM) for _ in range(leaks)]
    return [record(usage=WRONG_SUM), *(record() for _ in range(199 - leaks)), *leaking]


NEEDLES = ("--plan", "needles", "--sample", "0")


def test_the_rates_of_needles_are_those_of_the_log(audit, tmp_path):
    lines = audit(needles(4), "out", *NEEDLES)
    assert lines[0] == "FAIL: 2 checks failed, 2 of them MUST, in 5 exchanges; the plan judged 5 of 200 records"
    assert "FAILED MUST channels.no_marker_leak: 4 of 200 records" in lines
    assert "FAILED MUST usage.adds_up: 1 of 1 exchange of the sample" in lines
    place = lines.index(
        "exchanges with a failure, by day (counts without shares: the plan needles judged a part of each group only)"
    )
    assert lines[place + 1 : place + 3] == ["  2026-11-01: 1 failed", "  2026-11-02: 4 failed"]
    assert not any("%" in line for line in lines)
    rows = [json.loads(line) for line in (tmp_path / "out" / "audit.jsonl").read_text("utf-8").splitlines()]
    rate = next(row["rate"] for row in rows if row.get("check") == "channels.no_marker_leak")
    assert (rate["share"], "must" in rows[0]) == (0.02, False)
    assert {row["share"] for row in rows if row["kind"] == "rate"} == {None}


def test_the_page_of_needles_names_the_plan_and_draws_no_rates(audit, tmp_path):
    audit(needles(4), "out", *NEEDLES)
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "<strong>2 checks failed in 5 exchanges</strong>" in page
    assert "<p>plan needles: leaks of markers and channel words in every record" in page
    assert "<p>195 records not judged</p>" in page
    assert "4 of 200 records (2 %, " in page
    assert "<svg" not in page
    assert "<code>2026-11-02</code></td><td>4 failed</td>" in page


def test_audits_with_needles_are_compared_by_their_records(audit, tmp_path, capsys):
    for leaks in (1, 12):
        audit(needles(leaks), str(leaks), *NEEDLES)
    before, after = str(tmp_path / "1"), str(tmp_path / "12")
    assert cli.main(["compare", before, after, "--format", "json"]) == Exit.DIVERGES
    compared = json.loads(capsys.readouterr().out)
    leak, sums = sorted(compared["checks"], key=lambda one: one["check"])
    assert (leak["before"], leak["after"]) == ({"failed": 1, "exchanges": 200}, {"failed": 12, "exchanges": 200})
    assert (sums["before"], sums["after"]) == ({"failed": 1, "exchanges": 1}, {"failed": 1, "exchanges": 1})
    assert compared["any_must"] is None
    assert cli.main(["compare", f"{before}@2026-11-01..", after]) == Exit.USAGE
    assert (
        f"invalid period of {before}: expected an audit with --plan structure, got needles" in capsys.readouterr().err
    )


def test_the_page_has_the_share_of_failing_exchanges(audit, tmp_path):
    audit([record(LEAK if n < 21 else "Hello.") for n in range(300)])
    page = (tmp_path / "out" / "report.html").read_text("utf-8")
    assert "<strong>1 check failed in 21 of 300 exchanges</strong>" in page


def test_each_day_with_a_failure_is_on_the_terminal(audit):
    days = [f"2026-11-{day:02}" for day in range(1, 31)]
    lines = audit([record(LEAK if day in (days[1], days[29]) else "Hello.", day) for day in days])
    place = lines.index("exchanges with a failure, by day (95 % intervals)")
    assert [line.partition(" (")[0] for line in lines[place + 1 : place + 5]] == [
        "  2026-11-02: 1 of 1",
        "  2026-11-30: 1 of 1",
        "  … and 28 days without a failure",
        "",
    ]


SMALL = [LEAK, WORDS]
"""Each fails one check."""


def split_over_checks(failures):
    """Return 160 records. Each check fails for half of the failures."""
    return [record(SMALL[n % 2] if n < failures else "Hello.") for n in range(160)]


def test_failures_that_divide_over_checks_are_a_regression_together(audit, tmp_path, capsys):
    for failures in (0, 9):
        audit(split_over_checks(failures), str(failures))
    before, after = str(tmp_path / "0"), str(tmp_path / "9")
    assert cli.main(["compare", before, after, "--format", "json"]) == Exit.DIVERGES
    compared = json.loads(capsys.readouterr().out)
    one_sided = comb(160, 9) / comb(320, 9)  # all nine of the failing exchanges are among the later ones
    assert compared["any_must"]["p"] == pytest.approx(2 * one_sided)
    assert [one["change"] for one in compared["checks"]] == ["no significant change"] * 2
    assert cli.main(["compare", before, after]) == Exit.DIVERGES
    printed = capsys.readouterr().out
    assert (
        "exchanges with a failure of any MUST check: higher\n  0 of 160 (0 %) before, 9 of 160 (5.62 %) after"
        in printed
    )
    assert "\nhigher: 0 checks\n" in printed
    assert cli.main(["compare", before, after, "--fail-on", "never"]) == Exit.CONFORMS
    assert cli.main(["compare", after, before]) == Exit.CONFORMS


def test_a_suspicion_is_no_must_failure(audit, tmp_path):
    rows = [record(usage=WRONG_SUM), record(LEAK), record("finalThe capital of France is Paris."), record()]
    assert audit(rows)[0] == "FAIL: 3 checks failed, 2 of them MUST, in 3 of 4 exchanges"
    header = json.loads((tmp_path / "out" / "audit.jsonl").read_text("utf-8").splitlines()[0])
    assert header["must"] == 2


def test_an_audit_of_an_earlier_version_has_no_number_of_must_failures(audit, tmp_path, capsys):
    audit(split_over_checks(9))
    file = tmp_path / "out" / "audit.jsonl"
    header, *lines = file.read_text("utf-8").splitlines()
    earlier = {name: value for name, value in json.loads(header).items() if name != "must"}
    file.write_text("\n".join([json.dumps(earlier), *lines]) + "\n", encoding="utf-8")
    assert cli.main(["compare", str(file.parent), str(file.parent)]) == Exit.CONFORMS
    assert "exchanges with a failure of any MUST check: not compared, since" in capsys.readouterr().out
