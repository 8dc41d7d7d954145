from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from harmony_conformance.judge.check import Outcome
from harmony_conformance.report.evidence_grade import evidence_grade
from harmony_conformance.report.formats.run_json import run_json
from harmony_conformance.report.formats.terminal import (
    NO_EDGE,
    print_report,
    print_summary,
    report_console,
    summary_line,
)
from harmony_conformance.report.model import make_report
from harmony_conformance.report.summary import DEFAULT_FAILS_ON


def printed(report):
    text = StringIO()
    print_report(report, Console(width=140, highlight=False, file=text))
    return text.getvalue()


def test_what_was_left_open_is_one_line_for_each_reason_after_the_failures(samples):
    lines = [samples.result(Outcome.INCONCLUSIVE, check=f"usage.{name}", reason="no [usable] answer") for name in "cab"]
    lines += [samples.result(Outcome.INCONCLUSIVE, check="usage.a", scenario="b", reason="no [usable] answer")]
    lines += [samples.result(Outcome.INCONCLUSIVE, check="usage.d", reason="rate limited")]
    lines += [samples.result(Outcome.FAIL, check="usage.z", findings=(samples.finding(),))]
    lines += [samples.result(Outcome.ERROR, check="usage.e", reason="ValueError: oops")]
    text = printed(samples.report(*lines))
    assert "  no [usable] answer: usage.a, usage.b, usage.c\n  rate limited: usage.d\n" in text
    assert text.count("no [usable] answer") == 1
    assert text.index("FAILED MUST") < text.index("ERROR MUST") < text.index("no [usable] answer")


def cause(name, sentence="a call is lost", severity="must"):
    example = {
        "check": "usage.z",
        "scenario": "s",
        "api": "chat",
        "exchange": "s/chat/a/0",
        "at": "content",
        "message": "m",
    }
    clause = {"id": "a", "quotation": "b", "source": "c"}
    lists = {"defects": [name], "catalogue": ["M03"] * 9, "threads": [], "scenarios": ["s"]}
    texts = {"id": name, "sentence": sentence, "severity": severity, "users_see": "", "remedy": "", "script": ""}
    return {**texts, **lists, "clause": clause, "results": 3, "example": example}


def summarized(report, width=80, folder=Path("runs/1")):
    text = StringIO()
    print_summary(report, Console(width=width, highlight=False, file=text), DEFAULT_FAILS_ON, folder)
    return text.getvalue().splitlines()


def rows(lines, width):
    return sum(max(1, -(-len(line) // width)) for line in lines)


REASONS = ("not enough evidence: applies to x", "needs a scripted model", "applies to y")


@pytest.mark.parametrize("width", [80, 140, 300])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 40])
def test_a_summary_has_at_most_30_rows(samples, count, width):
    results = [samples.result(Outcome.NOT_APPLICABLE, check=f"a.{reason}", reason=reason) for reason in REASONS]
    results += [samples.result(Outcome.FAIL, check="usage.z", findings=(samples.finding(),))]
    header = {**samples.header, "incomplete": "gone " * 30, "features": {"answers": 9, "never": ["reasoning"]}}
    header["capabilities"] = {"prompt": "none", "script": "none"}
    header["target"] = {**header["target"], "model": "m" * 150}
    causes = [cause(f"cause-{index}", "a long sentence " * 12) for index in range(count)]
    lines = summarized(make_report(header, results, (), causes), width)
    assert rows(lines, width) <= 30
    shown = [line for line in lines if "cause-" in line]
    assert len(shown) >= min(count, 6)
    assert (f"  … and {count - len(shown)} more in report.md" in lines) is (len(shown) < count)
    assert lines[-1] == "0 passed, 1 failed, 0 variant, 0 inconclusive, 3 not applicable, 0 error"


def test_a_summary_names_verdict_causes_evidence_report_and_counts_in_this_order(samples):
    results = [samples.result(Outcome.FAIL, check="usage.z", findings=(samples.finding(),))]
    header = {
        **samples.header,
        "incomplete": "the server went away",
        "features": {"answers": 9, "never": ["reasoning", "tools"]},
    }
    shown = "\n".join(summarized(make_report(header, results, (), [cause("lost-call")])))
    parts = (
        "gpt-oss-20b on vllm 0.11.0: does not conform",
        "incomplete: the server went away",
        "not seen in 9 answers: reasoning, tool calls",
        "causes: 1, for 1 failed result",
        "  MUST lost-call: 3 results in 1 scenario",
        "    a call is lost",
        "1 of 1 check could judge this server",
        "report: runs/1/report.html",
        "0 passed, 1 failed",
    )
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("capabilities", "needs"),
    [
        ({"prompt": "accounting", "script": "none"}, [("if the server returned token ids", 1), ("with a scripted", 1)]),
        ({"prompt": "ids", "script": "none"}, [("with a scripted", 2)]),
        ({"prompt": "ids", "script": "reference"}, [("with other", 2)]),
    ],
)
def test_the_evidence_grade_names_what_unjudged_checks_need(samples, capabilities, needs):
    results = [samples.result(Outcome.NOT_APPLICABLE, check=f"a.{reason}", reason=reason) for reason in REASONS[:2]]
    results += [samples.result(Outcome.NOT_APPLICABLE, check="a.c", reason=REASONS[2]), samples.result()]
    grade = evidence_grade(make_report({**samples.header, "capabilities": capabilities}, results))
    assert (grade.checks, grade.judged) == (4, 1)
    expected = {
        need: count + (need == "with other")
        for need, count in [*needs, *([] if needs[-1][0] == "with other" else [("with other", 0)])]
    }
    assert {need: count for need, count in grade.missing if count} == {
        next(full for full, _ in grade.missing if full.startswith(need)): count for need, count in expected.items()
    }


