"""A defect with a sign is named only where an answer shows it."""

from types import SimpleNamespace

import pytest

from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.causes.signatures import FailureKey
from harmony_conformance.causes.signs import SIGNS
from harmony_conformance.checks import CHECKS
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.judge.judge import Result
from harmony_conformance.reference_server.defects import DEFECTS

BY_ID = {check.id: check for check in CHECKS}
CALL, FENCE = "demanded-call-as-content", "schema-not-enforced-in-streams"
DEMANDED, JSON = "tool_calls.demanded_call_is_made", "structured.answer_is_json"
SPELLED, AGREE = "choices.logprobs_spell_the_text", "reasoning.reasoning_tokens_agree"


def failed(check, severity=None):
    name = "simple/chat/a/0"
    finding = Finding(message="it differs", exchange=name, location="/content")
    rule = BY_ID[check]
    return Result(
        check,
        severity or rule.severity,
        rule.clause,
        "simple",
        "chat",
        Outcome.FAIL,
        exchanges=(name,),
        applied=1,
        findings=(finding,),
    )


@pytest.mark.parametrize(
    ("defect", "check", "content", "expected"),
    [
        (CALL, DEMANDED, None, DEMANDED),
        (CALL, DEMANDED, "No.", DEMANDED),
        (CALL, DEMANDED, '{"word": "zqxv"}', CALL),
        (FENCE, JSON, '."zqxv"', JSON),
        (FENCE, JSON, '```json\n"zqxv"\n```', FENCE),
    ],
)
def test_a_defect_is_named_only_with_its_sign(defect, check, content, expected):
    signatures = {defect: {"ids": frozenset({FailureKey(check, "simple", "a", "it differs")})}}
    exchanges = {"simple/chat/a/0": SimpleNamespace(turn=SimpleNamespace(content=content))}
    assert [one.id for one in find_causes([failed(check)], signatures, exchanges=exchanges)] == [expected]


def test_each_sign_is_of_a_defect():
    assert not SIGNS.keys() - DEFECTS.keys()


def test_a_must_failure_is_in_no_group_of_should():
    found = find_causes([failed(SPELLED, Severity.MUST), failed(AGREE, Severity.SHOULD)], {})
    assert [(one.id, one.severity) for one in found] == [(SPELLED, Severity.MUST), (AGREE, Severity.SHOULD)]
