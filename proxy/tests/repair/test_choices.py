"""Several choices that leak at once, their events mixed: what is done to one lets nothing of another out."""

import json
import random

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy.policy.policy import Action, FailMode
from harmony_proxy.repair import REPAIRS, StreamRepairer, repair_answer

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
    chance, rest = random.Random(seed), list(texts)
    out = [event(index, "") for index, _ in enumerate(texts)]
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
    return StreamRepairer(
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


QUOTING = ("a <|end|> b", '{"content": "assistantfinal"}', "```\n<|start|>assistant<|channel|>final<|message|>x\n```")


@pytest.mark.parametrize("said", ["analysisWe like it", "analysis is done. Good", "a < b", *QUOTING])
@pytest.mark.parametrize("leak", LEAKS)
def test_a_choice_that_does_not_leak_comes_as_it_was(leak, said):
    for seed in range(12):
        pieces = mixed([said, leak], seed)
        one = actor()
        out = [*(byte for piece in pieces for byte in one.feed(piece)), *one.close()]
        assert contents(b"".join(out), 2) == [said, "Hello!"]


@pytest.mark.parametrize("said", QUOTING)
@pytest.mark.parametrize("leak", LEAKS)
@pytest.mark.parametrize("place", [0, 1])
def test_a_choice_of_a_whole_answer_that_does_not_leak_stays_as_it_is(leak, said, place):
    texts = [leak, said] if place else [said, leak]
    choices = [
        {"index": index, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        for index, text in enumerate(texts)
    ]
    body = json.dumps({"id": "c", "object": "chat.completion", "choices": choices}).encode()
    response = Response(
        status=200, headers={"content-type": "application/json"}, chunks=(Chunk(arrival_time=0.0, data=body),)
    )
    x = Exchange(id="x", request=ASKED, response=response, api="chat")
    told = json.loads(repair_answer(x, REPAIRING, fallback=Action.OBSERVE).body)["choices"]
    assert told[place] == choices[place]
    assert told[1 - place]["message"]["content"] == "Hello!"
