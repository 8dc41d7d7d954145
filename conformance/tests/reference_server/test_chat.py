import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import httpx
import pytest

from harmony_conformance.reference_server import MODEL, create_app, running
from harmony_ref import decode, encode, encode_with_special_tokens

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
ASK = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
THINK = "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>'


def post(http, **fields):
    return http.post("/v1/chat/completions", json={**ASK, **fields})


def answer(http, **fields):
    response = post(http, **fields)
    assert response.status_code == 200, response.text
    return response.json()


def events(http, **fields):
    response = post(http, stream=True, **fields)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    return [event.removeprefix("data: ") for event in response.text.removesuffix("\n\n").split("\n\n")]


def chunks(http, **fields):
    *data, done = events(http, **fields)
    assert done == "[DONE]"
    return [json.loads(event) for event in data]


def assembled(parts):
    """What a client makes of a stream."""
    message = {"content": "", "reasoning": "", "calls": []}
    finish = None
    for part in parts:
        for choice in part["choices"]:
            delta = choice["delta"]
            message["content"] += delta.get("content") or ""
            message["reasoning"] += delta.get("reasoning") or ""
            for call in delta.get("tool_calls", []):
                if call["index"] == len(message["calls"]):
                    message["calls"].append([call["id"], call["function"]["name"], ""])
                message["calls"][call["index"]][2] += call["function"]["arguments"]
            finish = finish or choice["finish_reason"]
    return message, finish


def flat(message):
    """The same of an answer in one piece."""
    calls = [[call["id"], *call["function"].values()] for call in message.get("tool_calls", [])]
    return {"content": message["content"] or "", "reasoning": message["reasoning"] or "", "calls": calls}


def prompt_of(http, **fields):
    return decode(answer(http, return_token_ids=True, **fields)["prompt_token_ids"])


# the API's surface


def test_unscripted_request_is_answered(client):
    completion = client.chat.completions.create(**ASK)
    assert completion.choices[0].message.content == "Hello! How can I help you?"
    assert completion.choices[0].message.reasoning == "The user wants a short answer."
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens


def test_models_are_listed(client):
    assert [(model.id, model.owned_by) for model in client.models.list()] == [(MODEL, "harmony-conformance")]


def test_server_names_itself_on_every_answer(http):
    for response in (http.get("/health"), http.get("/version"), http.get("/nothing"), post(http), post(http, n=3)):
        assert response.headers.get_list("server") == [f"harmony-conformance/{http.get('/version').json()['version']}"]


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/v2", 404), ("GET", "/v1/chat/completions", 405)])
def test_refused_routes_have_an_error_body(http, method, path, status):
    response = http.request(method, path)
    assert response.status_code == status
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_ids_of_calls_depend_on_the_request_only():
    async def twice():
        transport = httpx.ASGITransport(create_app(now=lambda: 7.0))
        async with httpx.AsyncClient(transport=transport, base_url="http://reference") as client:
            body = {**ASK, "tools": [WEATHER], "harmony_script": CALL}
            return [(await client.post("/v1/chat/completions", json=body)).json() for _ in "ab"]

    first, second = asyncio.run(twice())
    assert first["choices"] == second["choices"]
    assert first["id"] != second["id"]
    assert first["created"] == 7


# what comes back


def test_call_streamed_and_whole(client):
    fields = {**ASK, "tools": [WEATHER], "extra_body": {"harmony_script": THINK + CALL}}
    whole = client.chat.completions.create(**fields).choices[0]
    assert whole.finish_reason == "tool_calls"
    assert whole.message.content is None
    with client.chat.completions.stream(**fields) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.message.tool_calls[0].function.arguments == '{"city":"Paris"}'
    assert final.message.tool_calls[0].id == whole.message.tool_calls[0].id
    assert final.finish_reason == "tool_calls"


