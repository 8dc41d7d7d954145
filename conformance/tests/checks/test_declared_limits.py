"""A request that is refused for its length declares a limit; one that is refused for another reason leaves the check open."""

import json

import pytest

from harmony_conformance.checks.robustness import (
    CONVERSATION_LENGTH_STEPS,
    MESSAGE_LENGTH_STEPS,
    long_message_is_whole,
    many_messages_are_kept,
)
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge_one
from harmony_conformance.transport.messages import Chunk, Request, Response

ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": "stop"}]}
COUNTED = {**ANSWER, "usage": {"prompt_tokens": 9, "completion_tokens": 1, "total_tokens": 10}}


def exchange(step, status, body):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    chunks = (Chunk(arrival_time=0.0, data=data),)
    response = Response(status=status, headers={"content-type": "application/json"}, chunks=chunks)
    request = Request(path="/", body=b'{"messages": [{"role": "user", "content": "x"}]}')
    return Exchange(id=step, step=step, request=request, response=response)


def judged(rule, steps, status, body):
    short, long = steps
    exchanges = {short: exchange(short, 200, COUNTED), long: exchange(long, status, body)}
    return judge_one(rule, [Series(name="s", exchanges=exchanges)], exercised=True)


def error(message, **members):
    return {"error": {"message": message, **members}}


REFUSALS = [
    (400, error("Input length (108080) exceeds model's maximum context length (4096).")),
    (400, error("This model's maximum context length is 4096 tokens.", code="context_length_exceeded")),
    (400, error("the request exceeds the available context size, try increasing it")),
    (422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 108080"}),
    (413, b"Payload Too Large"),
    (400, error("prompt is too long: 108080 tokens > 4096 maximum")),
]


@pytest.mark.parametrize(("status", "body"), REFUSALS)
@pytest.mark.parametrize(
    ("rule", "steps"),
    [(long_message_is_whole, MESSAGE_LENGTH_STEPS), (many_messages_are_kept, CONVERSATION_LENGTH_STEPS)],
)
def test_a_length_that_is_refused_is_a_declared_limit(rule, steps, status, body):
    result = judged(rule, steps, status, body)
    assert result.outcome is Outcome.NOT_APPLICABLE
    assert "declares a limit" in result.reason


@pytest.mark.parametrize(
    ("status", "body"), [(400, error("invalid role")), (500, error("context length exceeded")), (401, error("no key"))]
)
def test_another_refusal_leaves_it_open(status, body):
    assert judged(long_message_is_whole, MESSAGE_LENGTH_STEPS, status, body).outcome is Outcome.INCONCLUSIVE


def test_a_shorter_prompt_has_fewer_tokens():
    cut = {**COUNTED, "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}}
    (finding,) = judged(long_message_is_whole, MESSAGE_LENGTH_STEPS, 200, cut).findings
    assert (finding.message, finding.actual) == ("the long message gave the prompt 6 fewer tokens", "6 fewer tokens")
