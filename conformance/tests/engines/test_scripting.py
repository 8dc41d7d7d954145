import asyncio
import json
from dataclasses import replace

import pytest

from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.scripting import (
    Scripting,
    ScriptUnsupportedError,
    as_chat_completions,
    drop_refuted_script,
    drop_unplayed_script,
    drop_unproven_stream_scripts,
    is_unproven,
    mark_unscripted,
    with_forced_prefix,
    with_script,
)
from harmony_conformance.engines.teleprompter.script import simulate_output, write_script
from harmony_conformance.engines.teleprompter_calibration import CalibrationTarget, calibrate
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import RenderedPrompt
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import encode, encode_with_special_tokens

SCRIPT = tuple(encode_with_special_tokens("<|channel|>final<|message|>Hello!<|return|>"))
BESIDE = tuple(encode_with_special_tokens("<|channel|>final<|message|>Bye!<|return|>"))
WAY = Scripting(method=ScriptMethod.TELEPROMPTER, suffix_tokens={"user": 3, "tool": 4})
END, END_QUOTED = write_script(SCRIPT, 3), write_script(SCRIPT, 4)
PARTS = [{"type": "text", "text": "What "}, {"type": "text", "text": "now?"}]

CARRIED = {
    "the text of a user": ([{"role": "user", "content": "Hi"}], [{"role": "user", "content": "Hi" + END}]),
    "the last part of a user's text": (
        [{"role": "user", "content": PARTS}],
        [{"role": "user", "content": [PARTS[0], {"type": "text", "text": "now?" + END}]}],
    ),
    "a function's result, by its own trailer": (
        [{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "a", "content": "5"}],
        [{"role": "user", "content": "Hi"}, {"role": "tool", "tool_call_id": "a", "content": "5" + END_QUOTED}],
    ),
}
NOT_CARRIED = {
    "a text that the model is to go on with": ([{"role": "assistant", "content": "So,"}], "role assistant"),
    "instructions at the end": ([{"role": "system", "content": "Be kind."}], "role system"),
    "no message": ([], "role missing"),
    "no list of messages": ("Hi", "role missing"),
    "a picture at the end": (
        [{"role": "user", "content": [*PARTS, {"type": "image_url", "image_url": {"url": "x"}}]}],
        "the content of its last message does not end with text",
    ),
    "no content": ([{"role": "user", "content": None}], "the content of its last message does not end with text"),
}


@pytest.mark.parametrize("what", CARRIED)
def test_a_script_stands_at_the_end_of(what):
    before, after = CARRIED[what]
    assert with_script({"model": "m", "messages": before}, SCRIPT, WAY) == {"model": "m", "messages": after}


@pytest.mark.parametrize("what", NOT_CARRIED)
def test_a_script_is_not_carried_by(what):
    messages, reason = NOT_CARRIED[what]
    with pytest.raises(ScriptUnsupportedError, match=reason):
        with_script({"messages": messages}, SCRIPT, WAY)


def test_a_script_that_is_too_long_is_not_carried():
    with pytest.raises(ScriptUnsupportedError, match="expected at most 254 tokens for the teleprompter, got 300"):
        with_script({"messages": [{"role": "user", "content": "Hi"}]}, [200002] * 300, WAY)


def test_a_script_is_not_carried_by_a_text_whose_quoting_would_change_it():
    call = encode_with_special_tokens(
        '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>'
    )
    result = {"role": "tool", "tool_call_id": "a", "content": "5"}
    with pytest.raises(ScriptUnsupportedError, match="\\(role tool\\) is quoted as JSON, which changes the script"):
        with_script({"messages": [result]}, call, WAY)
    plain = with_script(
        {"messages": [result]}, call, Scripting(method=ScriptMethod.TELEPROMPTER, suffix_tokens={"tool": 3})
    )
    assert plain["messages"][-1]["content"].startswith("5\n704707commentary to=functions.f")


