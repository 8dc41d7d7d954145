"""Several choices that leak at once, their events mixed: what is done to one lets nothing of another out."""

import json
import random

import pytest

from harmony_conformance.wire import Request, Response
from harmony_proxy.acting import REPAIRS, StreamActor
from harmony_proxy.policy import Action, FailMode

ASKED = Request(path="/", body=b'{"messages": [{"role": "user", "content": "Hi"}], "n": 2, "stream": true}')
LEAKS = (
    "<|channel|>analysis<|message|>A secret.<|end|><|start|>assistant<|channel|>final<|message|>Hello!<|return|>",
    "analysis<|message|>A secret `x`.<|end|><|start|>assistant<|channel|>final<|message|>Hello!",
    "analysisA secret.assistantfinalHello!",
    "<think>A secret.</think>Hello!",
)
REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)


def event(index, said, finish=None):
    choice = {"index": index, "delta": {"content": said}, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + b"\n\n"


def mixed(texts, seed):
    """The events of these choices, each cut and mixed by chance."""
    chance, rest, out = random.Random(seed), list(texts), list[bytes]()
    while any(rest):
        index = chance.choice([place for place, text in enumerate(rest) if text])
        size = chance.choice([1, 2, 5, 30])
        said, rest[index] = rest[index][:size], rest[index][size:]
        out.append(event(index, said, None if rest[index] else "stop"))
    return [*out, b"data: [DONE]\n\n"]


def contents(data, choices):
    told = dict.fromkeys(range(choices), "")
    for line in data.decode().splitlines():
        for choice in json.loads(line[6:]).get("choices", ()) if line.startswith("data: {") else ():
            told[choice["index"]] += choice["delta"].get("content") or ""
    return list(told.values())


def actor(fail=FailMode.OPEN, fallback=Action.OBSERVE):
    response = Response(status=200, chunks=(), headers={"content-type": "text/event-stream"})
    return StreamActor(
        ASKED, response, "chat", REPAIRING, fallback=fallback, request_id="r-1", limit=1 << 24, fail=fail
    )


@pytest.mark.parametrize("second", LEAKS)
@pytest.mark.parametrize("first", LEAKS)
def test_each_choice_is_told_anew(first, second):
    for seed in range(12):
        one = actor(fallback=Action.BLOCK)
        out = b"".join(b"".join(one.feed(piece)) for piece in mixed([first, second], seed)) + b"".join(one.close())
        assert contents(out, 2) == ["Hello!", "Hello!"]
        assert out.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("said", ["analysisWe like it", "analysis is done. Good", "a < b"])
@pytest.mark.parametrize("leak", LEAKS)
def test_a_choice_that_does_not_leak_comes_as_it_was(leak, said):
    for seed in range(12):
        pieces = mixed([said, leak], seed)
        for ends in (True, False):
            one = actor()
            told = (
                pieces
                if ends
                else [piece for piece in pieces[:-1] if b'"index": 0' not in piece or b'"stop"' not in piece]
            )
            out = b"".join(b"".join(one.feed(piece)) for piece in told) + b"".join(one.close())
            mine = contents(b"".join(piece for piece in told if b'"index": 0' in piece), 1)
            assert contents(out, 2) == [*mine, "Hello!"]


def test_one_that_is_held_when_the_server_dies_stays_where_the_policy_is_closed():
    pieces = [event(0, "analysisA sec"), event(1, LEAKS[0][:60]), event(0, "ret")]
    for fail in FailMode:
        one = actor(fail)
        out = b"".join(b"".join(one.feed(piece)) for piece in pieces) + b"".join(one.abort())
        assert ("sec" in contents(out, 2)[0]) == (fail is FailMode.OPEN)
