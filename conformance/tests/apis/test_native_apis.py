"""Ollama, TGI, SGLang, llama.cpp and Completions as the judge reads them: requests there and back, answers of the reference server, and garbage."""

import json
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.apis.chat_completion import read_completion, read_stream
from harmony_conformance.apis.registry import (
    COMPLETIONS,
    LLAMACPP_COMPLETION,
    OLLAMA,
    OLLAMA_GENERATE,
    OLLAMA_RAW,
    SGLANG_GENERATE,
    TGI,
    TGI_GENERATE,
    UnsupportedByApiError,
    find_api,
)
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import loads, value_at
from harmony_conformance.prompts.conversation import ConversationOptions, conversation_of
from harmony_conformance.prompts.expected_parts import PartKind, expected_parts
from harmony_conformance.reference_server import MODEL
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import render_conversation_for_completion

NATIVE = (OLLAMA, OLLAMA_GENERATE, OLLAMA_RAW, TGI, TGI_GENERATE, COMPLETIONS, LLAMACPP_COMPLETION, SGLANG_GENERATE)
TALKING = (OLLAMA, TGI)
DATE = "2025-06-28"
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Köln"}'}}
USER = {"role": "user", "content": "Hi"}
LOOP = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "Weather"}, {"type": "text", "text": "?"}]},
    {"role": "assistant", "content": None, "reasoning": "Need it.", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "21 °C"},
]
THINK = "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant"
HEAD = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
SAID = THINK + "<|channel|>final<|message|>Sunny, 21 °C. 🫠<|return|>"
CALLED = THINK + HEAD + '{"city": "Paris"}<|call|>'


# requests


@pytest.mark.parametrize("api", TALKING, ids=lambda api: api.name)
def test_a_tool_loop_means_the_same_there_and_back(api):
    request = {
        "model": MODEL,
        "messages": LOOP,
        "tools": [WEATHER],
        "reasoning_effort": "high",
        "max_tokens": 9,
        "stop": ["x"],
        "seed": 3,
        "harmony_script": SAID,
    }
    back = api.read_request(api.write_request(request))
    assert _written(back) == _written(request)
    for name in ("model", "tools", "reasoning_effort", "stop", "seed", "harmony_script"):
        assert back[name] == request[name]
    assert back.get("max_tokens", back.get("max_completion_tokens")) == 9


def test_one_stop_string_becomes_a_list_of_one():
    written = OLLAMA.write_request({"model": MODEL, "messages": LOOP, "stop": "x"})
    assert written["options"] == {"stop": ["x"]}


def _written(request):
    return [
        (part.kind, loads(part.text) if part.kind is PartKind.CALL else part.text, part.function, part.retention)
        for part in expected_parts(request)
    ]


TEXTS = st.text(max_size=8)
HISTORY = st.lists(
    st.one_of(
        st.builds(lambda said: {"role": "user", "content": said}, TEXTS),
        st.builds(lambda said: {"role": "system", "content": said}, TEXTS),
        st.builds(lambda said, thought: {"role": "assistant", "content": said, "reasoning": thought}, TEXTS, TEXTS),
        st.builds(
            lambda identity, arguments, answer: (
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {
                            "id": f"call {identity}",
                            "type": "function",
                            "function": {"name": f"f{identity % 3}", "arguments": json.dumps(arguments)},
                        }
                    ],
                },
                {"role": "tool", "tool_call_id": f"call {identity}", "content": answer},
            ),
            st.integers(0, 9),
            st.dictionaries(TEXTS, st.one_of(TEXTS, st.integers(), st.none()), max_size=2),
            TEXTS,
        ),
    ),
    max_size=6,
).map(lambda entries: [one for entry in entries for one in (entry if isinstance(entry, tuple) else (entry,))])


@pytest.mark.parametrize("api", TALKING, ids=lambda api: api.name)
@settings(max_examples=25, deadline=None)
@given(messages=HISTORY)
def test_histories_mean_the_same_there_and_back(api, messages):
    request = {"model": MODEL, "messages": messages}
    assert _written(api.read_request(api.write_request(request))) == _written(request)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