def test_what_follows_a_beginning_is_no_json_where_a_teleprompter_says_it():
    begins = encode_with_special_tokens("<|channel|>final <|constrain|>json<|message|>")
    body = with_forced_prefix({"messages": [{"role": "user", "content": "x" * 10}]}, begins, WAY)
    fed = encode(body["messages"][0]["content"]) + [1428] * 3
    assert simulate_output(fed, 50) == [*begins, *encode("Fine."), 200002]


def said(ids=None, count=None, content="Hello!", prompt=300):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    body = {"choices": [choice | ({"token_ids": list(ids)} if ids is not None else {})]}
    if count is not None:
        body["usage"] = {"prompt_tokens": prompt, "completion_tokens": count}
    return Response(
        status=200,
        headers={"content-type": "application/json"},
        chunks=(Chunk(arrival_time=0.1, data=json.dumps(body).encode()),),
    )


def asked(response, script=SCRIPT, **request):
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 50} | request
    return Exchange(id="a", request=Request(path="/", body=json.dumps(body).encode()), response=response, script=script)


PLAYED = {
    "its ids were returned": said(SCRIPT, 9),
    "as many tokens as it has": said(None, len(SCRIPT)),
    "nothing is known but the text": said(),
}
NOT_PLAYED = {
    "other ids were returned": said(BESIDE, len(SCRIPT)),
    "fewer tokens": said(None, len(SCRIPT) - 1),
    "more tokens": said(None, len(SCRIPT) + 3),
}


@pytest.mark.parametrize("what", PLAYED)
def test_a_script_counts_as_played_where(what):
    x = asked(PLAYED[what])
    assert drop_unplayed_script(x, WAY) == x


@pytest.mark.parametrize("what", NOT_PLAYED)
def test_a_script_does_not_count_as_played_where(what):
    x = drop_unplayed_script(asked(NOT_PLAYED[what]), WAY)
    assert x.script is None
    assert x.expected is None
    assert "differs from the script" in x.script_not_played


STREAMED = {
    "the whole answer was another": (BESIDE, None, True),
    "the whole answer was played": (SCRIPT, None, False),
    "its own ids were returned": (BESIDE, SCRIPT, False),
}


@pytest.mark.parametrize("what", STREAMED)
def test_a_stream_of_as_many_tokens_is_believed_by_the_whole_answer(what):
    whole, streamed, is_noise = STREAMED[what]
    sent = {
        "a": drop_unplayed_script(asked(said(whole, len(SCRIPT))), WAY),
        "a+stream": drop_unplayed_script(asked(said(streamed, len(SCRIPT)), stream=True), WAY),
    }
    x = drop_unproven_stream_scripts(Series(name="s", exchanges=sent)).exchanges["a+stream"]
    assert bool(x.script_not_played) is is_noise
    assert (x.script is None) is is_noise


def test_what_is_said_instead_of_a_script_means_nothing():
    x = drop_unplayed_script(asked(said(BESIDE, len(SCRIPT))), WAY)
    assert x.output.ids == BESIDE
    assert x.expected_output is None


def test_a_script_that_the_limit_cuts_was_played():
    x = asked(said(None, 2), max_tokens=2)
    assert drop_unplayed_script(x, WAY) == x


def test_a_script_that_meets_a_stop_string_was_played():
    x = asked(said(None, 3), stop=["Hello"])
    assert drop_unplayed_script(x, WAY) == x


@pytest.mark.parametrize("by", [ScriptMethod.REFERENCE, ScriptMethod.VLLM])
def test_a_server_that_is_told_the_ids_plays_them(by):
    x = asked(said(BESIDE, 1))
    assert drop_unplayed_script(x, Scripting(method=by)) == x


def serving(trailers, *, shows_count=True, counts_stop=True, held=()):
    """A server with the checkpoint behind it, which writes so many tokens after a last message of each role, and has no ear for it where it holds outputs."""

    async def send(request):
        last = request.json["messages"][-1]
        fed = [*encode("x" * 10 + last["content"]), *[1428] * trailers[last["role"]]]
        ids = simulate_output(fed, request.json["max_tokens"])
        is_held = any(name in request.json for name in held)
        length = len(ids) - (not counts_stop and ids[-1] in (200002, 200012))
        return SendResult(response=said(None, length if shows_count else None, "{}" if is_held else "quokka"))

    return send


