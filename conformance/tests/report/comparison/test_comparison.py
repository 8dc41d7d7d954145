"""Two runs compared, on results written by hand and on runs of the reference server."""

import json
import re

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.comparison.run_comparison import Change, compare
from harmony_conformance.report.model import ResultLine, make_report

FAIL, PASS, OPEN, NOT_APPLICABLE = Outcome.FAIL, Outcome.PASS, Outcome.INCONCLUSIVE, Outcome.NOT_APPLICABLE


def line(outcome, *, message="wrong", check="a.b", scenario="one", severity=Severity.MUST):
    finding = {"verdict": "fail", "message": message, "exchange": "x", "at": ""}
    return ResultLine(
        check=check,
        severity=severity,
        outcome=outcome,
        scenario=scenario,
        api="chat",
        spec="",
        quotation="",
        findings=(finding,) if outcome is FAIL else (),
    )


def report(*lines, causes=()):
    return make_report({}, lines, causes=causes)


CHANGES = {
    "passed, fails": ([line(PASS)], [line(FAIL)], Change.NEW),
    "was not there, fails": ([], [line(FAIL)], Change.NEW),
    "was inconclusive, fails": ([line(OPEN)], [line(FAIL)], Change.NEW),
    "fails as before": ([line(FAIL)], [line(FAIL)], Change.SAME),
    "fails with another message": ([line(FAIL)], [line(FAIL, message="else")], Change.CHANGED),
    "failed, passes": ([line(FAIL)], [line(PASS)], Change.FIXED),
    "failed, is a variant": ([line(FAIL)], [line(Outcome.VARIANT)], Change.FIXED),
    "failed, is inconclusive": ([line(FAIL)], [line(OPEN)], Change.UNJUDGED),
    "failed, does not apply": ([line(FAIL)], [line(NOT_APPLICABLE)], Change.UNJUDGED),
    "failed, was not run": ([line(FAIL)], [], Change.UNJUDGED),
    "passed, is an error": ([line(PASS)], [line(Outcome.ERROR)], Change.ERROR),
}


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_of_a_result_has_its_name(what):
    before, after, change = CHANGES[what]
    (result,) = compare(report(*before), report(*after)).results
    assert result.change is change


def test_what_failed_in_neither_is_no_change():
    assert compare(report(line(PASS)), report(line(OPEN))).results == ()


def test_a_run_that_was_cut_is_no_success_and_its_missing_results_are_counted(tmp_path, capsys):
    for name, limit in (("whole", "99"), ("cut", "2")):
        words = (
            "--select",
            "simple_answer",
            "--select",
            "tool_call",
            "--max-requests",
            limit,
            "--out",
            str(tmp_path / name),
        )
        main(["run", "reference", *words, "--quiet"])
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "whole"), str(tmp_path / "cut")]) == Exit.USAGE
    shown = capsys.readouterr().out
    both, gone = (int(count) for count in re.findall(r"^(\d+) results were judged by", shown, re.MULTILINE))
    assert both > 0
    assert gone > 0
    assert "incomplete: after: --max-requests 2 was reached" in shown
    assert main(["compare", str(tmp_path / "cut"), str(tmp_path / "whole"), "--format", "json"]) == Exit.CONFORMS
    compared = json.loads(capsys.readouterr().out)
    assert (compared["both_judged"], compared["no_longer_judged"], compared["incomplete"]) == (both, 0, "")


def test_only_new_failures_of_the_given_severities_are_a_regression():
    compared = compare(report(line(PASS)), report(line(FAIL, severity=Severity.SHOULD)))
    assert not compared.has_regressed(frozenset({Severity.MUST}))
    assert compared.has_regressed(frozenset(Severity))
    assert not compare(report(line(FAIL)), report(line(FAIL, message="else"))).has_regressed(frozenset(Severity))


def cause(name, results):
    return {"id": name, "severity": "must", "sentence": "It is wrong.", "results": results}


def test_causes_are_new_fixed_larger_smaller_and_the_same():
    before = report(causes=[cause("fixed", 1), cause("more", 1), cause("fewer", 2), cause("same", 3)])
    after = report(causes=[cause("new", 1), cause("more", 2), cause("fewer", 1), cause("same", 3)])
    changes = {one.id: one.change for one in compare(before, after).causes}
    assert changes == {
        "new": Change.NEW,
        "more": Change.MORE,
        "fewer": Change.FEWER,
        "same": Change.SAME,
        "fixed": Change.FIXED,
    }


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name, target in {"right": "reference", "wrong": "reference:defect=stream-without-done"}.items():
        main(["run", target, "--select", "simple_answer", "--latency", "0", "--out", str(folder / name)])
    return folder