def test_own_message_is_accepted_back(client, http):
    first = client.chat.completions.create(**ASK, tools=[WEATHER], extra_body={"harmony_script": THINK + CALL})
    message = first.choices[0].message.model_dump(exclude_none=True)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "sun"}
    prompt = prompt_of(http, messages=[*ASK["messages"], message, result], tools=[WEATHER])
    assert "analysis<|message|>Need weather.<|end|>" in prompt
    assert (
        'to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city":"Paris"}<|call|>' in prompt
    )


def test_stream_has_the_right_shape(http):
    parts = chunks(http, tools=[WEATHER], harmony_script=THINK + CALL, stream_options={"include_usage": True})
    deltas = [part["choices"][0]["delta"] for part in parts[:-1]]
    assert deltas[0] == {"role": "assistant", "content": ""}
    opening = next(delta["tool_calls"][0] for delta in deltas if "tool_calls" in delta)
    assert opening["function"] == {"name": "get_weather", "arguments": ""}
    assert opening["type"] == "function"
    assert deltas[-1] == {}
    assert [part["choices"][0]["finish_reason"] for part in parts[:-1]] == [None] * (len(deltas) - 1) + ["tool_calls"]
    assert parts[-1]["choices"] == []
    assert parts[-1]["usage"] == answer(http, tools=[WEATHER], harmony_script=THINK + CALL)["usage"]
    assert len({(part["id"], part["created"], part["model"]) for part in parts}) == 1
    assert all("usage" not in part for part in parts[:-1])


def test_token_ids_of_a_stream_are_the_whole_output(http):
    script = encode_with_special_tokens(THINK + CALL)
    parts = chunks(http, tools=[WEATHER], harmony_script=script, return_token_ids=True)
    whole = answer(http, tools=[WEATHER], harmony_script=script, return_token_ids=True)
    assert parts[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert [token for part in parts for token in part["choices"][0].get("token_ids", [])] == script
    assert whole["choices"][0]["token_ids"] == script


def test_usage_counts_tokens(http):
    usage = answer(http, harmony_script=THINK + "<|channel|>final<|message|>Sun.<|return|>")["usage"]
    assert usage["completion_tokens"] == len(encode_with_special_tokens(THINK)) + 6
    assert usage["completion_tokens_details"] == {"reasoning_tokens": len(encode("Need weather."))}
    assert usage["prompt_tokens"] == len(answer(http, return_token_ids=True)["prompt_token_ids"])


@pytest.mark.parametrize("stop", ["<|return|>", "<|call|>"])
def test_generation_ends_at_a_stop_token(http, stop):
    body = answer(http, harmony_script=f"<|channel|>final<|message|>a{stop}<|start|>assistant", return_token_ids=True)
    assert body["usage"]["completion_tokens"] == 5
    assert body["choices"][0]["token_ids"][-1] == encode_with_special_tokens(stop)[0]


def test_limit_ends_generation(http):
    choice = answer(http, max_completion_tokens=5, harmony_script=THINK)["choices"][0]
    assert choice["finish_reason"] == "length"
    assert choice["message"]["reasoning"] == "Need weather"


def test_end_of_script_is_the_end_of_the_answer(http):
    choice = answer(http, harmony_script="<|channel|>final<|message|>Hi")["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("stop", "Hi")


def test_call_is_text_when_none_may_be_called(http):
    choice = answer(http, tools=[WEATHER], tool_choice="none", harmony_script=THINK + CALL)["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {"role": "assistant", "content": '{"city":"Paris"}', "reasoning": "Need weather."}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_demanded_call_is_made(http, choice):
    message = answer(http, tools=[WEATHER], tool_choice=choice)["choices"][0]["message"]
    assert message["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": '{"city":"x"}'}


def test_demanded_json_is_given(http):
    schema = {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "enum": ["zzq", "b"]},
            "size": {"type": ["integer", "null"], "minimum": 3},
            "tags": {"type": "array", "items": {"anyOf": [{"type": "boolean"}]}, "minItems": 2},
            "more": {"type": "string"},
        },
        "required": ["colour", "size", "tags"],
    }
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    content = answer(http, response_format=form)["choices"][0]["message"]["content"]
    assert json.loads(content) == {"colour": "zzq", "size": 3, "tags": [False, False]}
    assert answer(http, response_format={"type": "json_object"})["choices"][0]["message"]["content"] == "{}"


def test_characters_that_span_tokens_stay_whole(http):
    text = "Grüße 👩🏽‍🚀 漢字 🫠"
    parts = chunks(http, harmony_script=f"<|channel|>final<|message|>{text}<|return|>")
    assert assembled(parts)[0]["content"] == text
    assert all("\ufffd" not in json.dumps(part, ensure_ascii=False) for part in parts)


def test_character_cut_by_the_limit_is_left_out(http):
    script = [*encode_with_special_tokens("<|channel|>final<|message|>a"), *encode("🫠")]
    assert answer(http, harmony_script=script, max_tokens=len(script) - 1)["choices"][0]["message"]["content"] == "a"


# time


def test_stream_arrives_token_by_token(url):
    script = "<|channel|>final<|message|>one two three four five six<|return|>"
    body = {**ASK, "stream": True, "harmony_script": script, "harmony_token_delay": 0.03}

    def arrivals():
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=body) as response:
            return [time.monotonic() for line in response.iter_lines() if '"content":"' in line]

    streams = [arrivals() for _ in range(5)]  # a busy machine may read one of them late, all of it at once
    assert [len(times) for times in streams] == [7] * 5
    assert any(all(later - earlier > 0.015 for earlier, later in pairwise(times[1:])) for times in streams)


