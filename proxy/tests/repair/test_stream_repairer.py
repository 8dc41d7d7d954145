"""Streams that are acted on: at every split, within bounds, held no longer than needed, and ended in the words of their API."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.apis.registry import APIS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer, repair_answer

REPAIRING = dict.fromkeys(REPAIRS, Action.REPAIR)
LEAK = "channels.no_marker_leak"
WEATHER = {"type": "function", "function": {"name": "get_weather"}}


def asked(body=None):
    told = body or {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [WEATHER], "stream": True}
    return Request(path="/v1/chat/completions", body=json.dumps(told).encode())


def actor(actions=None, *, api="chat", fallback=Action.OBSERVE, limit=1 << 24, kind="text/event-stream", **more):
    response = Response(status=200, chunks=(), headers={"content-type": kind})
    actions = REPAIRING if actions is None else actions
    return StreamRepairer(asked(), response, api, actions, fallback=fallback, request_id="r-1", limit=limit, **more)


def event(delta, finish=None, index=0):
    body = {
        "id": "c",
        "object": "chat.completion.chunk",
        "choices": [{"index": index, "delta": delta, "finish_reason": finish}],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


ROLE, STOP, DONE = event({"role": "assistant", "content": ""}), event({}, "stop"), b"data: [DONE]\n\n"


def stream(*texts, member="content"):
    return [ROLE, *(event({member: text}) for text in texts), STOP, DONE]


def run(one, pieces):
    out = [b"".join(one.feed(piece)) for piece in pieces]
    return out, b"".join(one.close())


def said(data):
    """What the client reads: reasoning, content, calls, finish reason."""
    told, calls, finish = {"content": "", "reasoning": ""}, {}, None
    for line in data.decode().split("\n\n"):
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:])["choices"]:
            delta = choice["delta"]
            for name in told:
                told[name] += delta.get(name) or ""
            for call in delta.get("tool_calls", ()):
                held = calls.setdefault(call["index"], ["", ""])
                held[0] += call["function"].get("name", "")
                held[1] += call["function"].get("arguments", "")
            finish = choice["finish_reason"] or finish
    return told["reasoning"], told["content"], list(map(tuple, calls.values())), finish


LEAKING = {
    "glued": (("analysis", "We greet", ".", "assistant", "final", "Hello", "!"), ("We greet.", "Hello!", [], "stop")),
    "glued, behind a text": (
        ("Sure", ", ok.", "assistant", "analysis", "We greet", ".", "assistant", "final", "Hello", "!"),
        ("We greet.", "Sure, ok.Hello!", [], "stop"),
    ),
    "markers": (
        (
            "<|chan",
            "nel|>analysis<|mess",
            "age|>Hm.<|end|><|start|>assistant<|channel|>fi",
            "nal<|message|>Hi",
            " there",
        ),
        ("Hm.", "Hi there", [], "stop"),
    ),
    "a call": (
        ("I look.", "assistant", "comment", "ary to=", "functions.get_weather json", '{"city":', '"Paris"}'),
        ("", "I look.", [("get_weather", '{"city":"Paris"}')], "tool_calls"),
    ),
    "tags": (("<th", "ink>Hm.</thi", "nk>\n", "\nHi"), ("Hm.", "Hi", [], "stop")),
    "the end": (("Hello!", "<|ret", "urn|>"), ("", "Hello!", [], "stop")),
}


@pytest.mark.parametrize(("texts", "expected"), LEAKING.values(), ids=LEAKING)
def test_a_leak_is_told_anew_at_every_split_of_the_bytes(texts, expected):
    data = b"".join(stream(*texts))
    whole, end = run(actor(), [data])
    assert said(whole[0] + end) == expected
    for split in range(1, len(data), 17):
        out, end = run(actor(), [data[:split], data[split:]])
        assert b"".join(out) + end == whole[0], split
    out, end = run(actor(), [bytes([byte]) for byte in data])
    assert b"".join(out) + end == whole[0]


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_same_at_random_splits(data):
    texts, expected = data.draw(st.sampled_from(list(LEAKING.values())))
    stream_ = b"".join(stream(*texts))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream_)), max_size=8)))
    pieces = [stream_[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream_)], strict=True)]
    out, end = run(actor(), pieces)
    assert said(b"".join(out) + end) == expected


PLAIN = [
    "The",
    "answer:",
    "42%",
    "of",
    "a",
    "cat's",
    "meal.",
    "It",
    "is",
    "(finally)",
    "analysed!",
    "Assistants",
    "agree;",
    "3",
    ">",
    "2.",
]


@pytest.mark.parametrize(
    "text", [[" " + word for word in PLAIN], [*"The cat analyses it. "], ["Hello,", " assistant", " says"]]
)
def test_what_holds_no_needle_goes_out_in_the_feed_that_completed_it(text):
    pieces = stream("We.", *text)
    out, end = run(actor(), pieces)
    assert out == pieces
    assert end == b""


def test_what_may_become_a_marker_waits_and_goes_out_as_it_came():
    pieces = stream("a ", "<", "|e", "ntity", " b", "<|end|>", "<|", "x")
    out, end = run(actor(), pieces)
    assert b"".join(out) + end == b"".join(pieces)
    assert [bool(one) for one in out] == [True, True, False, False, True, True, False, False, True, True, True]


def test_markers_in_code_are_no_leak_once_the_code_is_closed():
    pieces = stream("Use `", "<|channel|>final<|message|>", "` here", " and there")
    out, end = run(actor(), pieces)
    assert b"".join(out) + end == b"".join(pieces)
    assert out[2] == b""
    assert out[3]


def test_what_is_held_is_bounded_and_goes_out_as_it_came():
    pieces = stream("analysisWe", *[" need" * 2000] * 120)
    one = actor()
    out, end = run(one, pieces)
    assert b"".join(out) + end == b"".join(pieces)
    assert "no verdict within" in one.actions.unrepaired_reasons[LEAK]
    held = longest = 0
    for piece, told in zip(pieces, out, strict=True):
        held += len(piece) - len(told)
        longest = max(longest, held)
    assert longest < 1_100_000


def test_a_stream_beyond_the_limit_passes_as_it_comes():
    pieces = stream("Hi", *["x" * 100] * 50)
    one = actor(limit=2000)
    out, end = run(one, pieces)
    assert out == pieces
    assert end == b""
    assert "larger than" in one.actions.unrepaired_reasons[LEAK]


def test_an_event_beyond_the_limit_passes_as_it_comes():
    one = actor(limit=200)
    data = b"data: " + b"x" * 500
    assert one.feed(data[:100]) == []
    assert b"".join([*one.feed(data[100:]), *one.feed(b"y\n\n"), *one.close()]) == data + b"y\n\n"


def test_many_needles_cost_no_more_than_a_few_readings():
    one = actor()
    for piece in stream(*["Use ", "<|", "end", "|>", " and "] * 150):
        one.feed(piece)
    assert one._judge._read < 256 * 1024 + 4 * one._size + 100_000


@pytest.mark.parametrize("api", sorted(APIS))
def test_a_block_ends_a_stream_in_the_words_of_its_api_and_quotes_nothing(api):
    is_lines = api.startswith("ollama")
    kind = "application/x-ndjson" if is_lines else "text/event-stream"
    one = actor({"errors.answer_is_json": Action.BLOCK, "streaming.ends_with_done": Action.BLOCK}, api=api, kind=kind)
    out = one._block(["a.check"])
    assert one.is_terminated
    assert one.actions.blocked_checks == ("a.check",)
    assert one.feed(b"data: secret\n\n") == one.close() == one.abort() == []
    (told,) = out
    assert b"a.check" in told
    assert b"r-1" in told
    if is_lines:
        assert json.loads(told)["error"]
    elif api in ("chat", "completions"):
        first, last, rest = told.split(b"\n\n")
        assert json.loads(first.removeprefix(b"data: "))["error"]["message"]
        assert (last, rest) == (b"data: [DONE]", b"")


def test_a_leak_that_is_blocked_ends_the_stream_at_once():
    one = actor({LEAK: Action.BLOCK})
    out, _ = run(one, stream("Hello.", "<|end|><|start|>assistant<|channel|>", "final<|message|>secret", " more"))
    told = b"".join(out)
    assert b"Hello." in told
    assert b"secret" not in told
    assert told.endswith(b"data: [DONE]\n\n")
    assert one.actions.blocked_checks == (LEAK,)


def test_what_only_the_end_shows_is_blocked_in_place_of_the_end():
    one = actor({"streaming.one_finish_reason": Action.BLOCK})
    out, end = run(one, [ROLE, event({"content": "Hi"}), DONE])
    assert out[:2] == [ROLE, event({"content": "Hi"})]
    assert b"streaming.one_finish_reason" in out[2] + end
    assert one.is_terminated


def test_a_server_that_breaks_off_ends_in_an_error_after_what_was_held():
    one = actor()
    out = b"".join([*one.feed(ROLE + event({"content": "Hi <|"})), *one.feed(b'data: {"half'), *one.abort()])
    assert out.startswith(ROLE + event({"content": "Hi <|"}) + b'data: {"error"')
    assert b"half" not in out


def test_the_name_of_a_call_is_cleaned_and_its_arguments_end_with_their_json():
    call = {
        "index": 0,
        "id": "c1",
        "type": "function",
        "function": {"name": "functions.get_weather<|channel|>commentary"},
    }
    pieces = [ROLE, event({"tool_calls": [call]})]
    pieces += [
        event({"tool_calls": [{"index": 0, "function": {"arguments": one}}]}) for one in ('{"a":', "1}", "<|ca", "ll|>")
    ]
    out, end = run(actor(), [*pieces, event({}, "stop"), DONE])
    assert said(b"".join(out) + end) == ("", "", [("get_weather", '{"a":1}')], "tool_calls")


def test_the_reasoning_comes_under_the_name_that_the_client_expects():
    pieces = stream("We greet.", member="reasoning") + stream("Hello!")
    out, end = run(actor({}, reasoning_field="reasoning_content"), pieces)
    assert b"".join(out) + end == b"".join(pieces).replace(b'"reasoning"', b'"reasoning_content"').replace(
        event({"reasoning_content": "We greet."}), renamed_event()
    )


def renamed_event():
    return (
        event({"reasoning_content": "We greet."}).replace(b": ", b":").replace(b", ", b",").replace(b"data:", b"data: ")
    )


def test_garbage_passes_as_it_came():
    draw = random.Random(7)
    bits = [
        b"data: ",
        b"\n",
        b"\r\n",
        b"{}",
        b"[]",
        b"null",
        b'{"choices":',
        b'[{"delta":{"content":"<|"}}]}',
        b"\xff\x00",
        b"[DONE]",
        b"1e999",
    ]
    for api, kind in (
        ("chat", "text/event-stream"),
        ("ollama", "application/x-ndjson"),
        ("responses", "text/event-stream"),
    ):
        for actions in (REPAIRING, dict.fromkeys(REPAIRS, Action.BLOCK)):
            for _ in range(60):
                data = b"".join(draw.choices(bits, k=30))
                one = actor(actions, api=api, kind=kind)
                out, end = run(one, [data[:50], data[50:]])
                assert b"".join(out) + end == data or one.actions


@pytest.mark.parametrize(
    "value",
    [
        [],
        [1],
        [None],
        ["x"],
        [{}],
        [{"delta": 1}],
        [{"delta": {"tool_calls": [1, None, {"function": 1}], "content": [1]}}],
        {},
    ],
)
def test_values_of_any_shape_pass(value):
    data = b"data: " + json.dumps({"choices": value}).encode() + b"\n\n"
    out, end = run(actor(), [data, DONE])
    assert b"".join(out) + end == data + DONE


BEHIND = {
    "a seam behind a marker": (
        "<|channel|>commentary<|message|>Look.<|end|>assistantfinalHello!",
        ("", "Look.Hello!", [], "stop"),
    ),
    "tags behind a marker": (
        "<think>Hm.</think>Hi.<|end|><reasoning>Well.</reasoning>Hello!",
        ("Hm.Well.", "Hi.Hello!", [], "stop"),
    ),
    "tags behind a header": ("<|channel|>final<|message|><think>Hm.</think>Hello!", ("Hm.", "Hello!", [], "stop")),
}


@pytest.mark.parametrize("size", [1, 3, 10**6])
@pytest.mark.parametrize("name", BEHIND)
def test_a_leak_of_another_kind_behind_one_is_told_anew_too(name, size):
    text, expected = BEHIND[name]
    one = actor()
    out, end = run(one, stream(*(text[place : place + size] for place in range(0, len(text), size))))
    assert said(b"".join(out) + end) == expected
    assert one.actions.repair_counts
    assert not one.actions.unrepaired_reasons


UNMARKED = {
    "an answer": (
        "<|start|>assistant<|channel|>final The whole answer.<|return|>",
        ("", "The whole answer.", [], "stop"),
    ),
    "a thought": (
        "<|channel|>analysis Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi",
        ("Hm.", "Hi", [], "stop"),
    ),
    "a call": (
        '<|channel|>commentary to=functions.get_weather <|constrain|>json{"city":"Paris"}<|call|>',
        ("", "", [("get_weather", '{"city":"Paris"}')], "tool_calls"),
    ),
    "a long answer": ("<|channel|>final " + "All of it. " * 30 + "<|return|>", ("", "All of it. " * 30, [], "stop")),
}


@pytest.mark.parametrize("size", [2, 10**6])
@pytest.mark.parametrize("name", UNMARKED)
def test_a_message_whose_marker_is_missing_is_not_lost(name, size):
    text, expected = UNMARKED[name]
    one = actor()
    out, end = run(one, stream(*(text[place : place + size] for place in range(0, len(text), size))))
    assert said(b"".join(out) + end) == expected
    assert one.actions.repair_counts


NAMELESS = 'assistantcode{"path":"/tmp"}'


@pytest.mark.parametrize("size", [1, 7, 10**6])
def test_a_leak_behind_one_that_cannot_be_repaired_is_named_or_blocked(size):
    text = "analysisWe greet.assistantfinalHello!" + NAMELESS
    pieces = stream(*(text[place : place + size] for place in range(0, len(text), size)))
    one = actor()
    out, end = run(one, pieces)
    assert one.actions.unrepaired_reasons
    told = said(b"".join(out) + end)[1]
    assert (
        told == text if size > 100 else told == "Hello!" + NAMELESS
    )  # in one piece there is nothing to tell without it
    one = actor(fallback=Action.BLOCK)
    run(one, pieces)
    assert one.actions.blocked_checks == ("channels.no_channel_words",)


def test_a_call_without_a_name_at_the_start_is_named():
    one = actor()
    pieces = stream(NAMELESS)
    out, end = run(one, pieces)
    assert b"".join(out) + end == b"".join(pieces)
    assert "no repair" in one.actions.unrepaired_reasons["channels.no_channel_words"]


# TGI, whose chunks are those of Chat Completions and whose finish reasons are its own


def tgi(*texts):
    end = event({"role": "assistant", "content": ""}, "eos_token")
    return [event({"role": "assistant", "content": text}) for text in texts] + [end, DONE]


@pytest.mark.parametrize("name", ["glued", "markers", "tags", "the end"])
def test_streams_of_tgi_are_told_anew(name):
    texts, (reasoning, content, _, _) = LEAKING[name]
    one = actor(api="tgi")
    out, end = run(one, tgi(*texts))
    assert said(b"".join(out) + end) == (reasoning, content, [], "eos_token")
    assert one.actions.repair_counts
    assert not one.actions.unrepaired_reasons


def test_a_call_in_a_stream_of_tgi_becomes_one():
    texts, (_, content, calls, _) = LEAKING["a call"]
    out, end = run(actor(api="tgi"), tgi(*texts))
    assert said(b"".join(out) + end) == ("", content, calls, "eos_token")


def test_a_stream_of_tgi_that_holds_no_leak_comes_out_as_it_came():
    pieces = tgi("Hello", " there", "! 2 < 3")
    out, end = run(actor(api="tgi"), pieces)
    assert out == pieces
    assert end == b""


def whole_of_tgi(text, **more):
    message = {"role": "assistant", "content": text}
    body = {
        "id": "",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "eos_token"}],
    }
    chunk = Chunk(arrival_time=0.1, data=json.dumps({**body, **more}).encode())
    return Exchange(
        id="x",
        request=asked(),
        response=Response(status=200, chunks=(chunk,), headers={"content-type": "application/json"}),
        api="tgi",
    )


@pytest.mark.parametrize("name", ["glued", "markers", "tags", "the end", "a call"])
def test_whole_answers_of_tgi_are_told_anew(name):
    texts, (reasoning, content, calls, _) = LEAKING[name]
    told = repair_answer(whole_of_tgi("".join(texts)), REPAIRING, fallback=Action.OBSERVE)
    choice = json.loads(told.body)["choices"][0]
    assert (choice["message"].get("reasoning", ""), choice["message"]["content"] or "") == (reasoning, content)
    called = [call["function"] for call in choice["message"].get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in called] == calls
    assert choice["finish_reason"] == "eos_token"
    assert told.actions.repair_counts
