"""A check that raises protects nothing: the failure mode of the policy decides about the answer."""

import json
import re
from dataclasses import replace
from types import MappingProxyType

import pytest

from harmony_proxy.configuration import load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.repair.answer import check_verdicts

CHECK = "channels.no_marker_leak"
LEAK = "<|channel|>analysis<|message|>The user says hi.<|end|><|start|>assistant<|channel|>final<|message|>Hello!"


@pytest.fixture
def broken(monkeypatch):
    """A check that raises for every exchange."""

    def run(_x):
        raise RuntimeError("defect of the check")

    for name in ("_ALONE", "_MUST"):
        rules = getattr(check_verdicts, name)
        monkeypatch.setattr(check_verdicts, name, MappingProxyType({**rules, CHECK: replace(rules[CHECK], run=run)}))


def guarded(fail, action, *, is_stream):
    rules = load_rules(fail=fail, **{action: [CHECK]})
    guard = Guard(rules.policy, request_id="r", handlers=rules.handlers)
    body = {"model": "m", "stream": is_stream, "messages": [{"role": "user", "content": "hi"}]}
    guard.request_head("POST", "/v1/chat/completions", [(b"content-type", b"application/json")])
    guard.request_body(json.dumps(body).encode())
    kind = b"text/event-stream" if is_stream else b"application/json"
    guard.response_head(200, [(b"content-type", kind)])
    base = {"id": "a", "created": 1, "model": "m"}
    out = []
    if is_stream:
        deltas = [{"content": LEAK[at : at + 5]} for at in range(0, len(LEAK), 5)]
        for delta, finish in [*((one, None) for one in deltas), ({}, "stop")]:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            event = {**base, "object": "chat.completion.chunk", "choices": [choice]}
            out += guard.feed(b"data: " + json.dumps(event).encode() + b"\n\n", 0.1)
        out += guard.feed(b"data: [DONE]\n\n", 0.2)
    else:
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": LEAK}}
        out += guard.feed(json.dumps({**base, "object": "chat.completion", "choices": [choice]}).encode(), 0.1)
    closed = guard.close(0.3)
    shown = b"".join((*out, *closed.body)).decode()
    return "".join(re.findall(r'"content": "([^"]*)"', shown)), guard.problems


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("action", ["repair", "block"])
def test_a_closed_policy_withholds_what_a_broken_check_should_have_examined(action, is_stream):
    shown, problems = guarded("closed", action, is_stream=is_stream)
    assert "The user says hi" not in shown
    assert problems


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("action", ["repair", "block"])
def test_an_open_policy_passes_it_and_counts_the_problem(action, is_stream):
    shown, problems = guarded("open", action, is_stream=is_stream)
    assert shown == LEAK
    assert problems
