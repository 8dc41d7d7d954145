"""A number beyond floats is judged as any other value that does not fit."""

import json

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge

CHECK = "choices.logprobs_are_logarithms"


def test_a_log_probability_beyond_floats_is_not_valid():
    shown = json.loads((golden.root() / "exchanges" / CHECK / "fail-null.json").read_text("utf-8"))
    shown["response"]["json"]["choices"][0]["logprobs"]["content"][0]["logprob"] = 10**400
    example = golden.read_example(json.dumps(shown).encode(), check=CHECK, name="fail-null")
    (result,) = judge([example.series], [rule for rule in CHECKS if rule.id == CHECK])
    assert (result.outcome, result.reason) == (Outcome.FAIL, "")
    assert [str(finding.message) for finding in result.findings] == ["an entry has no valid log probability"]
