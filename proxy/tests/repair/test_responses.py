"""Streams of the Responses API told anew: read by the official client, and judged by the suite's own checks of their grammar, numbers, indices and texts."""

import json

import httpx
import openai
import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.check import Outcome
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer
from harmony_proxy.repair.answer.check_verdicts import find_failures, run_checks

REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
LEAK = "channels.no_marker_leak"
FORM = [rule.id for rule in CHECKS if rule.family == "responses"]
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object"}, "strict": False}
ASKED = Request(
    path="/v1/responses",
    body=json.dumps({"model": "m", "input": "Hi", "tools": [WEATHER], "stream": True}).encode(),
)
PARIS = {"id": "call_1", "function": {"name": "get_weather"}}
ODD = {"id": "call_1<|call|>", "function": {"name": "functions.get_weather<|channel|>commentary"}}
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
MARKED = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi there"
# what the server says, and the items that the client has to get
LEAKING = {
    "glued": (
        [("message", "analysisWe greet.assistantfinalHello!", None)],
        [("reasoning", "We greet."), ("message", "Hello!")],
    ),
    "markers": ([("message", MARKED, None)], [("reasoning", "Hm."), ("message", "Hi there")]),
    "within a text": (
        [("message", "Hello. <|end|><|start|>assistant<|channel|>analysis<|message|>Hm.<|end|>", None)],
        [("message", "Hello. "), ("reasoning", "Hm.")],
    ),
    "in the reasoning": (
        [("reasoning", "Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi", None)],
        [("reasoning", "Hm."), ("message", "Hi")],
    ),
    "a call": (
        [("reasoning", "Need it.", None), ("message", CALL, None)],
        [("reasoning", "Need it."), ("function_call", '{"city":"Paris"}')],
    ),
    "two calls and more": (
        [
            ("message", f"I look.<|end|><|start|>assistant{CALL}<|start|>assistant{CALL}", None),
            ("message", "Done.", None),
        ],
        [
            ("message", "I look."),
            ("function_call", '{"city":"Paris"}'),
            ("function_call", '{"city":"Paris"}'),
            ("message", "Done."),
        ],
    ),
    "tags": ([("message", "<think>Hm.</think>\n\nHi", None)], [("reasoning", "Hm."), ("message", "Hi")]),
    "the end": ([("message", "Hello!<|return|>", None)], [("message", "Hello!")]),
    "a name": (
        [("reasoning", "Hm.", None), ("function_call", "{}", ODD)],
        [("reasoning", "Hm."), ("function_call", "{}")],
    ),
    "arguments": (
        [("function_call", '{"city":"Paris"}<|call|>', PARIS), ("message", "Done.", None)],
        [("function_call", '{"city":"Paris"}'), ("message", "Done.")],
    ),
    "two items": (
        [("message", "Hi!<|end|>", None), ("message", MARKED, None), ("function_call", "{}", PARIS)],
        [("message", "Hi!"), ("reasoning", "Hm."), ("message", "Hi there"), ("function_call", "{}")],
    ),
}


def usage(said):
    """What the server counted: the reasoning that it saw."""
    seen = sum(3 for kind, *_ in said if kind == "reasoning")
    counts = {"input_tokens": 9, "output_tokens": 30, "total_tokens": 39, "input_tokens_details": {"cached_tokens": 0}}
    return {**counts, "output_tokens_details": {"reasoning_tokens": seen}}


def actor(actions=None, *, fallback=Action.OBSERVE):
    response = Response(status=200, chunks=(), headers={"content-type": "text/event-stream"})
    actions = REPAIRING if actions is None else actions
    return StreamRepairer(ASKED, response, "responses", actions, fallback=fallback, request_id="r-1", limit=1 << 24)


def run(one, pieces):
    return b"".join([*(told for piece in pieces for told in one.feed(piece)), *one.close()])


def exchange(data):
    headers = {"content-type": "text/event-stream"}
    response = Response(status=200, headers=headers, chunks=(Chunk(arrival_time=0.1, data=data),))
    return Exchange(id="x", request=ASKED, response=response, api="responses")


def events(data):
    return [json.loads(line[6:]) for line in data.decode().split("\n") if line.startswith("data: {")]


def is_right(data):
    """Every check of the family, those that only should hold as well."""
    return {one.check for one in run_checks(exchange(data), FORM) if one.outcome is Outcome.FAIL} == set()


def items(response):
    texts = {"reasoning": lambda item: item["content"], "message": lambda item: item["content"]}
    return [
        (
            item["type"],
            "".join(part["text"] for part in texts[item["type"]](item)) if item["type"] in texts else item["arguments"],
        )
        for item in response["output"]
    ]


