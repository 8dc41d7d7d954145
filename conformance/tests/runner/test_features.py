"""Features that the answers of a run had, counted from the recorded exchanges."""

import json

import pytest

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.runner.features import ANSWERS, FEATURES, NEVER, count_features
from harmony_conformance.transport.messages import Chunk, Request, Response

CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
REQUEST = {"messages": [{"role": "user", "content": "Hi"}]}


def series(*exchanges):
    return [Series(name="s", exchanges={x.step: x for x in exchanges})]


def answer(name, message, request=REQUEST, status=200, **members):
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi", **message}}
    body = {"object": "chat.completion", "choices": [{**choice, **members.pop("choice", {})}], **members}
    return made(name, request, status, "application/json", json.dumps(body).encode())


def stream(name, delta):
    chunk = {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta}]}
    data = b"data: " + json.dumps(chunk).encode() + b"\n\ndata: [DONE]\n\n"
    return made(name, {**REQUEST, "stream": True}, 200, "text/event-stream", data)


def made(name, request, status, content_type, data):
    response = Response(
        status=status, headers={"content-type": content_type}, chunks=(Chunk(arrival_time=0.0, data=data),)
    )
    path = "/v1/chat/completions"
    return Exchange(
        id=name, step=name, request=Request(path=path, body=json.dumps(request).encode()), response=response
    )


WITH = {
    "reasoning": answer("x", {"reasoning": "Hm."}),
    "reasoning in a stream": stream("x", {"reasoning_content": "Hm."}),
    "tools": answer("x", {"tool_calls": [CALL]}),
    "usage": answer("x", {}, usage={"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
    "prompt-ids": answer("x", {}, prompt_token_ids=[1]),
    "output-ids": answer("x", {}, choice={"token_ids": [1]}),
    "streaming": stream("x", {"content": "Hi"}),
}
ALSO = {"reasoning in a stream": {"streaming"}, "prompt-ids": {"token-ids"}, "output-ids": {"token-ids"}}


@pytest.mark.parametrize("what", WITH)
def test_each_feature_is_counted_where_it_appears_alone(what):
    counts = count_features(series(WITH[what]))
    assert {name for name in FEATURES if counts[name]} == {what.partition(" ")[0], *ALSO.get(what, ())}
    assert counts[ANSWERS] == 1


def test_blank_reasoning_and_errors_are_no_answers():
    counts = count_features(series(answer("a", {"reasoning": " \n"}), answer("b", {"reasoning": "Hm."}, status=500)))
    assert (counts[ANSWERS], counts["reasoning"]) == (1, 0)


@pytest.mark.parametrize(
    ("exchanges", "never"),
    [
        ((), []),
        ((answer("a", {}),), ["reasoning", "usage"]),
        ((answer("a", {}, {**REQUEST, "tools": [{"type": "function"}]}),), ["reasoning", "tools", "usage"]),
        ((answer("a", {"reasoning": "Hm."}, {**REQUEST, "stream": True}),), ["usage", "streaming"]),
        ((stream("a", {"content": "Hi"}),), ["reasoning", "usage"]),
    ],
)
def test_only_what_the_requests_ask_for_is_missed(exchanges, never):
    assert count_features(series(*exchanges))[NEVER] == never
