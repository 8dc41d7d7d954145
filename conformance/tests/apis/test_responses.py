"""The Responses API read as Chat Completions: requests against the hand-written triples of golden/api, answers against the reference server's own chat."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.apis.chat_completion import read_completion, read_stream
from harmony_conformance.apis.registry import RESPONSES, UnsupportedByApiError
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import value_at
from harmony_conformance.prompts.conversation import (
    ALLOWED_RETENTIONS,
    REQUIRED_RETENTIONS,
    ConversationOptions,
    conversation_of,
)
from harmony_conformance.prompts.expected_parts import expected_parts
from harmony_conformance.reference_server import MODEL
from harmony_conformance.transport.messages import Chunk
from harmony_conformance.transport.sse import read_events
from harmony_ref import encode_with_special_tokens, render_conversation

TRIPLES = {
    f"{file.stem}: {test['id']}": test
    for file in sorted((golden.root() / "api").glob("*.json"))
    for test in json.loads(file.read_text("utf-8"))["tests"]
}
OF_CHAT = {name: test["request"] for name, test in TRIPLES.items() if "api" not in test}
OF_RESPONSES = {name: test for name, test in TRIPLES.items() if test.get("api") == "responses"}
READINGS = [
    ConversationOptions(retentions=keeps, joins_instructions=joins, declares_formats=declares)
    for keeps, joins, declares in itertools.product(
        (REQUIRED_RETENTIONS, ALLOWED_RETENTIONS), (True, False), (True, False)
    )
]
DATE = "2025-06-28"

# chat has no words for a call of a built-in tool, and for tools of these types
NOT_SAID = {"a call of Python", "a call of Python without output", "a web search"}
NOT_SAID |= {"a custom tool", "a custom tool with a grammar", "a custom tool in a namespace", "a namespace"}
NOT_SAID |= {"a function beside a namespace"}
# the API has no words for an author's name, and for penalties
NOT_SPELLED = {"a user with a name", "two users with names", "a named system message", "sampling settings"}


def rendered(request, reading):
    messages = conversation_of(request, reading, date=DATE)
    return [*render_conversation(messages, auto_drop_analysis=False), 200006, 173781]


@pytest.mark.parametrize("name", OF_RESPONSES)
def test_a_request_means_what_its_triple_says(name, render_by_library):
    test = OF_RESPONSES[name]
    request = RESPONSES.read_request(test["request"])
    right = [render_by_library(m) for m in (test["messages"], *(other["messages"] for other in test.get("also", [])))]
    assert any(rendered(request, reading) in right for reading in READINGS) == (test["id"] not in NOT_SAID)


@pytest.mark.parametrize("name", OF_CHAT)
def test_a_chat_request_means_the_same_when_it_was_spelled(name):
    request = OF_CHAT[name]
    if TRIPLES[name]["id"] in NOT_SPELLED:
        with pytest.raises(UnsupportedByApiError):
            RESPONSES.write_request(request)
        return
    again = RESPONSES.read_request(RESPONSES.write_request(request))
    assert said(again) == said(request)
    assert [rendered(again, reading) for reading in READINGS] == [rendered(request, reading) for reading in READINGS]


def said(request):
    return [(part.kind, part.text, part.function, part.retention) for part in expected_parts(request)]


TEXT = st.text(max_size=8)
CALLS = st.lists(
    st.builds(
        lambda number, name, arguments: {
            "id": f"call_{number}",
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        },
        st.integers(0, 3),
        st.sampled_from(["f", "get_weather"]),
        TEXT,
    ),
    min_size=1,
    max_size=3,
)
MESSAGES = st.lists(
    st.one_of(
        st.builds(
            lambda role, content: {"role": role, "content": content},
            st.sampled_from(["system", "developer", "user"]),
            TEXT,
        ),
        st.builds(lambda content: {"role": "assistant", "content": content}, TEXT.filter(bool)),
        st.builds(
            lambda thought, content, calls: {
                "role": "assistant",
                "content": content,
                **({"reasoning": thought} if thought else {}),
                "tool_calls": calls,
            },
            TEXT,
            st.one_of(st.none(), TEXT.filter(bool)),
            CALLS,
        ),
        st.builds(
            lambda n, content: {"role": "tool", "tool_call_id": f"call_{n}", "content": content},
            st.integers(0, 3),
            TEXT,
        ),
    ),
    min_size=1,
    max_size=6,
)
REQUESTS = st.fixed_dictionaries(
    {"model": st.just(MODEL), "messages": MESSAGES},
    optional={
        "reasoning_effort": st.sampled_from(["low", "medium", "high", "none"]),
        "max_completion_tokens": st.integers(1, 99),
        "tools": st.just([{"type": "function", "function": {"name": "f", "description": "F.", "strict": True}}]),
        "tool_choice": st.sampled_from(["auto", "none", "required", {"type": "function", "function": {"name": "f"}}]),
        "response_format": st.sampled_from(
            [
                {"type": "json_object"},
                {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
            ]
        ),
        "parallel_tool_calls": st.booleans(),
        "temperature": st.just(0),
        "harmony_script": st.just([200002]),
        "return_token_ids": st.just(True),
        "logprobs": st.just(True),
        "top_logprobs": st.just(2),
        "include": st.just(["reasoning.encrypted_content"]),
    },
)


@given(REQUESTS)
@settings(max_examples=200, deadline=None)
def test_what_is_spelled_is_read_back(request):
    again = RESPONSES.read_request(RESPONSES.write_request(request))
    assert said(again) == said(request)
    assert {name: value for name, value in again.items() if name != "messages"} == {
        name: value for name, value in request.items() if name != "messages"
    }


@pytest.mark.parametrize(
    "member", [{"n": 2}, {"logprobs": 5}, {"stop": ["x"]}, {"logit_bias": {"1": 1}}, {"frequency_penalty": 1}]
)
def test_what_the_api_does_not_have_is_not_spelled(member):
    with pytest.raises(UnsupportedByApiError):
        RESPONSES.write_request({"model": MODEL, "messages": [], **member})


JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), TEXT, st.sampled_from(["message", "reasoning", "function_call"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                [
                    "input",
                    "type",
                    "content",
                    "output",
                    "item",
                    "item_id",
                    "response",
                    "delta",
                    "tools",
                    "status",
                    "text",
                    "role",
                ]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=12,
)


@given(JSON, st.lists(JSON, max_size=3))
@settings(max_examples=300, deadline=None)
def test_no_reading_raises(value, values):
    expected_parts(RESPONSES.read_request(value))
    read_completion(RESPONSES.read_response(value))
    assert len(list(RESPONSES.read_events(iter(values)))) == len(values)


# answers, beside what the same server says in chat

START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Need weather.<|end|>{START}"
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
PREAMBLE = f"<|channel|>commentary<|message|>I look it up.<|end|>{START}"
FINAL = "<|channel|>final<|message|>Sunny, 21 °C. 🫠<|return|>"
SCRIPTS = {
    "an answer": THINK + FINAL,
    "a call": THINK + CALL,
    "a preamble and a call": THINK + PREAMBLE + CALL,
    "a preamble, a thought and an answer": THINK + PREAMBLE + THINK + FINAL,
    "two calls": CALL.replace("<|call|>", "<|end|>") + START + CALL,
    "no final answer": "<|channel|>analysis<|message|>Hm.<|end|>",
    "an empty answer": "<|channel|>final<|message|><|return|>",
}
TOOL = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}


def told_by(http, path, request):
    answer = http.post(path, json=request)
    assert answer.status_code == 200, answer.text
    if not request.get("stream"):
        return answer.json()
    return [event.value for event in read_events([Chunk(arrival_time=0.0, data=answer.content)]).events]


def without_id(turn):
    """What a server makes anew in each answer, and blanks between messages, left out."""
    calls = [(call.name, call.arguments) for call in turn.tool_calls]
    texts = ["".join((said or "").split()) for said in (turn.content, turn.reasoning)]
    return (texts, calls, turn.finish_reason, turn.prompt_ids, turn.output_ids, turn.usage.completion_tokens)


@pytest.mark.parametrize("limit", [None, 2, 5, 9, 14])
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_answer_is_the_chat_answer(http, name, limit):
    asked = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Weather?"}],
        "tools": [TOOL],
        "harmony_script": encode_with_special_tokens(SCRIPTS[name]),
        "return_token_ids": True,
        **({"max_completion_tokens": limit} if limit else {}),
    }
    right = read_completion(told_by(http, "/v1/chat/completions", asked))
    whole = read_completion(RESPONSES.read_response(told_by(http, RESPONSES.path, RESPONSES.write_request(asked))))
    assert without_id(whole) == without_id(right)
    events = told_by(http, RESPONSES.path, RESPONSES.write_request({**asked, "stream": True}))
    told = list(RESPONSES.read_events(events))
    assert len(told) == len(events)
    stream = read_stream(told)
    assert without_id(stream) == without_id(right)
    assert (stream.content or "", stream.reasoning) == (whole.content or "", whole.reasoning)
    # whatever of the telling is left out, the rest tells all
    for left_out in (".delta", ".done", "output_item.added", "part.added", "_text.done", "output_item"):
        kept = [event for event in events if left_out not in event["type"]]
        again = read_stream(RESPONSES.read_events(kept))
        assert (again.content or "", again.reasoning) == (whole.content or "", whole.reasoning), left_out
        assert [(c.name, c.arguments, c.id) for c in again.tool_calls] == [
            (c.name, c.arguments, c.id) for c in stream.tool_calls
        ], left_out


def test_a_failure_is_an_error():
    failed = {"object": "response", "status": "failed", "error": {"code": "server_error", "message": "x"}, "output": []}
    assert RESPONSES.read_response(failed)["error"] == failed["error"]
    last = list(RESPONSES.read_events([{"type": "response.failed", "response": failed}]))[-1]
    assert last["error"] == failed["error"]
    event = {"type": "error", "code": None, "message": "x", "param": None}
    assert value_at(next(RESPONSES.read_events([event])), "error", "message") == "x"
    assert value_at(next(RESPONSES.read_events([{"error": {"message": "y"}}])), "error", "message") == "y"


def test_a_refusal_of_the_request_stays_as_it_is():
    refused = {"error": {"message": "no", "type": "invalid_request_error", "param": None, "code": None}}
    assert RESPONSES.read_response(refused) == refused


def test_an_item_that_moved_up_in_the_last_response_is_reported_once():
    message = {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "content": [{"type": "output_text", "text": "ok"}],
    }
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {"type": "mcp_call", "id": "mcp_1"}},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "mcp_call", "id": "mcp_1"}},
        {"type": "response.output_item.added", "output_index": 1, "item": {**message, "content": []}},
        {
            "type": "response.output_text.delta",
            "output_index": 1,
            "item_id": "msg_1",
            "content_index": 0,
            "delta": "ok",
        },
        {"type": "response.output_item.done", "output_index": 1, "item": message},
        {"type": "response.completed", "response": {"status": "completed", "output": [message]}},
    ]
    assert read_stream(RESPONSES.read_events(events)).content == "ok"


def text_events(number, place, words):
    """The events of an item with a text of these words, announced at one place and finished at the next."""
    kinds = {"msg": ("message", "output_text"), "rs": ("reasoning", "reasoning_text")}
    name = f"{number}_1"
    kind, part = kinds[number]
    item = {"type": kind, "id": name, "content": [{"type": part, "text": "".join(words)}]}
    place_of = {"output_index": place, "item_id": name, "content_index": 0}
    return [
        {"type": "response.output_item.added", "output_index": place, "item": {**item, "content": []}},
        *({"type": f"response.{part}.delta", **place_of, "delta": word} for word in words),
        {"type": f"response.{part}.done", **place_of, "output_index": place + 1, "text": "".join(words)},
        {"type": "response.output_item.done", "output_index": place + 1, "item": item},
    ], item


def test_items_with_other_places_and_ids_in_the_last_response_are_reported_once():
    thought, reasoning = text_events("rs", 0, ["Think", "."])
    answer, message = text_events("msg", 2, ["o", "k"])
    last = [{**reasoning, "id": "rs_7"}, {**message, "id": "msg_7"}]
    completed = {"type": "response.completed", "response": {"status": "completed", "output": last}}
    turn = read_stream(RESPONSES.read_events([*thought, *answer, completed]))
    assert (turn.reasoning, turn.content) == ("Think.", "ok")


def test_texts_of_two_items_under_one_id_are_reported_once():
    thought, reasoning = text_events("rs", 0, ["Think", "."])
    place = {"output_index": 0, "item_id": "rs_1", "content_index": 0}
    message = {"type": "message", "id": "rs_1", "content": [{"type": "output_text", "text": "ok"}]}
    answer = [
        {"type": "response.output_text.delta", **place, "delta": "ok"},
        {"type": "response.output_text.done", **place, "output_index": 1, "text": "ok"},
        {"type": "response.output_item.done", "output_index": 1, "item": message},
    ]
    last = [{**reasoning, "id": "rs_7"}, {**message, "id": "msg_7"}]
    completed = {"type": "response.completed", "response": {"status": "completed", "output": last}}
    turn = read_stream(RESPONSES.read_events([*thought[:-2], *answer, completed]))
    assert (turn.reasoning, turn.content) == ("Think.", "ok")


MCP_CALL = {"type": "mcp_call", "id": "mcp_1", "name": "user", "server_label": "user", "arguments": "Good news."}


def test_the_arguments_of_a_call_that_is_no_function_call_are_members_of_the_output():
    done = {"type": "response.output_item.done", "output_index": 0, "item": MCP_CALL}
    added = {"type": "response.output_item.added", "output_index": 0, "item": {**MCP_CALL, "arguments": ""}}
    completed = {"status": "completed", "object": "response", "output": [MCP_CALL]}
    streamed = list(RESPONSES.read_events([added, done, {"type": "response.completed", "response": completed}]))
    deltas = [delta for chunk in streamed for delta in [value_at(chunk, "choices", 0, "delta", "output", 0)] if delta]
    whole = value_at(RESPONSES.read_response(completed), "choices", 0, "message", "output", 0)
    assert [delta["arguments"] for delta in deltas if "arguments" in delta] == [whole["arguments"]] == ["Good news."]
    assert (deltas[0]["name"], whole["name"]) == ("user", "user")


def test_a_custom_call_whose_input_comes_as_arguments_of_a_function_is_no_function_call():
    call = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_1", "name": "edit_file", "input": "+a"}
    deltas = "response.function_call_arguments.delta", "response.function_call_arguments.done"
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**call, "input": ""}},
        {"type": deltas[0], "output_index": 0, "item_id": "ctc_1", "delta": "+a"},
        {"type": deltas[1], "output_index": 0, "item_id": "ctc_1", "arguments": "+a"},
        {"type": "response.output_item.done", "output_index": 0, "item": call},
    ]
    completed = {"status": "completed", "object": "response", "output": [call]}
    chunks = list(RESPONSES.read_events([*events, {"type": "response.completed", "response": completed}]))
    choices = [value_at(chunk, "choices", 0) or {} for chunk in chunks]
    assert not any("tool_calls" in choice.get("delta", {}) for choice in choices)
    assert [choice["finish_reason"] for choice in choices if choice.get("finish_reason")] == ["stop"]
    shown = [one for choice in choices for one in choice.get("delta", {}).get("output", [])]
    assert [one["arguments"] for one in shown if "arguments" in one] == ["+a"]