def read(data):
    """What the official client makes of a stream: its items as they grew, and the last response."""

    def answer(request):
        return httpx.Response(200, content=data, headers={"content-type": "text/event-stream"})

    grown = {}
    with (
        httpx.Client(transport=httpx.MockTransport(answer)) as http,
        openai.OpenAI(base_url="http://test/v1", api_key="k", http_client=http, max_retries=0) as client,
        client.responses.stream(model="m", input="Hi") as stream,
    ):
        for event in stream:
            if event.type.endswith(".delta"):
                grown[event.output_index] = grown.get(event.output_index, "") + event.delta
        last = stream.get_final_response().model_dump()
    return [grown.get(place, "") for place in range(len(last["output"]))], last


@pytest.mark.parametrize("size", [1, 10**6])
@pytest.mark.parametrize("name", LEAKING)
def test_the_official_client_reads_what_the_model_meant(name, size, told_as_response):
    said, expected = LEAKING[name]
    pieces = told_as_response(said, size, usage(said))
    assert find_failures(exchange(b"".join(pieces)), REPAIRS)
    one = actor()
    data = run(one, pieces)
    assert is_right(data)
    assert not find_failures(exchange(data))
    grown, last = read(data)
    assert items(last) == expected
    assert grown == [text for _, text in expected]
    assert one.actions.repair_counts
    assert not one.actions.unrepaired_reasons
    calls = [item for item in last["output"] if item["type"] == "function_call"]
    assert {call["name"] for call in calls} <= {"get_weather"}
    assert not any("<|" in call["call_id"] for call in calls)
    has_thought = any(kind == "reasoning" for kind, _ in expected)
    assert bool(last["usage"]["output_tokens_details"]["reasoning_tokens"]) == has_thought


@pytest.mark.parametrize("name", ["two calls and more", "two items"])
def test_the_same_at_every_split_of_the_bytes(name, told_as_response):
    data = b"".join(told_as_response(LEAKING[name][0], 7))
    expected = run(actor(), [data])
    for split in range(1, len(data), 397):
        assert run(actor(), [data[:split], data[split:]]) == expected, split
    assert run(actor(), [data[place : place + 50] for place in range(0, len(data), 50)]) == expected


def test_every_repaired_example_is_read_by_the_official_client(shown, tellings):
    read_, left = 0, 0
    for one in shown[::2]:
        x = tellings["response"](one.x) if one.check in REPAIRS and one.outcome == "fail" else None
        if x is None or not find_failures(x, REPAIRS):
            continue
        told = StreamRepairer(
            x.request, x.response, x.api, REPAIRING, fallback=Action.OBSERVE, request_id="r", limit=1 << 24
        )
        data = run(told, [chunk.data for chunk in x.response.chunks])
        if not told.actions.repair_counts:
            left += 1
            continue
        assert is_right(data), one.id
        if b"event: response.completed" in data:  # of another end the client's own helper makes no final response
            grown, last = read(data)
            assert grown == [said for _, said in items(last)], one.id
            read_ += 1
    assert read_ > 12 > left


def test_what_holds_no_leak_comes_out_as_it_came_at_every_split(shown):
    for one in shown:
        if one.x.api != "responses" or one.x.events is None or find_failures(one.x, REPAIRS):
            continue
        body = one.x.response.body
        cuts = [len(body), 701, 97]
        for size in cuts:
            pieces = [body[place : place + size] for place in range(0, len(body), size)]
            response = Response(status=200, chunks=(), headers=one.x.response.headers)
            told = StreamRepairer(
                one.x.request, response, "responses", REPAIRING, fallback=Action.OBSERVE, request_id="r", limit=1 << 24
            )
            assert run(told, pieces) == body, one.id


def test_an_announcement_waits_for_its_text_and_no_longer(told_as_response):
    pieces = told_as_response([("reasoning", "We greet.", None), ("message", "Hello there!", None)], 5)
    one = actor()
    out = [b"".join(one.feed(piece)) for piece in pieces]
    assert b"".join(out) == b"".join(pieces)
    waited = [
        json.loads(piece.split(b"data: ")[1])["type"] for piece, told in zip(pieces, out, strict=True) if not told
    ]
    assert waited == ["response.output_item.added", "response.content_part.added"] * 2


def test_numbers_and_indices_go_on_behind_what_was_made(told_as_response):
    data = run(actor(), told_as_response(LEAKING["two items"][0], 5))
    told = events(data)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    added = [event for event in told if event["type"] == "response.output_item.added"]
    assert [event["output_index"] for event in added] == [0, 1, 2, 3]
    assert len({event["item"]["id"] for event in added}) == 4


