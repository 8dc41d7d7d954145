"""A difference of stream and whole answer on broken output: no source defines what a server makes of it."""

import json

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.judge import judge
from harmony_conformance.judge.rulings import MALFORMED_OUTPUT

RULES = {rule.id: rule for rule in CHECKS}
CHECK = "streaming.content_equals_whole"


@pytest.mark.parametrize(
    ("expected", "ruling"),
    [
        pytest.param({"must": {}, "may": {}, "never": ["<|"]}, MALFORMED_OUTPUT, id="a row of broken output"),
        pytest.param(None, "", id="no row"),
    ],
)
def test_a_difference_has_the_ruling_of_its_row(expected, ruling):
    shown = json.loads((golden.root() / "exchanges" / CHECK / "fail-content-lost.json").read_text("utf-8"))
    for x in shown["exchanges"].values():
        x.update({"expected": expected} if expected else {})
    example = golden.read_example(json.dumps(shown).encode(), check=CHECK, name="fail-content-lost")
    (result,) = judge([example.series], [RULES[CHECK]])
    assert [finding.ruling for finding in result.findings] == [ruling]