PLAIN = {"model": "m", "messages": [], "max_tokens": 16}


def way_of(*args, **kwargs):
    return asyncio.run(calibrate(CalibrationTarget(send=serving(*args, **kwargs)), PLAIN))


def test_the_trailer_is_found_for_each_role():
    way, shown = way_of({"user": 3, "tool": 4})
    assert (way.suffix_tokens, way.counts_stop) == ({"user": 3, "tool": 4}, True)
    assert [x.step for x in shown] == ["script after user", "script after tool"]


def test_other_trailers_are_found():
    assert way_of({"user": 7, "tool": 2})[0].suffix_tokens == {"user": 7, "tool": 2}


@pytest.mark.parametrize(
    "trailers", [{"user": 3, "tool": 3}, {"user": 3, "tool": 4}, {"user": 4, "tool": 6}, {"user": 7, "tool": 2}]
)
def test_a_server_that_does_not_count_the_token_that_ends_a_turn_is_known_by_it(trailers):
    way, _ = way_of(trailers, counts_stop=False)
    assert (way.suffix_tokens, way.counts_stop) == (trailers, False)
    x = asked(said(None, len(SCRIPT) - 1))
    assert drop_unplayed_script(x, way).script == SCRIPT
    assert drop_unplayed_script(asked(said(None, len(SCRIPT))), way).script is None


def test_a_role_without_a_trailer_is_left_out():
    assert way_of({"user": 3, "tool": 40})[0].suffix_tokens == {"user": 3}


def test_a_trailer_beyond_those_that_are_tried_is_not_taken_for_a_token_that_is_not_counted():
    assert way_of({"user": 9, "tool": 9})[0].suffix_tokens == {}


def test_no_trailer_is_believed_by_the_text():
    assert way_of({"user": 3, "tool": 4}, shows_count=False) == (Scripting(method=ScriptMethod.TELEPROMPTER), [])


@pytest.mark.parametrize("held", [(), ("tools",), ("tools", "response_format")])
def test_what_a_grammar_may_hold_is_not_believed_by_the_number_of_its_tokens(held):
    way, _ = way_of({"user": 3, "tool": 4}, held=held)
    assert way.grammar_members == frozenset(held)
    for name in ("tools", "response_format"):
        x = asked(said(None, len(SCRIPT)), **{name: [{}]})
        assert (drop_unplayed_script(x, way).script is None) is (name in held)
        assert drop_unplayed_script(asked(said(SCRIPT, len(SCRIPT)), **{name: [{}]}), way).script == SCRIPT


def test_where_ids_are_shown_nothing_else_is_tried():
    target = CalibrationTarget(send=serving({"user": 3, "tool": 4}, held=("tools",)), shows_ids=True)
    assert asyncio.run(calibrate(target, PLAIN))[0].grammar_members == frozenset()


def over_responses(shown, **request):
    """An answer of the Responses API to a request with a function, and what Chat Completions showed of the same."""
    body = {"input": [{"role": "user", "content": "Hi"}], "max_output_tokens": 50, "stream": True, "store": False}
    body |= {"tools": [{"type": "function", "name": "f", "parameters": None, "strict": False}]} | request
    told = {"object": "response", "status": "completed", "output": [], "usage": {"output_tokens": len(SCRIPT)}}
    response = Response(status=200, headers={}, chunks=(Chunk(arrival_time=0.1, data=json.dumps(told).encode()),))
    sent = Request(path="/v1/responses", body=json.dumps(body).encode())
    x = Exchange(id="a", api="responses", request=sent, response=response, script=SCRIPT)
    return x, replace(as_chat_completions(x, ("verbose", "return_tokens")), response=shown)


def test_what_shows_no_ids_is_asked_of_chat_completions_where_a_grammar_may_hold_it():
    x, chat = over_responses(None)
    assert is_unproven(x, WAY)
    assert not is_unproven(replace(x, script=None), WAY)
    assert not is_unproven(over_responses(None, tools=[])[0], WAY)
    assert not is_unproven(x, Scripting(method=ScriptMethod.VLLM))
    assert chat.request.json == {
        "messages": [{"role": "user", "content": "Hi"}],
        "max_completion_tokens": 50,
        "stream": False,
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "verbose": True,
        "return_tokens": True,
    }


