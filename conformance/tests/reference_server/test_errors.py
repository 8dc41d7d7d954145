import pytest

from harmony_conformance.reference_server import MODEL

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


def post(http, **fields):
    return http.post("/v1/chat/completions", json={**ASK, **fields})


USER = {"role": "user", "content": "x"}
PAST_CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
HUGE_DEFAULT = {"type": "object", "properties": {"a": {"type": "number", "default": 10**400}}}
REFUSED = [
    ({"model": None}, 400, "model"),
    ({"model": "gpt-4"}, 404, "model"),
    ({"messages": None}, 400, "messages"),
    ({"messages": []}, 400, "messages"),
    ({"messages": "Hi"}, 400, "messages"),
    ({"messages": ["Hi"]}, 400, "messages[0]"),
    ({"messages": [USER, {"role": "narrator", "content": "x"}]}, 400, "messages[1].role"),
    ({"messages": [{"content": "x"}]}, 400, "messages[0].role"),
    ({"messages": [{"role": "user", "content": 5}]}, 400, "messages[0].content"),
    ({"messages": [{"role": "user"}]}, 400, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, 400, "messages[0].content[0].type"),
    ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, 400, "messages[0].content[0].text"),
    ({"messages": [{"role": "user", "content": ["x"]}]}, 400, "messages[0].content[0]"),
    ({"messages": [{"role": "tool", "content": "x"}]}, 400, "messages[0].tool_call_id"),
    ({"messages": [USER, {"role": "tool", "content": "x", "tool_call_id": "z"}]}, 400, "messages[1].tool_call_id"),
    ({"messages": [{"role": "assistant", "tool_calls": {}}]}, 400, "messages[0].tool_calls"),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {}}}]}]},
        400,
        "messages[0].tool_calls[0].function.arguments",
    ),
    ({"messages": [{"role": "assistant", "reasoning": ["x"]}]}, 400, "messages[0].reasoning"),
    ({"max_tokens": 0}, 400, "max_tokens"),
    ({"max_tokens": 1.5}, 400, "max_tokens"),
    ({"max_completion_tokens": "9"}, 400, "max_completion_tokens"),
    ({"max_completion_tokens": True}, 400, "max_completion_tokens"),
    ({"reasoning_effort": "maximal"}, 400, "reasoning_effort"),
    ({"reasoning_effort": 3}, 400, "reasoning_effort"),
    ({"tools": {}}, 400, "tools"),
    ({"tools": ["f"]}, 400, "tools[0]"),
    ({"tools": [{"type": "function"}]}, 400, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": "Web Search"}}]}, 400, "tools[0].function.name"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
        400,
        "tools[0].function.parameters",
    ),
    ({"tools": [WEATHER, WEATHER]}, 400, "tools"),
    (
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": HUGE_DEFAULT}}]},
        400,
        "tools",
    ),
    ({"tool_choice": "required"}, 400, "tool_choice"),
    ({"tool_choice": "sometimes"}, 400, "tool_choice"),
    ({"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "g"}}}, 400, "tool_choice"),
    ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, 400, "tool_choice"),
    ({"n": 0}, 400, "n"),
    ({"n": True}, 400, "n"),
    ({"stop": [1]}, 400, "stop"),
    ({"logprobs": 1}, 400, "logprobs"),
    ({"top_logprobs": 3}, 400, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, 400, "top_logprobs"),
    ({"stop": ["a", "b", "c", "d", "e"]}, 400, "stop"),
    ({"stream": "yes"}, 400, "stream"),
    ({"stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"stream": True, "stream_options": []}, 400, "stream_options"),
    ({"response_format": {"type": "yaml"}}, 400, "response_format"),
    ({"response_format": {"type": "json_schema"}}, 400, "response_format.json_schema"),
    ({"harmony_script": [300000]}, 400, "harmony_script"),
    ({"harmony_script": 5}, 400, "harmony_script"),
    ({"harmony_token_delay": -1}, 400, "harmony_token_delay"),
]


@pytest.mark.parametrize(
    ("fields", "status", "param"), REFUSED, ids=[f"{param}: {fields}"[:70] for fields, _, param in REFUSED]
)
def test_fault_of_a_request_is_refused_by_name(http, fields, status, param):
    response = post(http, **fields)
    assert response.status_code == status
    assert response.json()["error"]["param"] == param
    assert f"'{param}'" in response.json()["error"]["message"] or status == 404


def test_refused_effort_names_the_levels(http):
    assert all(level in post(http, reasoning_effort="max").text for level in ("low", "medium", "high"))


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'"x"', b"\xff", b"[" * 100_000, rb'{"model": "\ud800"}', rb'{"model": NaN}']
)
def test_body_that_is_no_json_object_is_refused(http, body):
    response = http.post("/v1/chat/completions", content=body)
    assert response.status_code == 400
    assert response.json()["error"]["code"] == "invalid_json"


@pytest.mark.parametrize("content", [b"x" * 101, [b"x" * 60, b"x" * 60]], ids=["announced", "chunked"])
def test_too_large_body_is_refused(http, monkeypatch, content):
    monkeypatch.setattr("harmony_conformance.reference_server.pipeline.http.LARGEST_BODY", 100)
    response = http.post("/v1/chat/completions", content=content if isinstance(content, bytes) else iter(content))
    assert response.status_code == 413
    assert response.json()["error"]["code"] == "request_too_large"


@pytest.mark.parametrize(
    "fields", [{"n": 1}, {"reasoning_effort": None}, {"stop": None}, {"tool_choice": "none"}, {"seed": 3}]
)
def test_neutral_and_unknown_fields_are_accepted(http, fields):
    assert post(http, **fields).status_code == 200
