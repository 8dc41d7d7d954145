"""The list of failures for readers: a failure with an excerpt shows it, and an answer without its script says so."""

import runpy
from pathlib import Path

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Request

TOOL = Path(__file__).parents[3] / "tools" / "list_failures.py"
pytestmark = pytest.mark.skipif(not TOOL.exists(), reason="the tools are in the checkout only")


def lines(finding, **exchange):
    tool = runpy.run_path(str(TOOL))
    x = Exchange(id="s/chat/a/0", request=Request(path="/v1/chat/completions", body=b"{}"), **exchange)
    failure = tool["Failure"](
        report="lane", result={"check": "channels.no_marker_leak"}, finding={"exchange": x.id, **finding}, cause="-"
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