def test_a_stream_without_numbers_and_indices_gets_the_indices_that_clients_need():
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
    done = {**item, "content": [{"type": "output_text", "text": MARKED}], "status": "completed"}
    told = [
        {"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}},
        {"type": "response.output_item.added", "item": item},
        {"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "output_text", "text": ""}},
        {"type": "response.output_text.delta", "item_id": "msg_1", "delta": MARKED},
        {"type": "response.output_item.done", "item": done},
        {
            "type": "response.completed",
            "response": {"id": "resp_1", "object": "response", "status": "completed", "output": [done]},
        },
    ]
    data = run(actor(), [b"data: " + json.dumps(event).encode() + b"\n\n" for event in told])
    last = events(data)[-1]
    assert items(last["response"]) == [("reasoning", "Hm."), ("message", "Hi there")]
    assert {"responses.events_are_numbered", "responses.response_has_its_members"} >= {
        one.check for one in run_checks(exchange(data), FORM) if one.outcome is Outcome.FAIL
    }
    assert "sequence_number" not in last


def test_an_item_that_was_announced_without_an_index_goes_on_without():
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "status": "in_progress"}
    said = "Hi there<|start|>assistant<|channel|>final<|message|>You"
    done = {**item, "content": [{"type": "output_text", "text": said}], "status": "completed"}
    delta = {"type": "response.output_text.delta", "item_id": "msg_1"}
    told = [
        {"type": "response.created", "response": {"id": "resp_1", "object": "response", "status": "in_progress"}},
        {"type": "response.output_item.added", "item": item},
        {"type": "response.content_part.added", "item_id": "msg_1", "part": {"type": "output_text", "text": ""}},
        *({**delta, "delta": said[place : place + 4]} for place in range(0, len(said), 4)),
        {"type": "response.output_item.done", "item": done},
        {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": [done]}},
    ]
    data = run(actor(), [b"data: " + json.dumps(event).encode() + b"\n\n" for event in told])
    assert items(events(data)[-1]["response"]) == [("message", "Hi thereYou")]
    assert not find_failures(exchange(data), ["responses.events_follow_the_grammar", "responses.texts_are_told_alike"])


def test_the_text_of_a_last_response_alone_is_told_with_all_its_events():
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed"}
    output = [{**item, "content": [{"type": "output_text", "text": MARKED, "annotations": []}]}]
    told = [
        {
            "type": "response.created",
            "sequence_number": 0,
            "response": {**response, "output": [], "status": "in_progress"},
        },
        {"type": "response.completed", "sequence_number": 1, "response": {**response, "output": output}},
    ]
    data = run(actor(), [b"data: " + json.dumps(event).encode() + b"\n\n" for event in told])
    assert is_right(data)
    grown, last = read(data)
    assert grown == ["Hm.", "Hi there"]
    assert items(last) == [("reasoning", "Hm."), ("message", "Hi there")]


@pytest.mark.parametrize("size", [5, 10**6])
def test_a_call_of_no_function_is_left_or_blocked_as_set(told_as_response, size):
    said = CALL.replace("get_weather", "get_time")
    pieces = told_as_response([("message", said, None)], size)
    one = actor()
    assert items(events(run(one, pieces))[-1]["response"]) == [("message", said)]
    assert "does not declare" in one.actions.unrepaired_reasons[LEAK]
    one = actor(fallback=Action.BLOCK)
    last = events(run(one, pieces))[-1]
    assert (last["type"], one.is_terminated) == ("error", True)
    assert "get_time" not in json.dumps(last)


def test_a_leak_that_is_blocked_ends_the_stream_with_the_next_number(told_as_response):
    one = actor({LEAK: Action.BLOCK})
    told = events(run(one, told_as_response([("message", "Hello. " + MARKED, None)], 4)))
    assert (told[-1]["type"], one.actions.blocked_checks) == ("error", (LEAK,))
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


@pytest.mark.parametrize(
    "said", ["Hm. Paris.<|end|><|start|>assistant<|channel|>final<|message|>Hi", "Hm. Paris.<|end|><|start|>assistant"]
)
@pytest.mark.parametrize("beside", [None, "Thinks."], ids=["the same", "another text"])
def test_a_summary_beside_a_reasoning_that_leaks_is_no_answer(said, beside):
    summary = beside or said
    item = {"id": "rs_1", "type": "reasoning", "status": "in_progress", "summary": [], "content": []}
    place, part = {"item_id": "rs_1", "output_index": 0}, {"type": "reasoning_text", "text": ""}
    short = {"type": "summary_text", "text": ""}
    done = {**item, "status": "completed", "content": [{**part, "text": said}], "summary": [{**short, "text": summary}]}
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "m",
        "output": [],
        "status": "in_progress",
    }
    text, index = "response.reasoning_text", {**place, "content_index": 0}
    name, at = "response.reasoning_summary", {**place, "summary_index": 0}
    told = [
        {"type": "response.created", "response": response},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.content_part.added", **index, "part": part},
        *({"type": f"{text}.delta", **index, "delta": said[start : start + 6]} for start in range(0, len(said), 6)),
        {"type": f"{text}.done", **index, "text": said},
        {"type": "response.content_part.done", **index, "part": {**part, "text": said}},
        {"type": f"{name}_part.added", **at, "part": short},
        *(
            {"type": f"{name}_text.delta", **at, "delta": summary[start : start + 6]}
            for start in range(0, len(summary), 6)
        ),
        {"type": f"{name}_text.done", **at, "text": summary},
        {"type": f"{name}_part.done", **at, "part": {**short, "text": summary}},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {**response, "status": "completed", "output": [done]}},
    ]
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(told)]
    data = run(actor(), [b"data: " + json.dumps(event).encode() + b"\n\n" for event in numbered])
    expected = [("reasoning", "Hm. Paris."), ("message", "Hi")][: 1 + said.endswith("Hi")]
    assert items(events(data)[-1]["response"]) == expected
    assert "<|" not in data.decode()
    assert not find_failures(exchange(data), ["responses.events_follow_the_grammar", "responses.texts_are_told_alike"])


