"""Streams of lines (Ollama) that are told anew: done once and at the end, however the server cut what it said, and whether its last line ends or not."""

import json

import ollama
import pytest

from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer

LEAK = "channels.no_marker_leak"
WEATHER = {"type": "function", "function": {"name": "get_weather"}}
THOUGHT = "We greet.<|end|><|start|>assistant<|channel|>final<|message|>"
CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
ENDING = {"done": True, "done_reason": "stop", "prompt_eval_count": 9, "eval_count": 30}
ASKED = {"model": "m", "stream": True}


def actor(action=Action.REPAIR, *, generate=False):
    body = {**ASKED, "prompt": "Hi"} if generate else {**ASKED, "messages": [{"role": "user", "content": "Hi"}]}
    path, api = ("/api/generate", "ollama-generate") if generate else ("/api/chat", "ollama")
    request = Request(path=path, body=json.dumps(body if generate else {**body, "tools": [WEATHER]}).encode())
    response = Response(status=200, chunks=(), headers={"content-type": "application/x-ndjson"})
    actions = dict.fromkeys(REPAIRS, action)
    return StreamRepairer(request, response, api, actions, fallback=Action.OBSERVE, request_id="r-1", limit=1 << 24)


def line(said, *, generate=False, **ending):
    head = {"model": "m", "created_at": "2026-01-31T12:00:00Z", "done": False, **ending}
    body = (
        {**head, "response": "", **said}
        if generate
        else {**head, "message": {"role": "assistant", "content": "", **said}}
    )
    return json.dumps(body).encode() + b"\n"


def run(one, pieces):
    return b"".join(told for piece in pieces for told in one.feed(piece)) + b"".join(one.close())


def read(data, *, generate=False):
    """What the official client reads: the thinking, the content, the calls; and which lines are done."""
    kind = ollama.GenerateResponse if generate else ollama.ChatResponse
    told = [kind(**json.loads(one)) for one in data.split(b"\n") if one]
    said = told if generate else [one.message for one in told]
    content = "".join((one.response if generate else one.content) or "" for one in said)
    calls = [call.function.arguments for one in said for call in getattr(one, "tool_calls", None) or ()]
    return "".join(one.thinking or "" for one in said), content, calls, [one.done for one in told]


@pytest.mark.parametrize("generate", [False, True], ids=["chat", "generate"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""], ids=["a line feed", "carriage return and line feed", "no end"])
def test_a_last_line_that_says_more_than_one_thing_is_done_once(generate, end):
    pieces = [
        line({"thinking": THOUGHT[:15]}, generate=generate),
        line({"thinking": f"{THOUGHT[15:]}Hello!"}, generate=generate, **ENDING).rstrip() + end,
    ]
    one = actor(generate=generate)
    data = run(one, pieces)
    thinking, content, _, done = read(data, generate=generate)
    assert (thinking, content) == ("We greet.", "Hello!")
    assert done == [False] * (len(done) - 1) + [True]
    assert json.loads(data.split(b"\n")[-1 if not end else -2])["eval_count"] == ENDING["eval_count"]
    assert data.endswith(b"\n") == bool(end)
    assert (one.actions.repair_counts, one.actions.unrepaired_reasons) == ({LEAK: 1}, {})


@pytest.mark.parametrize("action", [Action.REPAIR, Action.BLOCK])
def test_a_last_line_that_does_not_end_passes_as_it_came(action):
    pieces = [line({"content": "Hello"}), line({}, **ENDING).rstrip()]
    one = actor(action)
    assert run(one, pieces) == b"".join(pieces)
    assert not one.actions.unrepaired_reasons
    assert not one.actions.blocked_checks


@pytest.mark.parametrize("action", [Action.REPAIR, Action.BLOCK])
def test_half_a_line_at_the_end_is_no_line(action):
    half = line({"thinking": "We"})[:-20].rpartition(b"}")[0] + b"}"
    one = actor(action)
    told = run(one, [line({"thinking": "Hm."}), half])
    lines = [one for one in told.split(b"\n") if one]
    assert [json.loads(one) for one in lines[: len(lines) - (not one.actions.blocked_checks)]]
    assert one.is_terminated or told.endswith(half)


def test_half_a_marker_at_the_end_of_a_leak_is_left_out():
    one = actor()
    thinking, content, _, _ = read(run(one, [line({"thinking": f"{THOUGHT}Hello! 3 <<|en"})]))
    assert (thinking, content) == ("We greet.", "Hello! 3 <")


def test_a_last_line_that_does_not_end_is_blocked_where_it_leaks():
    pieces = [line({"content": "Hello."}), line({"content": f"{CALL}{{}}<|call|>"}, **ENDING).rstrip()]
    told = [json.loads(one) for one in run(actor(Action.BLOCK), pieces).split(b"\n") if one]
    assert [("error" in one) for one in told] == [False, True]


ARGUMENTS = '{"city": "Paris"}'


@pytest.mark.parametrize("ending", [ENDING, None], ids=["done", "cut"])
def test_arguments_without_a_place_that_come_after_a_repair_are_content_and_named(ending):
    said = f"{CALL}{ARGUMENTS}<|call|><|start|>assistant{CALL}no object<|call|>"
    pieces = [line({"content": said[place : place + 7]}) for place in range(0, len(said), 7)]
    one = actor()
    thinking, content, calls, _ = read(run(one, [*pieces, *([line({}, **ending)] if ending else [])]))
    assert (thinking, content, calls) == ("", "no object", [{"city": "Paris"}])
    assert "not a JSON object" in one.actions.unrepaired_reasons[LEAK]


def test_a_server_that_breaks_off_within_a_call_ends_in_an_error():
    said = f"{CALL}{ARGUMENTS}"
    one = actor()
    data = b"".join(told for place in range(0, 90, 6) for told in one.feed(line({"content": said[place : place + 6]})))
    last = json.loads(b"".join((data, *one.abort())).rstrip().split(b"\n")[-1])
    assert "broke off" in last["error"]