def test_a_run_in_one_line(samples):
    report = make_report({**samples.header, "incomplete": "gone"}, [samples.result()], (), [cause("x")])
    assert summary_line(report, DEFAULT_FAILS_ON, Path("runs/1")) == (
        "gpt-oss-20b on vllm 0.11.0: no failure found; causes: 1; 1 passed, 0 failed, 0 variant, 0 inconclusive,"
        " 0 not applicable, 0 error; incomplete: gone; runs/1"
    )


def test_a_run_in_json(samples):
    report = make_report(samples.header, [samples.result(Outcome.FAIL)], (), [cause("x")])
    assert run_json(report, DEFAULT_FAILS_ON) == {
        "verdict": "does not conform",
        "sentence": "1 MUST check failed; 1 check applied.",
        "counts": {"pass": 0, "fail": 1, "variant": 0, "inconclusive": 0, "not_applicable": 0, "error": 0},
        "causes": [cause("x")],
        "checks": {"total": 1, "judged": 1, "missing": []},
        "target": samples.header["target"],
    }


def test_a_check_whose_results_are_inconclusive_did_not_judge(samples):
    results = [samples.result(Outcome.INCONCLUSIVE, check="a.b", reason="x"), samples.result()]
    results += [samples.result(Outcome.NOT_APPLICABLE, check="a.b", scenario="other", reason="applies to y")]
    grade = evidence_grade(make_report(samples.header, results))
    assert (grade.checks, grade.judged, grade.missing) == (2, 1, (("are inconclusive", 1),))


def test_checks_and_latency_fit_80_columns(samples):
    results = [samples.result(Outcome.FAIL, findings=(samples.finding(),)), samples.result(scenario="b")]
    results += [samples.result(Outcome.NOT_APPLICABLE, check="a.b", reason="x")]
    report = make_report(samples.header, results, [samples.latency_line()])
    text = StringIO()
    print_report(report, Console(width=80, highlight=False, file=text))
    lines = text.getvalue().splitlines()
    assert lines[0] == "FAILED       MUST   channels.content_is_the_answer: 1 passed, 1 failed"
    assert not lines[1].startswith(("PASSED", "NOT APPLICABLE"))
    start = next(index for index, line in enumerate(lines) if line.strip() == "latency")
    assert lines[start + 1].split() == ["metric", "load", "n", "median", "max"]
    assert lines[start + 2].split() == ["TTFT", "one", "at", "a", "time", "20", "200", "ms", "1.50", "s"]
    assert "…" not in "".join(lines[start : start + 9])


def test_no_row_is_wider_than_80_columns_and_the_verdict_is_whole(samples):
    report = samples.report()
    model, host = "organization/" + "long-model-name-" * 9 + "20b", "sub." * 30 + "example.com"
    header = {
        **report.header,
        "target": {"model": model, "engine": "vllm", "engine_version": "0.32.0", "url_host": host},
        "incomplete": f"no answer from https://{host}/v1/chat/completions after 60 s, and none to the request before",
        "features": {"answers": 7, "never": ["reasoning", "tools", "usage", "logprobs", "streams", "several choices"]},
        "missing_features": ["reasoning", "tools"],
    }
    report = make_report(header, report.results, causes=[cause("c" * 30, "a very long sentence " * 9)])
    report.counts.update(dict.fromkeys([one for one in Outcome if one is not Outcome.ERROR], 100_000))
    lines = summarized(report, folder=Path("runs") / ("folder-" * 14))
    assert max(len(line) for line in lines if "folder-" not in line) <= 80
    assert lines[0].startswith("organization/long")
    assert lines[0].endswith("20b on vllm 0.32.0: does not conform")
    assert "report:" in lines
    flagged = [line for line in lines if "--require" in line]
    assert len(flagged) == 1
    assert "(--require)" in flagged[0]
    assert " ".join(" ".join(lines[-2:]).split()) == report.summary()


def long_report(samples):
    header = {**samples.header, "incomplete": "no answer from https://gateway.example/v1/chat/completions " * 4}
    results = [samples.result(Outcome.FAIL, findings=(samples.finding(),))]
    return make_report(header, results, causes=[cause("lost", "a call of a tool is lost " * 12)])


def test_without_a_terminal_no_line_is_wrapped_or_cut(samples, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    report = long_report(samples)
    print_summary(report, report_console(piped_width=NO_EDGE), DEFAULT_FAILS_ON, Path("folder-" * 30))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 30
    assert f"incomplete: {report.header['incomplete']}" in lines
    assert f"    {report.causes[0]['sentence']}" in lines
    assert f"report: {'folder-' * 30}/report.html" in lines


def test_without_a_terminal_the_variable_columns_gives_the_width(samples, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    print_summary(long_report(samples), report_console(piped_width=NO_EDGE))
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 100


def test_the_whole_latency_table_is_shown_where_it_fits(samples):
    text = StringIO()
    print_report(
        make_report(samples.header, [], [samples.latency_line()]), Console(width=140, highlight=False, file=text)
    )
    assert "metric" in text.getvalue()
    assert "p99" in text.getvalue()
    assert "TTFT, first token of any channel" in text.getvalue()


def test_an_empty_value_is_named(samples):
    finding = samples.finding(expected="", actual="x")
    text = printed(samples.report(samples.result(Outcome.FAIL, findings=(finding,))))
    assert "    expected: (empty)\n    actual: x\n" in text
