"""Messages as the judge reads them: requests there and back, answers of the reference server, streams of other servers, and garbage."""

import json
from contextlib import suppress

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harmony_conformance.apis.chat_completion import read_completion, read_stream
from harmony_conformance.apis.registry import MESSAGES, UnsupportedByApiError
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import loads
from harmony_conformance.prompts.conversation import ConversationOptions, conversation_of
from harmony_conformance.prompts.expected_parts import PartKind, expected_parts
from harmony_conformance.reference_server import MODEL
from harmony_ref import render_conversation_for_completion

DATE = "2025-06-28"
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}}
WEATHER = {"type": "function", "function": {"name": "get_weather", "description": "Weather.", "parameters": SCHEMA}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Köln"}'}}
USER = {"role": "user", "content": "Hi"}
LOOP = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather"}, {"type": "text", "text": "?"}]},
    {
        "role": "assistant",
        "content": "I look.",
        "reasoning": "Need it.",
        "tool_calls": [CALL, {**CALL, "id": "call_2"}],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": "21 °C"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "22 °C"}]},
    {"role": "developer", "content": "In French."},
    {"role": "user", "content": "Really?"},
]
START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Need weather.<|end|>{START}"
SAID = THINK + "<|channel|>final<|message|>Sunny, 21 °C. 🫠<|return|>"
CALLED = (
    f"{THINK}<|channel|>commentary<|message|>I look.<|end|>{START}"
    '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
)


def meant(request):
    return [
        (part.kind, loads(part.text) if part.kind is PartKind.CALL else part.text, part.function, part.retention)
        for part in expected_parts(request)
    ]


def there_and_back(**members):
    return MESSAGES.read_request(MESSAGES.write_request({"model": MODEL, "messages": [USER], **members}))


# requests


def test_a_tool_loop_means_the_same_there_and_back():
    request = {
        "messages": LOOP,
        "tools": [WEATHER],
        "reasoning_effort": "high",
        "max_tokens": 9,
        "stop": ["x"],
        "tool_choice": "required",
        "parallel_tool_calls": False,
        "user": "someone",
        "harmony_script": SAID,
    }
    back = there_and_back(**request)
    assert meant(back) == meant(request)
    for name in set(request) - {"messages"}:
        assert back[name] == request[name], name


@pytest.mark.parametrize(
    ("given", "arguments"),
    [
        ({"city": "Köln"}, '{"city":"Köln"}'),
        ('{"city":"Köln"}', r'"{\"city\":\"Köln\"}"'),
        ('{"city":', '{"city":'),
        ("", ""),
    ],
    ids=["an object", "its JSON as a text", "a text that was cut", "an empty text"],
)
def test_an_input_that_is_a_text_with_json_was_encoded_twice(given, arguments):
    block = {"type": "tool_use", "id": "t", "name": "f", "input": given}
    sent = {"messages": [{"role": "assistant", "content": [block]}]}
    answer = {"type": "message", "content": [block]}
    (message,) = MESSAGES.read_request(sent)["messages"]
    assert message["tool_calls"][0]["function"]["arguments"] == arguments
    read = MESSAGES.read_response(answer)["choices"][0]["message"]
    assert read["tool_calls"][0]["function"]["arguments"] == arguments


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"city": "Köln"}', {"city": "Köln"}),
        (r'"{\"city\":\"Köln\"}"', '{"city":"Köln"}'),
        ("", {}),
    ],
)
def test_an_input_goes_back_as_it_came(arguments, given):
    call = {**CALL, "function": {"name": "get_weather", "arguments": arguments}}
    history = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}]
    (block,) = MESSAGES.write_request({"model": MODEL, "messages": history})["messages"][1]["content"]
    assert block["input"] == given


def test_a_tool_loop_is_written_as_blocks():
    written = MESSAGES.write_request({"model": MODEL, "messages": LOOP, "tools": [WEATHER]})
    assert written["system"] == "Be brief."
    assert written["tools"] == [{"name": "get_weather", "description": "Weather.", "input_schema": SCHEMA}]
    assert written["max_tokens"] > 0
    assert [
        (message["role"], [block.get("type") for block in message["content"]]) for message in written["messages"][:3]
    ] == [
        ("user", ["text", "text"]),
        ("assistant", ["thinking", "text", "tool_use", "tool_use"]),
        ("user", ["tool_result", "tool_result"]),
    ]
    assert written["messages"][1]["content"][2]["input"] == {"city": "Köln"}
    assert written["messages"][3] == {"role": "system", "content": "In French."}


