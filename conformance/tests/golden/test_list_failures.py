"""The list of failures for readers: a failure with an excerpt shows it, and an answer without its script says so."""

import runpy
from pathlib import Path

import pytest

from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.transport.messages import Request

TOOL = Path(__file__).parents[3] / "tools" / "list_failures.py"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="the tools are in the checkout only")


def failure(tool, severity):
    return tool["Failure"](report="folder", result={"severity": "must"}, finding={"severity": severity}, cause="-")


@pytest.mark.parametrize(
    ("severities", "shown"), [(["should", "should"], "should"), (["should", "must", "must"], "2 must, 1 should")]
)
def test_a_group_of_several_severities_has_the_number_of_each(severities, shown):
    tool = runpy.run_path(str(TOOL))
    assert tool["severities_of"]([failure(tool, severity) for severity in severities]) == shown


def test_an_older_reason_is_restated_as_judging_does():
    tool = runpy.run_path(str(TOOL))
    body = b'{"model": "m", "input": "Go on.", "text": {"format": {"type": "json_schema", "name": "a", "schema": {}}}}'
    reason = "the output differs from the script, for example because the server enforces a grammar"
    request = Request(path="/v1/responses", body=body)
    x = Exchange(id="x", api="responses", request=request, script_not_played=reason)
    judged = tool["judged_exchanges"]([Series(name="s", exchanges={"a": x})], ScriptMethod.TELEPROMPTER)
    assert judged["x"].script_not_played.startswith("whether the script was played is not shown")
    forced = tool["judged_exchanges"]([Series(name="s", exchanges={"a": x})], ScriptMethod.VLLM)
    assert forced["x"].script_not_played == reason


def lines(finding, **exchange):
    tool = runpy.run_path(str(TOOL))
    x = Exchange(id="s/chat/a/0", request=Request(path="/v1/chat/completions", body=b"{}"), **exchange)
    failure = tool["Failure"](
        report="folder", result={"check": "channels.no_marker_leak"}, finding={"exchange": x.id, **finding}, cause="-"
    )
    return [line.strip() for line in tool["lines_of"](failure, {x.id: x})]


def test_a_failure_with_an_excerpt_shows_it_and_no_empty_values():
    assert "excerpt 'a<|end|>b'" in lines({"excerpt": "a<|end|>b"})


def test_expected_and_actual_value_are_shown_even_if_one_is_empty():
    assert "expected 'x', actual ''" in lines({"expected": "x", "actual": ""})


def test_an_answer_whose_script_was_not_played_says_why():
    assert "script: (not judged: the model did not emit it)" in lines({}, script_not_played="the model did not emit it")


def test_a_played_script_is_decoded():
    assert "script: <|channel|>final" in lines({}, script=(200005, 17196))