def test_whole_answer_takes_as_long_as_its_tokens(http):
    start = time.monotonic()
    answer(http, harmony_script="<|channel|>final<|message|>one two<|return|>", harmony_token_delay=0.03)
    assert time.monotonic() - start >= 0.18


def test_answer_does_not_wait_for_a_delayed_acknowledgement(http):
    times = []
    for _ in range(15):
        start = time.monotonic()
        post(http)
        times.append(time.monotonic() - start)
    assert min(times) < 0.03  # a delayed acknowledgement adds 0.04 s to each of them


def test_server_stops_while_a_stream_is_open():
    body = {
        **ASK,
        "stream": True,
        "harmony_token_delay": 1,
        "harmony_script": "<|channel|>final<|message|>" + "x " * 60,
    }
    with httpx.Client() as client:
        with running() as url:
            response = client.send(client.build_request("POST", f"{url}/v1/chat/completions", json=body), stream=True)
            next(response.iter_lines())
            start = time.monotonic()
        assert time.monotonic() - start < 5


@pytest.mark.parametrize("streamed", [True, False], ids=["stream", "whole"])
def test_generation_ends_when_the_client_leaves(streamed):
    script = "<|channel|>final<|message|>" + "x y " * 200
    body = {**ASK, "stream": streamed, "harmony_script": script, "harmony_token_delay": 0.5}
    inbox = [{"type": "http.request", "body": json.dumps(body).encode(), "more_body": False}]
    sent = []

    async def receive():
        return inbox.pop() if inbox else {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions",
        "query_string": b"",
        "headers": [],
    }
    start = time.monotonic()
    asyncio.run(create_app()(scope, receive, send))
    assert time.monotonic() - start < 5
    assert b"[DONE]" not in b"".join(message.get("body", b"") for message in sent)


def test_many_at_once_get_their_own_answers(http):
    def one(number):
        script = f"<|channel|>final<|message|>canary {number}<|return|>"
        return answer(http, harmony_script=script, harmony_token_delay=0.005)

    with ThreadPoolExecutor(16) as pool:
        bodies = list(pool.map(one, range(32)))
    assert [body["choices"][0]["message"]["content"] for body in bodies] == [f"canary {number}" for number in range(32)]
    assert len({body["id"] for body in bodies}) == 32
