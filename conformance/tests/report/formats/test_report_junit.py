import xml.etree.ElementTree as ET
from functools import partial

import pytest

from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.formats.junit import junit

MUST, SHOULD = frozenset({Severity.MUST}), frozenset({Severity.MUST, Severity.SHOULD})
NEVER = frozenset()


junit_all = partial(junit, with_unapplied=True)


def read(document):
    return ET.fromstring(document.encode("utf-8"))


def cases(root):
    return {case.get("name"): case for case in root.iter("testcase")}


def properties(case):
    return {one.get("name"): one.get("value") for one in case.iter("property")}


def test_each_check_and_scenario_is_one_case(real_report):
    root = read(junit_all(real_report))
    names = [(case.get("classname"), case.get("name")) for case in root.iter("testcase")]
    assert len(names) == len(set(names)) == len(real_report.results)
    assert ("usage", "usage.adds_up[simple_answer]") in names


def test_counts_are_those_of_the_cases(real_report):
    root = read(junit_all(real_report))
    for element in (root, *root.iter("testsuite")):
        found = list(element.iter("testcase"))
        kinds = {"failures": "failure", "errors": "error", "skipped": "skipped"}
        assert int(element.get("tests")) == len(found)
        for count, tag in kinds.items():
            assert int(element.get(count)) == sum(case.find(tag) is not None for case in found)
    assert int(root.get("failures")) == real_report.counts[Outcome.FAIL] > 0
    assert int(root.get("skipped")) == real_report.counts[Outcome.NOT_APPLICABLE]


@pytest.mark.parametrize(
    ("outcome", "severity", "fails_on", "expected"),
    [
        pytest.param(Outcome.PASS, Severity.MUST, MUST, None, id="a pass"),
        pytest.param(Outcome.FAIL, Severity.MUST, MUST, "failure", id="a MUST failure"),
        pytest.param(Outcome.FAIL, Severity.SHOULD, MUST, "skipped", id="a SHOULD failure that does not count"),
        pytest.param(Outcome.FAIL, Severity.SHOULD, SHOULD, "failure", id="a SHOULD failure that counts"),
        pytest.param(Outcome.FAIL, Severity.MUST, NEVER, "skipped", id="nothing counts"),
        pytest.param(Outcome.VARIANT, Severity.MUST, SHOULD, "system-out", id="a variant"),
        pytest.param(Outcome.INCONCLUSIVE, Severity.MUST, MUST, "skipped", id="inconclusive"),
        pytest.param(Outcome.NOT_APPLICABLE, Severity.MUST, MUST, "skipped", id="not applicable"),
        pytest.param(Outcome.ERROR, Severity.SHOULD, NEVER, "error", id="our error, whatever counts"),
    ],
)
def test_an_outcome_becomes_what_junit_has_for_it(samples, outcome, severity, fails_on, expected):
    findings = {
        Outcome.FAIL: (samples.finding("the reason", expected="a", actual="b"),),
        Outcome.VARIANT: (samples.finding("the reason", verdict="variant"),),
    }.get(outcome, ())
    line = samples.result(outcome, severity=severity, findings=findings, reason="" if findings else "the reason")
    (case,) = read(junit_all(samples.report(line), fails_on)).iter("testcase")
    told = [child for child in case if child.tag != "properties"]
    has_details = outcome is Outcome.FAIL and expected == "skipped"
    assert [child.tag for child in told] == ([] if expected is None else [expected] + ["system-out"] * has_details)
    assert all("the reason" in (child.get("message") or "") + (child.text or "") for child in told)
    assert properties(case)["outcome"] == outcome.value
    assert properties(case)["severity"] == severity.value


def test_a_failure_tells_all_that_is_needed(samples):
    line = samples.result(
        Outcome.FAIL,
        findings=(samples.finding("wrong end", expected="stop", actual="length", excerpt="…"), samples.finding("more")),
        reproduce="curl http://localhost",
    )
    case = cases(read(junit_all(samples.report(line))))["channels.content_is_the_answer[simple_answer]"]
    failure = case.find("failure")
    assert failure.get("message") == "wrong end (and 1 more)"
    assert failure.get("type") == "must"
    for told in (
        "stop",
        "length",
        "simple/chat/answer/0 at content",
        "curl http://localhost",
        "final channel",
        "0 of 1",
    ):
        assert told in failure.text


def test_other_apis_stand_beside_chat(samples):
    report = samples.report(samples.result(), samples.result(api="responses"))
    assert sorted(cases(read(junit_all(report)))) == [
        "channels.content_is_the_answer[simple_answer/responses]",
        "channels.content_is_the_answer[simple_answer]",
    ]


def test_any_text_gives_valid_xml(samples, hostile):
    document = junit_all(samples.all_outcomes(hostile))
    root = read(document)
    assert len(cases(root)) == 7
    assert document.isascii() or document.encode("utf-8")
    assert len(document) < 200_000


def test_what_xml_has_no_place_for_is_spelled_out(samples):
    failed = samples.result(Outcome.FAIL, findings=(samples.finding("a\0\ud800\u202e\ufffe"),))
    case = next(read(junit(samples.report(failed))).iter("failure"))
    assert case.get("message") == r"a\x00\ud800\u202e\ufffe"


def test_two_renderings_are_equal(real_report):
    assert junit_all(real_report) == junit_all(real_report)


def test_it_is_written_as_elementtree_writes_it(samples, hostile):
    document = junit_all(samples.all_outcomes(hostile))
    root = read(document)
    ET.indent(root)
    assert document == f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def test_results_that_did_not_apply_are_left_out_unless_asked_for(real_report):
    shown, every = (
        {case.get("name") for case in read(document).iter("testcase")}
        for document in (junit(real_report), junit_all(real_report))
    )
    assert len(every - shown) == real_report.counts[Outcome.NOT_APPLICABLE] > 0
    assert len(shown) == len(real_report.results) - real_report.counts[Outcome.NOT_APPLICABLE]