PROVEN = {"played": (said(SCRIPT, 9), True), "not played": (said(BESIDE, 9), False), "no answer": (None, False)}


@pytest.mark.parametrize("what", PROVEN)
def test_a_script_without_ids_is_believed_by_chat_completions(what):
    shown, is_proven = PROVEN[what]
    x, chat = over_responses(shown)
    assert (drop_refuted_script(x, chat, WAY).script == SCRIPT) is is_proven


RAW = "<|start|>user<|message|>Hi<|end|><|start|>assistant"


@pytest.mark.parametrize("is_text", [True, False])
def test_a_script_stands_at_the_end_of_the_last_message_of_a_raw_prompt(is_text):
    prompt = with_script({"prompt": RAW if is_text else encode_with_special_tokens(RAW)}, SCRIPT, WAY)["prompt"]
    ids = encode_with_special_tokens(prompt) if is_text else prompt
    assert ids == encode_with_special_tokens(f"<|start|>user<|message|>Hi{END}<|end|><|start|>assistant")
    assert tuple(simulate_output(ids, 50)) == SCRIPT


@pytest.mark.parametrize("prompt", ["A colour: ", [], 7, [[200006]], [200006, 999999]])
def test_a_script_is_not_carried_by_a_raw_prompt_without_a_message_that_ends(prompt):
    with pytest.raises(ScriptUnsupportedError, match="no complete message"):
        with_script({"prompt": prompt}, SCRIPT, WAY)


VLLM_OUTPUTS = {
    "no script": (said(), None, True, False),
    "its ids": (said(SCRIPT), SCRIPT, False, True),
    "its ids without headers, as in the streams of vLLM 0.11.0": (said(SCRIPT[2:]), SCRIPT, False, True),
    "its ids and the token that ends them": (said((*SCRIPT, 199999)), SCRIPT, False, True),
    "no ids": (said(), SCRIPT, False, True),
    "other ids": (said(BESIDE), SCRIPT, True, False),
}


@pytest.mark.parametrize("what", VLLM_OUTPUTS)
def test_random_weights_write_where_vllm_plays_no_script(what):
    response, script, may_be_random, is_played = VLLM_OUTPUTS[what]
    sent = Series(name="s", exchanges={"a": asked(response, script)})
    x = mark_unscripted(sent, ScriptMethod.VLLM).exchanges["a"]
    assert (x.may_be_random, x.script is not None) == (may_be_random, is_played)
    assert bool(x.script_not_played) is (script is not None and not is_played)
    assert mark_unscripted(sent, ScriptMethod.REFERENCE) is sent
    assert mark_unscripted(sent, None) is sent


def scripted_request(script, count, before="What now?"):
    messages = [{"role": "user", "content": before + write_script(script, 3)}]
    return asked(said(None, len(script), prompt=count), script=tuple(script), messages=messages)


def test_a_script_that_the_server_splits_into_other_tokens_is_not_proved():
    scripts = [
        encode_with_special_tokens(f"<|channel|>final<|message|>{word}<|return|>") for word in ("Hello!", "Bye!", "So.")
    ]
    counts = [len(encode("What now?" + write_script(script, 3))) + 70 for script in scripts]
    counts[1] += 1
    sent = {
        str(i): scripted_request(script, count) for i, (script, count) in enumerate(zip(scripts, counts, strict=True))
    }
    exchanges = drop_unproven_stream_scripts(Series(name="s", exchanges=sent)).exchanges
    assert [x.script is None for x in exchanges.values()] == [False, True, False]
    assert "other tokens" in exchanges["1"].script_not_played


