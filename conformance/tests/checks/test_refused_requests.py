"""What a server may refuse: a parameter that it names, and what a ruling leaves open."""

import json

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge
from harmony_conformance.transport.messages import Chunk, Request, Response

RULES = {rule.id: rule for rule in CHECKS}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
ASKED = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]}
FORMATTED = {
    "messages": {**ASKED, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "responses": {
        "model": "m",
        "input": "Hi.",
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    },
}


def judged(api, scenario, step, body, reason):
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": reason}}
    response = Response(status=400, headers={}, chunks=(Chunk(arrival_time=0.0, data=json.dumps(error).encode()),))
    request = Request(path=f"/v1/{api}", body=json.dumps(body).encode())
    names = {"id": step, "scenario": scenario, "step": step, "api": api}
    x = Exchange(**names, validity=Validity.VALID, request=request, response=response)
    (result,) = judge([Series(name=scenario, exchanges={step: x})], [RULES["errors.valid_request_is_answered"]])
    return result


@pytest.mark.parametrize(("api", "member"), [("messages", "output_config.format"), ("responses", "text.format")])
def test_a_format_that_is_refused_by_its_name_in_the_api_is_a_declared_limit(api, member):
    result = judged(api, "json_answer", "answer", FORMATTED[api], f"{member} is not supported")
    assert result.outcome is Outcome.VARIANT
    assert result.findings[0].message == f"the server declares that it does not support {member}"


@pytest.mark.parametrize("api", sorted(FORMATTED))
def test_a_refusal_that_does_not_name_the_format_fails(api):
    assert judged(api, "json_answer", "answer", FORMATTED[api], "the text is not valid").outcome is Outcome.FAIL


@pytest.mark.parametrize(
    ("scenario", "step", "outcome"),
    [("odd_texts", "an empty answer", Outcome.NOT_APPLICABLE), ("odd_texts", "an empty result", Outcome.FAIL)],
)
def test_an_empty_answer_in_the_history_may_be_refused_over_messages(scenario, step, outcome):
    body = {**ASKED, "messages": [*ASKED["messages"], {"role": "assistant", "content": ""}, *ASKED["messages"]]}
    reason = "messages.1: assistant messages must have non-empty content"
    assert judged("messages", scenario, step, body, reason).outcome is outcome


def test_an_empty_answer_in_the_history_is_answered_over_responses():
    body = {"model": "m", "input": [{"role": "assistant", "content": ""}, {"role": "user", "content": "Hi."}]}
    reason = "input: Message content cannot be empty"
    assert judged("responses", "odd_texts", "an empty answer", body, reason).outcome is Outcome.FAIL
