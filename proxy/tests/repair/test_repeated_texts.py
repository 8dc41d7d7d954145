"""Streams of the Responses API whose deltas are clean, and whose events that tell the text again leak: clients read the answer there, too."""

import json

import pytest

from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer

ASKED = Request(path="/v1/responses", body=b'{"model": "m", "input": "Hi", "stream": true}')
MARKS = "<|channel|>analysis<|message|>A secret.<|end|><|start|>assistant<|channel|>final<|message|>Hello!"
GLUED = "analysisA secret.assistantfinalHello!"
QUOTING = "It is `<|end|>`, not text.assistantfinal."
PLACES = ("text", "part", "item", "response")


def stream(said, again, places):
    """A stream of one message; `again` is what it is in these places."""

    def at(place):
        return again if place in places else said

    def part(place):
        return {"type": "output_text", "text": at(place), "annotations": []}

    def item(place, status="completed"):
        content = [] if status == "in_progress" else [part(place)]
        return {"type": "message", "id": "msg_1", "role": "assistant", "status": status, "content": content}

    def response(status, *output):
        return {"id": "resp_1", "object": "response", "model": "m", "status": status, "output": [*output]}

    where = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    told = [
        {"type": "response.created", "response": response("in_progress")},
        {"type": "response.output_item.added", "output_index": 0, "item": item("", "in_progress")},
        {"type": "response.content_part.added", **where, "part": {**part(""), "text": ""}},
        *({"type": "response.output_text.delta", **where, "delta": letter} for letter in said),
        {"type": "response.output_text.done", **where, "text": at("text")},
        {"type": "response.content_part.done", **where, "part": part("part")},
        {"type": "response.output_item.done", "output_index": 0, "item": item("item")},
        {"type": "response.completed", "response": response("completed", item("response"))},
    ]
    return b"".join(
        b"data: " + json.dumps({**one, "sequence_number": number}).encode() + b"\n\n" for number, one in enumerate(told)
    )


def acted_on(data, actions, split, fallback=Action.OBSERVE):
    response = Response(status=200, chunks=(), headers={"content-type": "text/event-stream"})
    one = StreamRepairer(ASKED, response, "responses", actions, fallback=fallback, request_id="r-1", limit=1 << 24)
    return b"".join([*one.feed(data[:split]), *one.feed(data[split:]), *one.close()]), one


@pytest.mark.parametrize("places", [*((place,) for place in PLACES), PLACES])
@pytest.mark.parametrize("again", [MARKS, GLUED])
def test_what_is_told_again_is_what_was_told(again, places):
    data, expected = stream("Hello!", again, places), stream("Hello!", again, ())
    events = [json.loads(line[6:]) for line in expected.decode().split("\n\n") if line]
    for split in range(0, len(data), 41):
        out, one = acted_on(data, dict.fromkeys(REPAIRS, Action.REPAIR), split)
        assert [json.loads(line[6:]) for line in out.decode().split("\n\n") if line] == events
        assert list(one.actions.repair_counts.values()) == [1]
        out, one = acted_on(data, {next(iter(one.actions.repair_counts)): Action.BLOCK}, split)
        assert one.actions.blocked_checks
        assert b"secret" not in out


@pytest.mark.parametrize("said", ["Hello!", QUOTING, "Hello! <|end|> is a token."])
@pytest.mark.parametrize("again", [None, "Another text."])
def test_what_is_told_again_and_is_no_leak_stays_as_it_is(said, again):
    data = stream(said, said if again is None else again, PLACES)
    for split in range(0, len(data), 41):
        out, one = acted_on(data, dict.fromkeys(REPAIRS, Action.REPAIR), split)
        assert out == data
        assert not one.actions
