"""Formats for continuous integration: one entry per cause, escaped for what reads it."""

import json
import xml.etree.ElementTree as ET

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.errors import Exit
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.formats.ci_formats import badge_json, badge_svg, ctrf, github_annotations, sarif
from harmony_conformance.report.model import ResultLine, make_report

HOSTILE = "100 %\r\n::error::injected, <b>bold</b> \u202e"
EVERY = frozenset(Severity)


def cause(name="cause-one", severity="must", sentence="It is wrong."):
    example = {"check": "a.b", "scenario": "one", "api": "chat", "exchange": "x", "at": "", "message": "wrong"}
    return {
        "id": name,
        "severity": severity,
        "sentence": sentence,
        "users_see": "",
        "results": 2,
        "scenarios": ["one"],
        "example": example,
    }


def line(outcome, scenario, severity=Severity.MUST):
    finding = {"verdict": "fail", "message": HOSTILE, "exchange": "x", "at": ""}
    return ResultLine(
        check="a.b",
        severity=severity,
        outcome=outcome,
        scenario=scenario,
        api="chat",
        spec="",
        quotation="",
        applied=1,
        findings=(finding,) if outcome is Outcome.FAIL else (),
    )


OUTCOMES = [line(outcome, outcome.value) for outcome in Outcome if outcome is not Outcome.ERROR]
FAILED = make_report(
    {"started": "2026-11-24T00:00:00+00:00"}, OUTCOMES, causes=[cause(), cause("two", "should", HOSTILE)]
)
PASSED = make_report({}, [line(Outcome.PASS, "one")])


def test_sarif_has_one_rule_and_one_result_for_each_cause():
    (run,) = json.loads(sarif(FAILED))["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["cause-one", "two"]
    assert [(result["ruleId"], result["level"]) for result in run["results"]] == [
        ("cause-one", "error"),
        ("two", "note"),
    ]
    assert json.loads(sarif(FAILED, EVERY))["runs"][0]["results"][1]["level"] == "warning"
    assert json.loads(sarif(PASSED))["runs"][0]["results"] == []


def test_ctrf_counts_what_was_judged():
    results = json.loads(ctrf(FAILED))["results"]
    counts = {"tests": 4, "passed": 2, "failed": 1, "pending": 0, "skipped": 0, "other": 1}
    assert {name: results["summary"][name] for name in counts} == counts
    assert results["summary"]["start"] == 1795478400000
    assert {test["name"]: test["status"] for test in results["tests"]} == {
        "a.b@pass": "passed",
        "a.b@variant": "passed",
        "a.b@fail": "failed",
        "a.b@inconclusive": "other",
    }


def test_ctrf_skips_failures_of_other_severities():
    report = make_report({}, [line(Outcome.FAIL, "one", Severity.SHOULD)])
    statuses = [
        json.loads(ctrf(report, fails_on))["results"]["tests"][0]["status"] for fails_on in (EVERY, frozenset())
    ]
    assert statuses == ["failed", "skipped"]


def test_an_annotation_is_one_line_that_no_text_can_leave():
    lines = github_annotations(FAILED, EVERY).splitlines()
    assert lines[0] == "::error title=Harmony cause-one::It is wrong. 2 results in 1 scenario."
    assert len(lines) == 2
    assert lines[1].startswith("::warning title=Harmony two::100 %25")
    assert github_annotations(PASSED) == ""


@pytest.mark.parametrize(
    ("report", "message", "color"), [(FAILED, "1 cause", "red"), (PASSED, "conforms", "brightgreen")]
)
def test_badges_have_the_verdict(report, message, color):
    assert json.loads(badge_json(report)) == {
        "schemaVersion": 1,
        "label": "harmony",
        "message": message,
        "color": color,
    }
    root = ET.fromstring(badge_svg(report))
    assert [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")] == ["harmony", message]


def test_a_run_in_github_actions_writes_annotations_and_the_step_summary(tmp_path, capsys, monkeypatch):
    summary = tmp_path / "summary.md"
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    arguments = ["run", "reference:defect=stream-without-done", "--select", "simple_answer", "--latency", "0"]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == Exit.DIVERGES
    assert "::error title=Harmony stream-without-done::The stream ends without `[DONE]`." in capsys.readouterr().err
    assert "### Causes: 1" in summary.read_text("utf-8")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path))
    assert main([*arguments, "--out", str(tmp_path / "run")]) == Exit.DIVERGES
    assert "Is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("form", ["junit-all", "sarif", "ctrf", "github", "badge-json", "badge-svg"])
def test_a_stored_run_is_rendered_in_each_format(form, tmp_path, capsys):
    (tmp_path / "report.jsonl").write_text("".join(one + "\n" for one in FAILED.lines()), "utf-8")
    assert main(["report", str(tmp_path), "--format", form]) == Exit.CONFORMS
    assert capsys.readouterr().out.strip()
