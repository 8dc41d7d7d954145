import json
from copy import deepcopy

import pytest
from jsonschema import Draft202012Validator

from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.evidence.levels import PromptLevel
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.model import InvalidReportError, make_report, read_report

SCHEMA = json.loads((golden.root() / "schema" / "report.schema.json").read_text(encoding="utf-8"))
KINDS = ("header", "result", "latency", "footer")


def validator(kind):
    return Draft202012Validator({"$ref": f"#/$defs/{kind}", "$defs": SCHEMA["$defs"]})


def problems(line):
    return [f"{problem.json_path}: {problem.message}" for problem in validator(line["kind"]).iter_errors(line)]


def lines(report):
    return [json.loads(line) for line in report.lines()]


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


def test_every_line_of_a_real_run_is_valid(real_report):
    written = lines(real_report)
    assert {line["kind"] for line in written} == set(KINDS)
    assert {line["outcome"] for line in written if line["kind"] == "result"} >= {"pass", "fail", "not_applicable"}
    assert [problem for line in written for problem in problems(line)] == []
    assert all(Draft202012Validator(SCHEMA).is_valid(line) for line in written)


def test_every_outcome_has_a_valid_line(samples):
    error = samples.result(Outcome.ERROR, check="usage.x", reason="KeyError: 'a'")
    report = samples.all_outcomes()
    written = lines(make_report(report.header, (*report.results, error), report.latency))
    assert {line["outcome"] for line in written if line["kind"] == "result"} == set(Outcome)
    assert [problem for line in written for problem in problems(line)] == []


def test_a_recording_judged_again_has_a_valid_header(samples):
    target = {"engine": "openai", "engine_version": None, "model": None, "url_host": "exchanges.jsonl"}
    report = make_report({**samples.header, "target": target, "capabilities": {}}, ())
    assert [problem for line in lines(report) for problem in problems(line)] == []


def objects(value, path=()):
    """Every object with a fixed set of members in a line, with its path."""
    if isinstance(value, dict):
        if path != ("failures",):
            yield path, value
        for name, member in value.items():
            yield from objects(member, (*path, name))
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from objects(item, (*path, place))


def inside(line, path):
    for step in path:
        line = line[step]
    return line


@pytest.mark.parametrize("kind", KINDS)
def test_no_member_may_be_added_and_none_left_out(samples, kind):
    optional = {"expected", "actual", "excerpt"}
    checked = 0
    for line in (line for line in lines(samples.all_outcomes()) if line["kind"] == kind):
        for path, held in objects(line):
            extended = deepcopy(line)
            inside(extended, path)["unheard_of"] = 1
            assert problems(extended), path
            for name in set(held) - optional if path != ("capabilities",) else ():
                shortened = deepcopy(line)
                del inside(shortened, path)[name]
                assert not Draft202012Validator(SCHEMA).is_valid(shortened), (path, name)
            checked += 1
    assert checked


@pytest.mark.parametrize(
    ("names", "listed"),
    [
        pytest.param(
            [level.value for level in PromptLevel], ("header", "capabilities", "prompt"), id="prompt evidence"
        ),
        pytest.param([way.value for way in ScriptMethod], ("header", "capabilities", "script"), id="ways of scripting"),
        pytest.param([outcome.value for outcome in Outcome], ("result", "outcome"), id="outcomes"),
        pytest.param([severity.value for severity in Severity], ("result", "severity"), id="severities"),
    ],
)
def test_the_schema_lists_what_the_code_knows(names, listed):
    found = SCHEMA["$defs"][listed[0]]
    for name in listed[1:]:
        found = found["properties"][name]
    assert sorted(found["enum"]) == sorted(names)


def test_a_report_is_the_same_after_writing_and_reading(real_report):
    document = "".join(line + "\n" for line in real_report.lines())
    assert read_report(document) == real_report


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("result", {"severity": "often"}, 'invalid severity: expected one of must, should, got "often"'),
        ("result", {"outcome": 5}, "invalid outcome: expected one of pass, fail"),
        ("cause", {"severity": None}, "invalid severity: expected one of must, should, got null"),
    ],
)
def test_a_damaged_line_is_named(real_report, kind, change, message):
    written = lines(real_report)
    line = next((line for line in written if line["kind"] == kind), {"kind": kind})
    document = "\n".join(map(json.dumps, [written[0], {**line, **change}, *written[1:]]))
    with pytest.raises(InvalidReportError, match=f"^line 2: {message}"):
        read_report(document)


def test_two_reports_in_one_file_are_not_one(real_report):
    document = "\n".join(real_report.lines())
    number = len(document.splitlines()) + 1
    with pytest.raises(InvalidReportError, match=f"^line {number}: .*expected one header line, got a second"):
        read_report(f"{document}\n{document}\n")


@pytest.mark.parametrize(
    ("change", "about"),
    [
        pytest.param({"outcome": "fail", "findings": []}, "findings", id="a failure without a finding"),
        pytest.param({"outcome": "error", "reason": ""}, "reason", id="an error without a reason"),
        pytest.param({"outcome": "not_applicable", "reason": ""}, "reason", id="not applicable without a reason"),
        pytest.param({"check": "nodot"}, "check", id="a check without its family"),
        pytest.param({"passed": -1}, "passed", id="a negative count"),
    ],
)
def test_a_result_that_says_nothing_is_refused(samples, change, about):
    line = {**samples.result().to_json(), **change}
    assert any(about in problem for problem in problems(line))
