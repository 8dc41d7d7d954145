"""Random weights write anything: no check judges their words, and every check judges what the server makes of them."""

import json
from dataclasses import replace

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge
from harmony_conformance.transport.messages import Chunk, Request, Response

TOOL = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "word", "strict": True, "schema": {"const": "zqxv"}}}
LOOP = " ".join(["refers"] * 40)


def answer(content, *, tokens=48, finish="stop", calls=(), **request):
    message = {"role": "assistant", "content": content, "reasoning": None, "tool_calls": list(calls)}
    body = {
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        "usage": {"prompt_tokens": 80, "completion_tokens": tokens, "total_tokens": 80 + tokens},
    }
    asked = {"model": "m", "messages": [{"role": "user", "content": "A number, please."}], **request}
    return Exchange(
        id="a",
        request=Request(path="/v1/chat/completions", body=json.dumps(asked).encode()),
        response=Response(
            status=200,
            headers={"content-type": "application/json"},
            chunks=(Chunk(arrival_time=0.1, data=json.dumps(body).encode()),),
        ),
    )


def outcome(check, x):
    (result,) = judge([Series(name="s", exchanges={"a": x})], [one for one in CHECKS if one.id == check])
    return result.outcome


CALL = {"id": "call_1", "type": "function", "function": {"name": "lektra", "arguments": "{}"}}
GUESSES = {
    "channels.answer_is_told_once": answer(LOOP, finish="length"),
    "channels.no_suspected_broken_character": answer("gebaseerd\ufffd zox"),
    "channels.no_suspected_leak": answer("Dz<|reserved_200866|>(android"),
    "channels.answer_ends_with_its_turn": answer("It is 7.\nUser: And another?\nAssistant: 8."),
    "channels.nothing_is_lost": answer(None),
    "tool_calls.name_is_declared": answer(None, calls=[CALL], finish="tool_calls", tools=[TOOL]),
}


@pytest.mark.parametrize("check", GUESSES)
def test_what_random_weights_wrote_proves_nothing(check):
    x = GUESSES[check]
    assert outcome(check, x) is Outcome.FAIL
    assert outcome(check, replace(x, may_be_random=True)) is Outcome.NOT_APPLICABLE
    assert outcome(check, replace(x, script_not_played="the output differs from the script")) is Outcome.NOT_APPLICABLE


INEXCUSABLE = {
    "structured.answer_is_json": answer("a colour", response_format=SCHEMA),
    "tool_calls.none_means_none": answer(None, calls=[CALL], finish="tool_calls"),
    "tool_calls.demanded_call_is_made": answer("It is 7.", tools=[TOOL], tool_choice="required"),
    "channels.no_marker_leak": answer("Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is 7."),
    "usage.adds_up": answer("It is 7.", tokens=-1),
}


@pytest.mark.parametrize("check", INEXCUSABLE)
def test_no_weights_excuse_the_server(check):
    assert outcome(check, replace(INEXCUSABLE[check], may_be_random=True)) is Outcome.FAIL