PREAMBLE = "I look it up. Wait for me, please.<|end|>"


@pytest.mark.parametrize("action", [Action.REPAIR, Action.BLOCK])
def test_an_end_of_one_message_that_is_none_of_the_answer_is_not_acted_on(told_as_response, action):
    pieces = told_as_response([("message", PREAMBLE, None), ("reasoning", "Hm.", None), ("message", "Here.", None)], 5)
    one = actor(dict.fromkeys(REPAIRS, action))
    assert not find_failures(exchange(b"".join(pieces)), [LEAK])
    assert run(one, pieces) == b"".join(pieces)
    assert not one.actions.repair_counts
    assert not one.actions.blocked_checks


def test_the_end_of_a_message_that_only_a_call_follows_is_cut(told_as_response):
    one = actor()
    data = run(one, told_as_response([("message", PREAMBLE, None), ("function_call", "{}", PARIS)], 5))
    assert is_right(data)
    assert items(events(data)[-1]["response"]) == [("message", PREAMBLE[:-7]), ("function_call", "{}")]
    assert one.actions.repair_counts == {LEAK: 1}


def test_what_is_blocked_at_its_very_end_has_the_number_of_what_is_not_told(told_as_response):
    pieces = told_as_response([("reasoning", "Hm.", None), ("message", PREAMBLE, None)], 5)
    counts = usage([])
    counts |= {"output_tokens": 300, "total_tokens": 309}
    last = json.loads(pieces[-1].split(b"data: ")[1])
    last["response"]["usage"] = counts
    del last["response"]["output"]
    pieces[-1] = b"event: response.completed\ndata: " + json.dumps(last).encode() + b"\n\n"
    told = events(run(actor(dict.fromkeys(REPAIRS, Action.BLOCK)), pieces))
    assert told[-1]["type"] == "error"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


def test_a_server_that_breaks_off_within_a_leak(told_as_response):
    pieces = told_as_response([("message", MARKED, None)], 4)
    one = actor()
    data = b"".join([*(told for piece in pieces[:-8] for told in one.feed(piece)), *one.abort()])
    told = events(data)
    assert told[-1]["type"] == "error"
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert "<|" not in data.decode()


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.delta"},
        {"type": "response.output_text.delta", "delta": MARKED, "output_index": "x"},
        {"type": "response.output_item.added", "item": 1},
        {"type": "response.output_item.done", "output_index": 3, "item": {"type": "message", "content": [1, None]}},
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "function_call", "name": 1}},
        {"type": "response.content_part.added", "output_index": -1, "part": []},
        {"type": "response.completed", "response": {"output": [1, {"type": "message", "content": MARKED}]}},
        {"type": "response.completed"},
        {"type": 7, "output_index": 0, "delta": MARKED},
    ],
)
def test_values_of_any_shape_pass(event):
    data = b"data: " + json.dumps(event).encode() + b"\n\n"
    one = actor()
    out = run(one, [data, data])
    assert out == data * 2 or one.actions