@pytest.mark.parametrize(
    ("choice", "written"),
    [
        ("auto", {"type": "auto"}),
        ("none", {"type": "none"}),
        ("required", {"type": "any"}),
        ({"type": "function", "function": {"name": "get_weather"}}, {"type": "tool", "name": "get_weather"}),
    ],
    ids=str,
)
def test_a_choice_of_tools_is_the_same_there_and_back(choice, written):
    request = {"model": MODEL, "messages": [USER], "tools": [WEATHER], "tool_choice": choice}
    assert MESSAGES.write_request(request)["tool_choice"] == written
    assert there_and_back(tools=[WEATHER], tool_choice=choice)["tool_choice"] == choice


def test_one_call_at_a_time_needs_a_choice():
    written = MESSAGES.write_request(
        {"model": MODEL, "messages": [USER], "tools": [WEATHER], "parallel_tool_calls": False}
    )
    assert written["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}


def test_a_form_of_the_answer_comes_back():
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    assert there_and_back(response_format=form)["response_format"] == form


def test_an_image_comes_back():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}
    assert there_and_back(messages=[{"role": "user", "content": [image]}])["messages"] == [
        {"role": "user", "content": [image]}
    ]


@pytest.mark.parametrize(("effort", "level"), [("low", "low"), ("xhigh", "high"), ("max", "high")])
def test_effort_is_read_as_a_level(effort, level):
    request = {"model": MODEL, "messages": [USER], "output_config": {"effort": effort}}
    assert MESSAGES.read_request(request)["reasoning_effort"] == level


def test_the_blocks_of_a_turn_in_another_order_are_several_messages():
    blocks = [
        {"type": "text", "text": "I look."},
        {"type": "thinking", "thinking": "Need it.", "signature": "s"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "Done."},
    ]
    read = MESSAGES.read_request({"messages": [{"role": "assistant", "content": blocks}]})["messages"]
    assert [(m["content"], m.get("reasoning"), len(m.get("tool_calls", []))) for m in read] == [
        ([{"type": "text", "text": "I look."}], None, 0),
        (None, "Need it.", 1),
        ([{"type": "text", "text": "Done."}], None, 0),
    ]


@pytest.mark.parametrize(
    "members",
    [
        {"n": 2},
        {"seed": 7},
        {"logprobs": True},
        {"metadata": {"a": "b"}},
        {"response_format": {"type": "json_object"}},
        {"tool_choice": {"type": "allowed_tools"}},
        {"messages": [{"role": "user", "name": "Ann", "content": "Hi"}]},
        {"messages": [{"role": "assistant", "refusal": "No."}]},
        {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": '{"a":'}}]}]},
    ],
    ids=str,
)
def test_what_the_api_has_not_is_not_spelled(members):
    with pytest.raises(UnsupportedByApiError):
        MESSAGES.write_request({"model": MODEL, "messages": [USER], **members})


@pytest.mark.parametrize(
    "test",
    [
        pytest.param(test, id=test["id"])
        for test in json.loads((golden.root() / "api" / "messages.json").read_text("utf-8"))["tests"]
    ],
)
def test_a_request_is_read_as_the_conversation_that_it_means(test, render_by_library):
    read = conversation_of(MESSAGES.read_request(test["request"]), ConversationOptions(), date=DATE)
    assert list(render_conversation_for_completion(read)) in [
        list(render_by_library(messages))
        for messages in (test["messages"], *(other["messages"] for other in test.get("also", [])))
    ]


# answers


def post(http, **members):
    request = {"model": MODEL, "messages": [USER], "tools": [WEATHER], "return_token_ids": True, **members}
    response = http.post(MESSAGES.path, json=MESSAGES.write_request(request))
    assert response.status_code == 200, response.text
    return response


def events(text):
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("script", [SAID, CALLED], ids=["answer", "call"])
def test_an_answer_says_the_same_whole_and_streamed(script, http):
    whole = read_completion(MESSAGES.read_response(post(http, harmony_script=script).json()))
    told = list(MESSAGES.read_events(events(post(http, harmony_script=script, stream=True).text)))
    streamed = read_stream(told)
    for name in ("role", "content", "reasoning", "finish_reason", "output_ids", "prompt_ids", "usage"):
        assert getattr(streamed, name) == getattr(whole, name), name
    assert [(call.id, call.name, json.loads(call.arguments)) for call in streamed.tool_calls] == [
        (call.id, call.name, json.loads(call.arguments)) for call in whole.tool_calls
    ]
    assert whole.reasoning == "Need weather."
    assert whole.content == ("I look." if script is CALLED else "Sunny, 21 °C. 🫠")
    assert whole.finish_reason == ("tool_calls" if script is CALLED else "stop")
    assert len(whole.tool_calls) == (script is CALLED)
    assert whole.usage.prompt_tokens == len(whole.prompt_ids)
    assert whole.usage.reasoning_tokens > 0


def message(**members):
    return {"type": "message", "role": "assistant", "content": [], "stop_reason": "end_turn", **members}


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
        (None, None),
    ],
)
def test_each_stop_reason_is_a_finish_reason(reason, finish):
    assert read_completion(MESSAGES.read_response(message(stop_reason=reason))).finish_reason == finish
    end = {"type": "message_delta", "delta": {"stop_reason": reason}}
    assert read_stream(MESSAGES.read_events([end])).finish_reason == finish