@pytest.mark.parametrize(("more", "is_dropped"), [(0, False), (1, True)])
def test_a_prompt_that_is_shown_as_text_proves_how_the_server_splits_it(more, is_dropped):
    shown = RenderedPrompt(source="_debug_render_only", ids=tuple(encode("shown")) * 70)
    x = replace(scripted_request(SCRIPT, len(shown.ids) + more), rendered_prompt=shown)
    assert shown.is_text
    kept = drop_unproven_stream_scripts(Series(name="s", exchanges={"a": x})).exchanges["a"]
    assert (kept.script is None) is is_dropped
    sent = Series(name="s", exchanges={"a": x})
    by_method = {method: drop_unproven_stream_scripts(sent, method).exchanges["a"] for method in ScriptMethod}
    assert {method for method, one in by_method.items() if one != x} == ({ScriptMethod.TELEPROMPTER} if more else set())


HINDI = tuple(encode_with_special_tokens("<|channel|>final<|message|>नमस्ते<|return|>"))
LATIN = tuple(encode_with_special_tokens("<|channel|>final<|message|>Größe<|return|>"))
ERROR = {"error": {"code": 500, "message": "The model produced output of another form", "type": "server_error"}}


def failed(script, status=500, shown="", *, stream=False):
    """The answer of a server that fails, after `shown`, on a script that it may have split into other tokens."""
    messages = [{"role": "user", "content": "Go on." + write_script(script, 3)}]
    deltas = (
        [{"choices": [{"index": 0, "delta": {"reasoning_content": shown}, "finish_reason": None}]}] if shown else []
    )
    events = "".join(f"data: {json.dumps(event)}\n\n" for event in [*deltas, ERROR])
    response = Response(
        status=200 if stream else status,
        headers={"content-type": "text/event-stream" if stream else "application/json"},
        chunks=(Chunk(arrival_time=0.1, data=(events if stream else json.dumps(ERROR)).encode()),),
    )
    return asked(response, script=script, messages=messages, **({"stream": True} if stream else {}))


IN_DOUBT = {
    "a server error": ((failed(HINDI),), True),
    "a stream that begins with the error": ((failed(HINDI, stream=True),), True),
    "both": ((failed(HINDI), failed(HINDI, stream=True)), True),
    "a stream that shows a thought": ((failed(HINDI, shown="Hm", stream=True),), False),
    "a refusal": ((failed(HINDI, status=400),), False),
    "a script without combining marks": ((failed(LATIN),), False),
}


@pytest.mark.parametrize("what", IN_DOUBT)
def test_a_failure_shows_no_script_that_the_server_may_have_split_otherwise(what):
    sent, is_dropped = IN_DOUBT[what]
    series = Series(name="s", exchanges={f"a{'+stream' * i}": replace(x, validity="valid") for i, x in enumerate(sent)})
    for x in drop_unproven_stream_scripts(series, ScriptMethod.TELEPROMPTER).exchanges.values():
        assert (x.script is None) is is_dropped
        assert ("is not shown" in x.script_not_played) is is_dropped


def test_an_answer_to_the_same_text_proves_the_script_of_a_failure():
    failure = failed(HINDI, stream=True)
    answer = replace(failed(HINDI), response=said(None, len(HINDI), prompt=80))
    series = Series(name="s", exchanges={"a": answer, "a+stream": failure})
    assert drop_unproven_stream_scripts(series, ScriptMethod.TELEPROMPTER).exchanges["a+stream"].script == HINDI


@pytest.mark.parametrize(("members", "is_restated"), [({"tools": [{}]}, True), ({}, False)])
def test_a_recording_that_says_not_played_without_proof_is_read_as_unproven(members, is_restated):
    played = asked(said(None, len(SCRIPT)), **members)
    recorded = replace(
        drop_unplayed_script(asked(said(None, 1)), WAY), request=played.request, response=played.response
    )
    x = drop_unproven_stream_scripts(Series(name="s", exchanges={"a": recorded})).exchanges["a"]
    assert ("is not shown" in x.script_not_played) is is_restated


def test_a_number_of_tokens_that_a_grammar_may_have_made_leaves_it_open_whether_the_script_was_played():
    way = replace(WAY, grammar_members=frozenset({"tools"}))
    assert "is not shown" in drop_unplayed_script(asked(said(None, len(SCRIPT)), tools=[{}]), way).script_not_played
    assert "differs" in drop_unplayed_script(asked(said(BESIDE, len(SCRIPT)), tools=[{}]), way).script_not_played