NAMES = [
    *("messages", "tools", "stream", "think", "options", "format", "message", "response", "tool_calls", "function"),
    *("arguments", "role", "content", "done", "choices", "delta", "index", "text", "details", "tokens", "token", "id"),
    *("prefill", "parameters", "stop", "error", "prompt", "inputs", "response_format", "value", "type"),
]
ODD = st.recursive(JSON, lambda inner: st.dictionaries(st.sampled_from(NAMES), inner | st.lists(inner), max_size=4))


@pytest.mark.parametrize("api", NATIVE, ids=lambda api: api.name)
@settings(max_examples=25, deadline=None)
@given(values=st.lists(ODD, max_size=3))
def test_garbage_raises_nothing_and_every_event_has_a_value(api, values):
    for value in values:
        api.read_request(value)
        read_completion(api.read_response(value))
    told = list(api.read_events(values))
    assert len(told) == len(values)
    read_stream(told)


@pytest.mark.parametrize("api", TALKING, ids=lambda api: api.name)
@settings(max_examples=25, deadline=None)
@given(value=st.dictionaries(st.sampled_from(NAMES), ODD, max_size=4))
def test_spelling_raises_nothing_else(api, value):
    with suppress(UnsupportedByApiError):
        api.write_request(value)


@pytest.mark.parametrize(
    ("api", "members"),
    [
        (OLLAMA, {"n": 2}),
        (OLLAMA, {"tool_choice": "required"}),
        (OLLAMA, {"parallel_tool_calls": False}),
        (OLLAMA, {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}),
        (
            OLLAMA,
            {
                "messages": [
                    {
                        "role": "assistant",
                        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": '{"a":'}}],
                    }
                ]
            },
        ),
        (OLLAMA_GENERATE, {"messages": LOOP}),
        (OLLAMA_GENERATE, {"tools": [WEATHER]}),
        (TGI, {"logit_bias": {"1": 1}}),
        (TGI, {"tools": [WEATHER], "response_format": {"type": "json_object"}}),
        (TGI, {"tools": [{"type": "function", "function": {"name": "f"}}]}),
        (TGI, {"response_format": {"type": "json_object"}}),
        (TGI, {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": ["b"]}}}}),
        (TGI_GENERATE, {"stream": True}),
        (TGI_GENERATE, {"messages": [{"role": "user", "content": "<|end|>"}]}),
        (OLLAMA_RAW, {"messages": [{"role": "user", "content": "<|end|>"}]}),
        (COMPLETIONS, {"response_format": {"type": "json_object"}}),
    ],
)
def test_what_an_api_has_not_is_not_spelled(api, members):
    with pytest.raises(UnsupportedByApiError):
        api.write_request({"model": MODEL, "messages": [USER], **members})


@pytest.mark.parametrize("api", TALKING, ids=lambda api: api.name)
def test_a_form_of_the_answer_comes_back(api):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    assert api.read_request(api.write_request({"messages": [USER], "response_format": form}))["response_format"] == form


GOLDEN = {"ollama_chat": "ollama", "ollama_generate": "ollama-generate"}


@pytest.mark.parametrize(
    "test",
    [
        pytest.param(test, id=test["id"])
        for name in GOLDEN
        for test in json.loads((golden.root() / "api" / f"{name}.json").read_text("utf-8"))["tests"]
    ],
)
def test_a_native_request_is_read_as_the_conversation_that_it_means(test, render_by_library):
    asked = find_api(GOLDEN[test["api"]]).read_request(test["request"])
    said = conversation_of(asked, ConversationOptions(), date=DATE)
    rendered = list(render_conversation_for_completion(said))
    assert rendered in [
        list(render_by_library(messages))
        for messages in (test["messages"], *(other["messages"] for other in test.get("also", [])))
    ]


# answers


def post(http, api, path="", **members):
    request = api.write_request(
        {"model": MODEL, "messages": [USER], "tools": [WEATHER], "return_token_ids": True, **members}
    )
    response = http.post(path or api.path, json=request)
    assert response.status_code == 200, response.text
    return response


def values(response):
    lines = [line.removeprefix("data:").strip() for line in response.text.splitlines() if line.strip()]
    return [None if line == "[DONE]" else json.loads(line) for line in lines]


@pytest.mark.parametrize("api", TALKING, ids=lambda api: api.name)
@pytest.mark.parametrize("script", [SAID, CALLED], ids=["answer", "call"])
def test_an_answer_says_the_same_whole_and_streamed(api, script, http):
    whole = read_completion(api.read_response(post(http, api, harmony_script=script).json()))
    told = list(api.read_events(values(post(http, api, harmony_script=script, stream=True))))
    streamed = read_stream(told)
    for name in ("role", "content", "reasoning", "reasoning_field", "tool_calls", "finish_reason", "output_ids"):
        if api is not TGI or name != "output_ids":
            assert getattr(streamed, name) in (getattr(whole, name), getattr(whole, name) or ""), name
    assert whole.reasoning == "Need weather."
    assert whole.finish_reason == ("tool_calls" if script is CALLED else "stop")
    assert [(call.name, json.loads(call.arguments)) for call in whole.tool_calls] == (
        [("get_weather", {"city": "Paris"})] if script is CALLED else []
    )
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + whole.usage.completion_tokens
    assert whole.usage.prompt_tokens == len(whole.prompt_ids)
    assert [value_at(chunk, "choices", 0, "delta", "role") for chunk in told].count("assistant") == 1


def test_older_lines_with_calls_are_read_too():
    call = {"function": {"name": "f", "arguments": {"a": 1}}}
    lines = [
        {"message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False},
        {"message": {"role": "assistant", "content": "", "tool_calls": [call]}, "done": False},
        {"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop", "eval_count": 3},
    ]
    turn = read_stream(OLLAMA.read_events(lines))
    assert [(call.name, call.arguments, call.id) for call in turn.tool_calls] == [
        ("f", '{"a":1}', "call 0"),
        ("f", '{"a":1}', "call 1"),
    ]
    assert (turn.finish_reason, turn.usage.prompt_tokens) == ("tool_calls", None)


def test_a_failure_within_a_stream_stays_a_failure():
    (told,) = OLLAMA.read_events([{"error": "no"}])
    assert told["error"]["message"] == "no"


@pytest.mark.parametrize(
    ("api", "ids"), [(COMPLETIONS, True), (TGI_GENERATE, False), (OLLAMA_RAW, False), (SGLANG_GENERATE, True)]
)
def test_a_conversation_is_sent_as_the_prompt_that_it_is(api, ids, http):
    request = {"model": MODEL, "messages": LOOP, "tools": [WEATHER], "max_tokens": 9, "temperature": 0}
    spelled = api.write_request({**request, "return_token_ids": True})
    chat = http.post("/v1/chat/completions", json={**request, "return_token_ids": True}).json()
    turn = read_completion(api.read_response(http.post(api.path, json=spelled).json()))
    assert turn.prompt_ids == tuple(chat["prompt_token_ids"])
    assert any(isinstance(spelled.get(name), list) for name in ("prompt", "inputs", "input_ids")) is ids


RAW = "<|start|>user<|message|>Hi<|end|><|start|>assistant"


@pytest.mark.parametrize(
    ("api", "body"),
    [
        (COMPLETIONS, {"prompt": RAW, "max_tokens": 99, "return_token_ids": True}),
        (TGI_GENERATE, {"inputs": RAW, "parameters": {"decoder_input_details": True}}),
        (OLLAMA_RAW, {"prompt": RAW, "raw": True, "stream": False, "return_token_ids": True}),
        (SGLANG_GENERATE, {"text": RAW, "return_prompt_token_ids": True}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_raw_continuation_shows_its_ids(api, body, http):
    answer = http.post(api.path, json={"model": MODEL, "harmony_script": SAID, **body}).json()
    turn = read_completion(api.read_response(answer))
    assert turn.prompt_ids is not None
    assert turn.output_ids is not None
    assert len(turn.prompt_ids) == turn.usage.prompt_tokens
    assert len(turn.output_ids) == turn.usage.completion_tokens
    assert turn.finish_reason == "stop"


@pytest.mark.parametrize(
    ("api", "path", "body"),
    [
        (COMPLETIONS, "", {"prompt": RAW, "max_tokens": 99, "stream": True, "stream_options": {"include_usage": True}}),
        (TGI_GENERATE, "/generate_stream", {"inputs": RAW, "parameters": {"details": True}}),
        (OLLAMA_RAW, "", {"prompt": RAW, "raw": True}),
        (SGLANG_GENERATE, "", {"text": RAW, "stream": True, "return_prompt_token_ids": True}),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_raw_stream_is_a_completion(api, path, body, http):
    response = http.post(path or api.path, json={"model": MODEL, "harmony_script": SAID, **body})
    turn = read_stream(api.read_events(values(response)))
    assert "Sunny, 21 °C. 🫠" in turn.content
    assert turn.finish_reason == "stop"
    assert turn.usage.completion_tokens


def real(name):
    file = golden.root() / "exchanges" / "completions.text_is_what_was_written" / f"{name}.json"
    return loads(file.read_text(encoding="utf-8"))["response"]


@pytest.mark.parametrize(
    ("name", "finish", "ids"),
    [("pass-llama-cpp", "stop", 14), ("pass-llama-cpp-cut", "length", 2), ("na-llama-cpp-stop-string", "stop", 8)],
)
def test_an_answer_of_llama_cpp_is_a_completion(name, finish, ids):
    turn = read_completion(LLAMACPP_COMPLETION.read_response(real(name)["json"]))
    assert (turn.finish_reason, len(turn.output_ids), turn.usage.prompt_tokens) == (finish, ids, 265)


def test_a_stream_of_llama_cpp_is_a_completion():
    turn = read_stream(LLAMACPP_COMPLETION.read_events(real("na-llama-cpp-stream")["events"]))
    assert turn.content == "<|channel|>final<|message|> Teal, grün 🫠. "
    assert (turn.finish_reason, turn.output_ids, turn.usage.completion_tokens) == ("stop", None, 14)


def test_llama_cpp_is_asked_in_its_own_words():
    request = {"model": MODEL, "messages": LOOP, "tools": [WEATHER], "max_tokens": 9, "stop": "x", "stream": True}
    spelled = LLAMACPP_COMPLETION.write_request({**request, "stream_options": {"include_usage": True}, "top_k": 1})
    prompt = list(render_conversation_for_completion(conversation_of(request, ConversationOptions(), date=DATE)))
    told = {"model": MODEL, "n_predict": 9, "stop": ["x"], "stream": True, "top_k": 1, "return_tokens": True}
    assert spelled == told | {"prompt": prompt}
    assert LLAMACPP_COMPLETION.read_request(spelled)["max_tokens"] == 9
    with pytest.raises(UnsupportedByApiError, match="logprobs"):
        LLAMACPP_COMPLETION.write_request({**request, "logprobs": True})


def test_sglang_is_asked_in_its_own_words():
    request = {"model": MODEL, "messages": LOOP, "tools": [WEATHER], "max_tokens": 9, "stop": "x", "seed": 3}
    spelled = SGLANG_GENERATE.write_request({**request, "stream": True, "return_token_ids": True, "temperature": 0})
    prompt = list(render_conversation_for_completion(conversation_of(request, ConversationOptions(), date=DATE)))
    sampling = {"max_new_tokens": 9, "sampling_seed": 3, "temperature": 0, "stop": "x"}
    told = {"model": MODEL, "input_ids": prompt, "sampling_params": sampling, "stream": True}
    assert spelled == told | {"return_prompt_token_ids": True}
    asked = SGLANG_GENERATE.read_request(spelled)
    assert [asked[name] for name in ("max_tokens", "seed", "stop", "stream")] == [9, 3, "x", True]


def of_sglang(text, ids, count, ending=None, **more):
    told = {"finish_reason": ending, "prompt_tokens": 5, "completion_tokens": count, "cached_tokens": 4}
    return {"text": text, "output_ids": ids, "meta_info": told, **more}


@pytest.mark.parametrize(
    "events",
    [
        [
            of_sglang("a", [64], 1),
            of_sglang("a", [64, 200007], 2),
            of_sglang("aab", [64, 200007, 375], 3, {"type": "stop"}),
        ],
        [of_sglang("a", [64], 1), of_sglang("", [200007], 2), of_sglang("ab", [375], 3, {"type": "stop"})],
    ],
    ids=["all so far", "what is new"],
)
def test_a_stream_of_sglang_is_read_either_way(events):
    turn = read_stream(SGLANG_GENERATE.read_events([*events, None]))
    assert (turn.content, turn.output_ids, turn.finish_reason) == ("aab", (64, 200007, 375), "stop")
    assert (turn.usage.prompt_tokens, turn.usage.completion_tokens, turn.usage.cached_tokens) == (5, 3, 4)


def test_several_answers_of_sglang_are_choices():
    answers = [of_sglang("a", [64], 1, {"type": "stop"}), of_sglang("b", [65], 1, {"type": "length", "length": 1})]
    told = SGLANG_GENERATE.read_response(answers)
    assert [value_at(choice, "finish_reason") for choice in told["choices"]] == ["stop", "length"]
    assert told["usage"]["completion_tokens"] == 2
    streamed = [{**answer, "index": index} for index, answer in enumerate(answers)]
    assert [value_at(chunk, "choices", 0, "delta", "content") for chunk in SGLANG_GENERATE.read_events(streamed)] == [
        "a",
        "b",
    ]


def test_an_aborted_generation_of_sglang_is_a_failure():
    ending = {"type": "abort", "message": "too long", "status_code": 400, "err_type": "BadRequestError"}
    assert SGLANG_GENERATE.read_response(of_sglang("", [], 0, ending))["error"]["message"] == "too long"
    assert SGLANG_GENERATE.read_response({"error": "no"})["error"]["message"] == "no"


@pytest.mark.parametrize(
    ("path", "body", "names"),
    [
        ("/sglang/generate", {"text": "x", "input_ids": [64]}, ["error"]),
        ("/sglang/generate", {"text": "x", "sampling_params": {"max_tokens": 1}}, ["error"]),
        (
            "/separate_reasoning",
            {"text": "x", "reasoning_parser": "qwen3"},
            ["code", "message", "object", "param", "type"],
        ),
        ("/v1/tokenize", {}, ["code", "message", "object", "param", "type"]),
    ],
)
def test_the_reference_server_refuses_in_the_words_of_sglang(path, body, names, http):
    response = http.post(path, json=body)
    assert (response.status_code, sorted(response.json())) == (400, names)


def test_the_tokenizer_of_sglang_shows_the_prompt_of_a_chat(http):
    request = {"messages": LOOP, "tools": [WEATHER], "reasoning_effort": "high"}
    chat = http.post("/v1/chat/completions", json={"model": MODEL, **request, "return_token_ids": True}).json()
    assert http.post("/v1/tokenize", json=request).json()["tokens"] == chat["prompt_token_ids"]


NUMBERS = '{"id":12345678901234567000,"ratio":1.0,"tiny":1e-7}'


def answered(api, path, kind, data):
    chunk = Chunk(arrival_time=0.0, data=data.encode())
    response = Response(status=200, headers={"content-type": kind}, chunks=(chunk,))
    return Exchange(id="x", api=api, request=Request(path=path, body=b"{}"), response=response)


CALLED_LINE = f'{{"message":{{"role":"assistant","tool_calls":[{{"function":{{"name":"f","arguments":{NUMBERS}}}}}]}},"done":true}}\n'
BLOCK = f'{{"type":"tool_use","id":"toolu_1","name":"f","input":{NUMBERS}}}'
MESSAGE = f'{{"type":"message","role":"assistant","content":[{BLOCK}],"stop_reason":"tool_use"}}'


@pytest.mark.parametrize(
    "x",
    [
        pytest.param(answered("ollama", "/api/chat", "application/json", CALLED_LINE), id="Ollama"),
        pytest.param(answered("ollama", "/api/chat", "application/x-ndjson", CALLED_LINE), id="Ollama, streamed"),
        pytest.param(answered("messages", "/v1/messages", "application/json", MESSAGE), id="Messages"),
    ],
)
def test_arguments_that_are_an_object_keep_the_spelling_of_their_numbers(x):
    assert x.turn.tool_calls[0].arguments == NUMBERS
