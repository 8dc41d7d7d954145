"""Whole answers told anew: in the order in which the model spoke, and each text in one place."""

import json

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, repair_answer

REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
THOUGHT = "We look it up.<|end|><|start|>assistant<|channel|>commentary<|message|>I look it up. "
MARKED = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Paris."
PATHS = {"chat": "/v1/chat/completions", "ollama": "/api/chat", "responses": "/v1/responses"}


def acted(api, body):
    asked = {
        "model": "m",
        **({"input": "Hi"} if api == "responses" else {"messages": [{"role": "user", "content": "Hi"}]}),
    }
    request = Request(path=PATHS[api], body=json.dumps({**asked, "stream": False}).encode())
    chunks = (Chunk(arrival_time=0.1, data=json.dumps(body).encode()),)
    response = Response(status=200, headers={"content-type": "application/json"}, chunks=chunks)
    out = repair_answer(
        Exchange(id="x", request=request, response=response, api=api), REPAIRING, fallback=Action.OBSERVE
    )
    return json.loads(out.body)


def chat(message):
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


def test_a_text_that_leaked_into_the_reasoning_stands_before_the_content():
    told = acted("chat", chat({"content": "It is Paris.", "reasoning": THOUGHT}))["choices"][0]["message"]
    assert (told["reasoning"], told["content"]) == ("We look it up.", "I look it up. It is Paris.")


@pytest.mark.parametrize("turn", [1, -1])
def test_of_two_texts_that_leak_the_reasoning_was_before(turn):
    said = dict([("reasoning", THOUGHT), ("content", MARKED)][::turn])
    told = acted("chat", chat(said))["choices"][0]["message"]
    assert (told["reasoning"], told["content"]) == ("We look it up.Hm.", "I look it up. Paris.")


def test_in_ollamas_words_too():
    message = {"role": "assistant", "content": "It is Paris.", "thinking": THOUGHT}
    told = acted("ollama", {"model": "m", "message": message, "done": True, "done_reason": "stop"})["message"]
    assert (told["thinking"], told["content"]) == ("We look it up.", "I look it up. It is Paris.")


@pytest.mark.parametrize(
    ("content", "summary", "told"),
    [
        (THOUGHT, "", ("We look it up.", "")),
        ("", THOUGHT, ("", "We look it up.")),
        (THOUGHT, THOUGHT, ("We look it up.", "")),
        (THOUGHT, "Looks.", ("We look it up.", "Looks.")),
        (THOUGHT, THOUGHT[:30], ("We look it up.", "")),
    ],
    ids=["its content", "its summary", "both alike", "a summary beside it", "a summary that leaks too"],
)
def test_a_reasoning_of_a_response_has_its_text_where_it_had_it(content, summary, told):
    reasoning = {
        "id": "rs_1",
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": summary}] if summary else [],
        "content": [{"type": "reasoning_text", "text": content}] if content else [],
    }
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    thought, message = acted("responses", {**response, "output": [reasoning]})["output"]
    assert tuple("".join(part["text"] for part in thought[name]) for name in ("content", "summary")) == told
    assert message["content"][0]["text"] == "I look it up. "
