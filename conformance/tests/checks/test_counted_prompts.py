"""Findings on prompt counts: one for each request that differs, and one for reasoning that no name brings to the model."""

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.judge import judge

EXAMPLES = {example.id: example for example in golden.examples()}
RULES = {rule.id: rule for rule in CHECKS}


def findings(name: str):
    example = EXAMPLES[name]
    (result,) = judge([example.series], [RULES[example.check]])
    return result.findings


def test_each_request_whose_count_differs_is_a_finding_of_its_own():
    found = findings("accounting.counts_fit_a_form/fail-nothing-fits")
    steps = [one.exchange for one in found]
    assert len(steps) == len(set(steps)) > 1
    assert len({one.message for one in found}) == 1
    assert all(str(one.actual).isdigit() for one in found)


def test_reasoning_that_is_never_read_is_one_failure_that_names_what_was_sent():
    (one,) = findings("multi_turn.reasoning_is_read_under_its_own_name/fail-under-no-name")
    assert one.message.startswith("reasoning that is sent back is not read; it was sent as: ")
