"""Calls that the model made are paired with those that arrived."""

import pytest

from harmony_conformance.checks.helpers.call_alignment import align_calls
from harmony_conformance.evidence.expected_output import FunctionCall


def calls(*words):
    """Calls written as a name and a number: `f1` is f with the arguments {"n":1}."""
    return [FunctionCall(name=word[0], arguments=f'{{"n":{word[1:]}}}') for word in words]


@pytest.mark.parametrize(
    ("made", "arrived", "expected"),
    [
        pytest.param("f1 f2", "f1 f2", [(0, 0), (1, 1)], id="the same"),
        pytest.param("f1 f2", "f2", [(0, None), (1, 0)], id="the first lost"),
        pytest.param("f1 f2 f3", "f1 f3", [(0, 0), (1, None), (2, 1)], id="one lost in the middle"),
        pytest.param("f1 f2", "f2.0", [(0, None), (1, 0)], id="equal as JSON"),
        pytest.param("f1 g2", "g3", [(0, None), (1, 0)], id="changed, known by its name"),
        pytest.param("f1 g2", "h2", [(0, None), (1, 0)], id="renamed, known by its arguments"),
        pytest.param("f1", "g2", [(0, 0)], id="both changed"),
        pytest.param("f1 f2", "f2 f3", [(0, None), (1, 0), (None, 1)], id="one lost and one added"),
        pytest.param("f1", "f1 f1", [(0, 0), (None, 1)], id="doubled"),
        pytest.param("", "f1", [(None, 0)], id="none made"),
        pytest.param("f1", "", [(0, None)], id="none arrived"),
    ],
)
def test_calls_are_aligned(made, arrived, expected):
    assert align_calls(calls(*made.split()), calls(*arrived.split())) == expected