def test_a_regression_is_one_new_cause_and_exit_code_1(runs, capsys):
    capsys.readouterr()
    assert main(["compare", str(runs / "right"), str(runs / "wrong")]) == Exit.DIVERGES
    shown = capsys.readouterr().out
    assert "causes: 1 new" in shown
    assert "results: 1 new" in shown
    assert "for example streaming.ends_with_done@simple_answer: the stream ends without [DONE]" in shown
    assert "1 of the new failures explained by the causes above" in shown
    assert "NEW MUST streaming.ends_with_done" not in shown


def test_causes_that_still_fail_are_named_and_latencies_are_no_verdict(tmp_path, capsys):
    for name in ("before", "after"):
        target = "reference:defect=stream-without-done"
        main(["run", target, "--select", "simple_answer", "--latency", "8", "--out", str(tmp_path / name)])
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "before"), str(tmp_path / "after")]) == Exit.CONFORMS
    shown = capsys.readouterr().out
    assert "causes: 1 still fails\n  still fails: stream-without-done\n" in shown
    assert "they fail nothing without --slower-by:\n" in shown


def test_a_fix_is_exit_code_0_also_between_recordings(runs, capsys):
    capsys.readouterr()
    recordings = [str(runs / name / "exchanges.jsonl") for name in ("wrong", "right")]
    assert main(["compare", *recordings, "--format", "json"]) == Exit.CONFORMS
    compared = json.loads(capsys.readouterr().out)
    assert [one["change"] for one in compared["causes"]] == ["fixed"]
    assert [one["change"] for one in compared["results"]] == ["fixed"]


def test_the_same_runs_give_the_same_bytes(runs, capsys):
    capsys.readouterr()
    shown = []
    for _ in range(2):
        main(["compare", str(runs / "right"), str(runs / "wrong")])
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1]


def page_of(capsys, *words):
    capsys.readouterr()
    main(["compare", *map(str, words), "--format", "html"])
    return capsys.readouterr().out


@pytest.fixture(scope="module")
def prompts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("prompts")
    for name, target in {"right": "reference", "wrong": "reference:defect=effort-ignored"}.items():
        main(["run", target, "--select", "effort", "--latency", "0", "--out", str(folder / name)])
    return folder


def test_the_page_shows_the_prompts_before_and_after_with_the_tokens_that_differ(prompts, capsys):
    page = page_of(capsys, prompts / "right", prompts / "wrong")
    section = page[page.index('id="prompts"') :]
    before, after = section.split('<div class="actual">')[:2]
    assert '<span class="chip">&lt;|start|&gt;</span>' in before
    assert re.search(r"Reasoning: ?<mark> ?low</mark>", before)
    assert re.search(r"Reasoning: ?<mark> ?medium</mark>", after)
    (link,) = set(re.findall(r'<a href="#(prompt-\d+)">The prompt before and after</a>', page))
    assert f'id="{link}"' in page
    assert page_of(capsys, *(prompts / name / "exchanges.jsonl" for name in ("right", "wrong"))).count(link) >= 2


def test_fixed_results_show_their_prompts_too(prompts, capsys):
    page = page_of(capsys, prompts / "wrong", prompts / "right")
    before = page[page.index('id="prompts"') :].split('<div class="actual">')[0]
    assert re.search(r"Reasoning: ?<mark> ?medium</mark>", before)


def test_equal_prompts_are_no_diff(runs, capsys):
    page = page_of(capsys, runs / "right", runs / "wrong")
    assert "The prompts before and after are equal." in page
    assert 'id="prompts"' not in page


def test_without_a_recording_there_are_no_prompts(prompts, tmp_path, capsys):
    for name in ("right", "wrong"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.jsonl").write_bytes((prompts / name / "report.jsonl").read_bytes())
    page = page_of(capsys, tmp_path / "right", tmp_path / "wrong")
    assert "new" in page
    assert "prompt before and after" not in page


def test_runs_without_a_common_result_are_refused(runs, tmp_path, capsys):
    main(["run", "reference", "--select", "tool_call", "--latency", "0", "--out", str(tmp_path)])
    capsys.readouterr()
    assert main(["compare", str(runs / "right"), str(tmp_path)]) == Exit.USAGE
    assert "expected results that both judged, got none" in capsys.readouterr().err
    assert main(["compare", str(runs / "right"), str(tmp_path / "absent")]) == Exit.USAGE
    assert "no such file" in capsys.readouterr().err