def test_cached_tokens_are_input_tokens():
    usage = {"input_tokens": 3, "cache_read_input_tokens": 60, "cache_creation_input_tokens": None, "output_tokens": 2}
    assert read_completion(MESSAGES.read_response(message(usage=usage))).usage.prompt_tokens == 63


def test_the_counts_of_a_stream_come_from_both_of_its_ends():
    start = {"type": "message_start", "message": message(usage={"input_tokens": 60, "output_tokens": 1})}
    end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}
    usage = read_stream(MESSAGES.read_events([start, end])).usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (60, 9)


@pytest.mark.parametrize(
    ("pieces", "start", "arguments"),
    [([], {}, "{}"), ([], {"a": 1}, '{"a":1}'), (["", '{"a"', ": 1}"], {}, '{"a": 1}')],
    ids=["no input", "input at the start", "pieces"],
)
def test_the_input_of_a_call_is_read_wherever_it_comes(pieces, start, arguments):
    block = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": start}
    deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    stream = [
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
    ]
    (call,) = read_stream(MESSAGES.read_events(stream)).tool_calls
    assert (call.id, call.name, call.arguments) == ("toolu_1", "f", arguments)


def test_text_at_the_start_of_a_block_is_not_lost():
    stream = [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": "Hel"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    ]
    assert read_stream(MESSAGES.read_events(stream)).content == "Hello"


def test_a_failure_stays_a_failure():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    (told,) = MESSAGES.read_events([error])
    assert told["error"] == error["error"] == MESSAGES.read_response(error)["error"]


def test_an_error_without_its_envelope_is_an_error():
    bare = {"code": 500, "message": "No such format", "type": "server_error"}
    (told,) = MESSAGES.read_events([bare])
    assert told["error"] == bare


def test_content_of_the_first_event_is_not_lost():
    blocks = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
    ]
    turn = read_stream(MESSAGES.read_events([{"type": "message_start", "message": message(content=blocks)}]))
    assert (turn.reasoning, turn.content) == ("Hm.", "Hello")
    assert [(call.name, call.arguments) for call in turn.tool_calls] == [("f", '{"a":1}')]


@pytest.mark.parametrize("content", [None, []])
def test_a_message_without_blocks_is_an_answer_without_text(content):
    turn = read_completion(MESSAGES.read_response(message(content=content)))
    assert (turn.role, turn.content, turn.finish_reason) == ("assistant", None, "stop")


# garbage

NAMES = [
    *(
        "type",
        "message",
        "content",
        "content_block",
        "delta",
        "index",
        "text",
        "thinking",
        "signature",
        "usage",
        "error",
    ),
    *("partial_json", "input", "id", "name", "role", "messages", "system", "tools", "tool_choice", "stop_reason"),
    *("tool_use_id", "output_config", "stop_sequences", "metadata", "stream", "max_tokens", "tool_calls"),
]
WORDS = [
    *("message_start", "message_delta", "content_block_start", "content_block_delta", "content_block_stop", "error"),
    *("text", "thinking", "tool_use", "tool_result", "text_delta", "input_json_delta", "assistant", "user", "tool"),
]
LEAVES = st.none() | st.booleans() | st.integers(-1, 3) | st.sampled_from(WORDS) | st.text(max_size=3)
ODD = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4)
)


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.dictionaries(st.sampled_from(NAMES), ODD, max_size=5) | ODD, max_size=4))
def test_garbage_raises_nothing_and_every_event_has_a_value(values):
    for value in values:
        MESSAGES.read_request(value)
        read_completion(MESSAGES.read_response(value))
    told = list(MESSAGES.read_events(values))
    assert len(told) == len(values)
    read_stream(told)


@settings(max_examples=200, deadline=None)
@given(value=st.dictionaries(st.sampled_from(NAMES), ODD, max_size=4))
@example(value={"type": None, "messages": [{"role": []}]})
def test_spelling_raises_nothing_else(value):
    with suppress(UnsupportedByApiError):
        MESSAGES.write_request(value)
