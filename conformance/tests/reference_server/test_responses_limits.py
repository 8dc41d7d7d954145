"""Limits of a Responses request: the context window, and the number of calls of built-in tools."""

import pytest

from harmony_conformance.reference_server import MODEL
from harmony_conformance.reference_server.responses.context_window import CONTEXT
from harmony_ref import decode, encode

LINE = "One more line of the report.\n"
LINE_TOKENS = len(encode(LINE))
MOST = CONTEXT // LINE_TOKENS
PYTHON = "<|channel|>analysis to=python code<|message|>print({})"
NEXT = "<|end|><|start|>assistant"
WEATHER = {"type": "function", "name": "get_weather", "parameters": {"type": "object", "properties": {}}}
CALL = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{}"


def post(http, given, **members):
    return http.post("/v1/responses", json={"model": MODEL, "input": given, "store": False, **members})


def user(times):
    return {"role": "user", "content": LINE * times}


@pytest.mark.parametrize("members", [{}, {"truncation": "disabled"}])
def test_an_input_over_the_context_is_refused(http, members):
    answer = post(http, [user(MOST)], **members)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "context_length_exceeded", "input")


def test_an_input_within_the_context_is_whole_with_truncation(http):
    counts = [post(http, [user(9)], **more).json()["usage"]["input_tokens"] for more in ({}, {"truncation": "auto"})]
    assert counts[0] == counts[1]


def test_truncation_drops_the_oldest_items_and_keeps_instructions(http):
    call = {"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": '{"old":1}'}
    result = {"type": "function_call_output", "call_id": "call_1", "output": "OLD RESULT"}
    given = [{"role": "developer", "content": "Be brief."}, user(MOST // 2), call, result, user(MOST // 2), user(1)]
    body = post(http, given, truncation="auto", return_token_ids=True, tools=[WEATHER]).json()
    prompt = decode(body["prompt_token_ids"])
    assert (body["truncation"], "Be brief." in prompt, "OLD RESULT" in prompt) == ("auto", True, False)
    assert prompt.count(LINE) == MOST // 2 + 1


def test_one_message_over_the_context_is_refused_even_with_truncation(http):
    answer = post(http, [user(MOST)], truncation="auto")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(("most", "kept"), [(None, 2), (1, 1), (2, 2)])
def test_a_call_of_a_built_in_tool_beyond_the_limit_is_ignored(http, most, kept):
    tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
    script = PYTHON.format(1) + NEXT + PYTHON.format(2) + "<|call|>"
    body = post(http, "Hi", tools=tools, max_tool_calls=most, harmony_script=script).json()
    assert [item["code"] for item in body["output"]] == ["print(1)", "print(2)"][:kept]
    assert (body["max_tool_calls"], body["status"]) == (most, "completed")


def test_the_limit_does_not_count_functions(http):
    script = CALL + NEXT + CALL + "<|call|>"
    body = post(http, "Hi", tools=[WEATHER], max_tool_calls=1, harmony_script=script).json()
    assert [item["type"] for item in body["output"]] == ["function_call", "function_call"]
