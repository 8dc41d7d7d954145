"""Calls that the model made are paired with those that arrived."""

import json

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.checks.helpers.call_alignment import align_calls
from harmony_conformance.evidence.expected_output import FunctionCall
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.judge import judge


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


CALLS = "streaming.calls_equal_whole"
PARIS, NOTE = (
    {"name": name, "arguments": text} for name, text in (("get_weather", '{"city":"Paris"}'), ("note", "{}"))
)


def streamed_findings(whole, streamed):
    """What is found where a script with one call arrives as these calls, whole and streamed."""
    shown = json.loads((golden.root() / "exchanges" / CALLS / "fail-call-missing.json").read_text("utf-8"))
    message = shown["exchanges"]["answer"]["response"]["json"]["choices"][0]["message"]
    message["tool_calls"] = [{"id": f"call_{i}", "type": "function", "function": one} for i, one in enumerate(whole)]
    events = shown["exchanges"]["answer+stream"]["response"]["events"]
    deltas = [{"index": i, "id": f"call_{i}", "type": "function", "function": one} for i, one in enumerate(streamed)]
    events[1]["choices"][0]["delta"] |= {"tool_calls": deltas} if deltas else {}
    example = golden.read_example(json.dumps(shown).encode(), check=CALLS, name="fail-call-missing")
    (result,) = judge([example.series], [rule for rule in CHECKS if rule.id == CALLS])
    return [(str(one.message), one.location, str(one.expected), str(one.actual)) for one in result.findings]


def test_a_call_in_front_of_the_others_is_one_finding():
    assert streamed_findings([PARIS], [NOTE, PARIS]) == [
        ("the stream has a call note({}) that the whole answer lacks", "tool_calls[0]", "no such call", "note({})")
    ]


def test_a_call_that_the_stream_lacks_is_one_finding():
    call = 'get_weather({"city":"Paris"})'
    assert streamed_findings([PARIS], []) == [
        (f"the stream lacks the call {call} of the whole answer", "tool_calls[0]", call, "no such call")
    ]


def test_neither_answer_is_expected_where_both_are_wrong():
    (found,) = streamed_findings([NOTE, PARIS], [NOTE, NOTE, PARIS])
    assert found[2:] == ("the same in both", "whole: no such call, streamed: note({})")


def test_changed_arguments_are_reported_at_their_place():
    (found,) = streamed_findings([PARIS], [{**PARIS, "arguments": '{"city":"Rome"}'}])
    assert found[:2] == ("streamed, tool_calls[0].arguments differs", "tool_calls[0].arguments")
