"""Text Generation Inference as the reference server speaks it, driven by the official client of Hugging Face, and its tokens one by one."""

import json
import os
import subprocess
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError, ValidationError

from harmony_conformance.reference_server import MODEL
from harmony_conformance.reference_server.tgi.tokenize import token_offsets
from harmony_ref import decode, encode, encode_with_special_tokens

PROMPT = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
SCRIPT = "<|channel|>final<|message|>One two three. 🫠<|return|>"
TEXT = "finalOne two three. 🫠"
START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Need weather.<|end|>{START}"
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
FINAL = "<|channel|>final<|message|>Sunny.<|return|>"
USER = [{"role": "user", "content": "Hi"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture(scope="module")
def native(url):
    return InferenceClient(model=f"{url}/tgi")


@pytest.fixture(scope="module")
def chat(url):
    return InferenceClient(base_url=f"{url}/tgi")


def generate(http, path="/generate", **members):
    parameters = members.pop("parameters", {})
    response = http.post(path, json={"inputs": PROMPT, "parameters": parameters, **members})
    assert response.status_code == 200, response.text
    return response


def whole(http, **members):
    return generate(http, **members).json()


def events(http, **members):
    text = generate(http, "/generate_stream", **members).text
    return [json.loads(event.removeprefix("data: ")) for event in text.removesuffix("\n\n").split("\n\n")]


def chunks(http, **members):
    response = http.post("/tgi/v1/chat/completions", json={"messages": USER, "stream": True, **members})
    *data, done = response.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in data]


def message(http, **members):
    response = http.post("/tgi/v1/chat/completions", json={"messages": USER, **members})
    assert response.status_code == 200, response.text
    return response.json()


# the official client


def test_text_generation_by_the_official_client(native):
    assert (
        native.text_generation(PROMPT)
        == "analysisThe user wants a short answer.assistantfinalHello! How can I help you?"
    )
    found = native.text_generation(PROMPT, details=True, decoder_input_details=True)
    assert [token.id for token in found.details.prefill] == encode_with_special_tokens(PROMPT)
    assert found.details.finish_reason == "eos_token"
    assert found.details.generated_tokens == len(found.details.tokens)
    assert native.text_generation(PROMPT, return_full_text=True).startswith(PROMPT)


def test_streamed_text_generation_by_the_official_client(native):
    found = list(native.text_generation(PROMPT, details=True, stream=True))
    assert "".join(event.token.text for event in found if not event.token.special) == found[-1].generated_text
    assert found[-1].generated_text == native.text_generation(PROMPT)
    assert found[-1].details.input_length == len(encode_with_special_tokens(PROMPT))


def test_refusal_reaches_the_official_client(native):
    with pytest.raises((HfHubHTTPError, ValidationError), match="must be strictly positive"):
        native.text_generation(PROMPT, temperature=-1.0)


def test_chat_by_the_official_client(chat):
    found = chat.chat_completion(USER)
    assert found.choices[0].message.content == "Hello! How can I help you?"
    assert found.choices[0].finish_reason == "stop"
    assert found.system_fingerprint == "3.3.6-dev0-native"
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens


def test_streamed_chat_by_the_official_client(chat):
    found = list(chat.chat_completion(USER, stream=True, stream_options={"include_usage": True}))
    assert (
        "".join(part.choices[0].delta.content or "" for part in found if part.choices) == "Hello! How can I help you?"
    )
    assert found[-1].usage.prompt_tokens > 0


def test_tool_loop_by_the_official_client(chat):
    asked = {"tools": [WEATHER], "extra_body": {"harmony_script": THINK + CALL}}
    first = chat.chat_completion(USER, **asked).choices[0].message
    call = first.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("get_weather", {"city": "Paris"})
    back = [
        *USER,
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.function.name, "arguments": call.function.arguments},
                }
            ],
        },
        {"role": "tool", "tool_call_id": call.id, "content": "sun"},
    ]
    assert chat.chat_completion(back, tools=[WEATHER]).choices[0].message.content == "Hello! How can I help you?"


def test_streamed_calls_by_the_official_client(chat):
    found = list(chat.chat_completion(USER, tools=[WEATHER], stream=True, extra_body={"harmony_script": THINK + CALL}))
    deltas = [part.choices[0].delta.tool_calls for part in found if part.choices[0].delta.tool_calls]
    assert "".join(calls[0].function.arguments for calls in deltas) == '{"city":"Paris"}'


def test_the_older_official_client(url):
    python = os.environ.get("HARMONY_TEXT_GENERATION_PYTHON")
    if python is None:
        pytest.skip("HARMONY_TEXT_GENERATION_PYTHON names no environment with text-generation 0.7.0")
    script = Path(__file__).with_name("text_generation_client.py")
    ran = subprocess.run([python, script, f"{url}/tgi"], capture_output=True, text=True, check=True, timeout=120)
    text = "analysisThe user wants a short answer.assistantfinalHello! How can I help you?"
    assert json.loads(ran.stdout) == {
        "text": text,
        "prefill": encode_with_special_tokens(PROMPT),
        "finish": "eos_token",
        "streamed": text,
        "at_the_end": text,
        "refusal": "Input validation error: `stop` supports up to 4 stop sequences. Given: 5",
        "chat": "Hello! How can I help you?",
        "called": "f",
        "async": text,
    }


# generation


@pytest.mark.parametrize("path", ["/generate", "/tgi/generate"])
def test_tokens_are_shown_as_they_are(http, path):
    parameters = {"details": True, "decoder_input_details": True}
    body = generate(http, path, parameters=parameters, harmony_script=SCRIPT).json()
    assert body["generated_text"] == TEXT
    details = body["details"]
    assert [token["id"] for token in details["tokens"]] == encode_with_special_tokens(SCRIPT)
    assert [token["text"] for token in details["tokens"] if token["special"]] == [
        "<|channel|>",
        "<|message|>",
        "<|return|>",
    ]
    assert "".join(token["text"] for token in details["tokens"] if not token["special"]) == TEXT
    assert [token["id"] for token in details["prefill"]] == encode_with_special_tokens(PROMPT)
    assert details["prefill"][0]["logprob"] is None


def test_details_are_only_told_when_asked_for(http):
    assert whole(http) == {"generated_text": whole(http)["generated_text"]}
    assert whole(http, parameters={"details": True})["details"]["prefill"] == []


def test_stream_is_the_whole_answer(http):
    body = whole(http, harmony_script=SCRIPT, parameters={"details": True, "seed": 3})
    found = events(http, harmony_script=SCRIPT, parameters={"details": True, "seed": 3})
    assert [event["token"] for event in found] == body["details"]["tokens"]
    assert [event["index"] for event in found] == list(range(1, len(found) + 1))
    assert all(event["generated_text"] is None and event["details"] is None for event in found[:-1])
    assert found[-1]["generated_text"] == body["generated_text"]
    assert found[-1]["details"] == {
        "finish_reason": "eos_token",
        "generated_tokens": len(found),
        "seed": 3,
        "input_length": len(encode_with_special_tokens(PROMPT)),
    }


@pytest.mark.parametrize(
    ("parameters", "text", "finish"),
    [
        ({"max_new_tokens": 4}, "finalOne", "length"),
        ({"stop": ["two"]}, "finalOne two", "stop_sequence"),
        ({"stop": ["zzz"]}, TEXT, "eos_token"),
        ({"max_new_tokens": 500}, TEXT, "eos_token"),
    ],
    ids=str,
)
def test_what_ends_it(http, parameters, text, finish):
    body = whole(http, harmony_script=SCRIPT, parameters={**parameters, "details": True})
    assert (body["generated_text"], body["details"]["finish_reason"]) == (text, finish)
    last = events(http, harmony_script=SCRIPT, parameters={**parameters, "details": True})[-1]
    assert (last["generated_text"], last["details"]["finish_reason"]) == (text, finish)


def test_limit_at_the_stop_token_is_its_end(http):
    length = len(encode_with_special_tokens(SCRIPT))
    body = whole(http, harmony_script=SCRIPT, parameters={"max_new_tokens": length, "details": True})
    assert body["details"]["finish_reason"] == "eos_token"


def test_native_stream_has_no_done(http):
    assert "[DONE]" not in generate(http, "/generate_stream").text


def test_headers_count(http):
    headers = generate(http, harmony_script=SCRIPT).headers
    assert headers["x-prompt-tokens"] == str(len(encode_with_special_tokens(PROMPT)))
    assert headers["x-generated-tokens"] == str(len(encode_with_special_tokens(SCRIPT)))
    assert {"x-total-time", "x-queue-time", "x-validation-time", "x-inference-time"} <= set(headers)


def test_input_is_cut_from_the_left(http):
    body = whole(http, parameters={"truncate": 3, "decoder_input_details": True})
    assert [token["id"] for token in body["details"]["prefill"]] == encode_with_special_tokens(PROMPT)[-3:]


def test_alternatives(http):
    body = whole(http, harmony_script=SCRIPT, parameters={"top_n_tokens": 2, "details": True})
    assert body["details"]["top_tokens"] == [[token] for token in body["details"]["tokens"]]


def test_grammar_is_kept(http):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert whole(http, parameters={"grammar": {"type": "json", "value": schema}})["generated_text"] == '{"a":0}'


def test_root_answers_as_either(http):
    assert http.post("/", json={"inputs": PROMPT}).json() == [whole(http)]
    assert http.post("/tgi", json={"inputs": PROMPT, "stream": True}).text == generate(http, "/generate_stream").text


# tokens


def test_text_is_tokenised_with_its_markers(http):
    told = http.post("/tokenize", json={"inputs": "a <|end|>🫠b"}).json()
    assert [token["id"] for token in told] == encode_with_special_tokens("a <|end|>🫠b")
    assert (told[0]["start"], told[0]["stop"], told[-1]["stop"]) == (0, 1, len("a <|end|>🫠b".encode()))
    assert [token["text"] for token in told if token["text"].startswith("<|")] == ["<|end|>"]


SPLIT = [
    {"id": 12194, "text": "Hi", "start": 0, "stop": 2},
    {"id": 1212, "text": " é", "start": 2, "stop": 5},
    {"id": 197348, "text": " 🍕", "start": 5, "stop": 10},
    {"id": 243, "text": "🍕", "start": 6, "stop": 10},
    {"id": 220, "text": " ", "start": 10, "stop": 11},
    {"id": 200007, "text": "<|end|>", "start": 11, "stop": 18},
]
"""What TGI's own router 3.3.7 answers."""


def test_offsets_are_those_of_the_router():
    assert token_offsets([entry["id"] for entry in SPLIT]) == SPLIT


@pytest.mark.parametrize("seed", range(20))
def test_ranges_are_whole_characters_that_cover_the_text(seed):
    text = "".join(Random(seed).choices("ab é<|end|>🫠👩‍🚀𒀀漢\u0301\U000e0041", k=200))
    told = token_offsets(encode_with_special_tokens(text))
    assert [entry["text"] for entry in told] == [
        text.encode()[entry["start"] : entry["stop"]].decode() for entry in told
    ]
    assert (told[0]["start"], told[-1]["stop"]) == (0, len(text.encode()))
    assert all(before["start"] <= after["start"] <= before["stop"] for before, after in pairwise(told))


def test_chat_is_tokenised(http):
    told = http.post("/chat_tokenize", json={"messages": USER, "reasoning_effort": "high"}).json()
    ids = [token["id"] for token in told["tokenize_response"]]
    assert decode(ids) == told["templated_text"]
    assert "Reasoning: high" in told["templated_text"]
    assert ids == message(http, reasoning_effort="high", return_token_ids=True)["prompt_token_ids"]


def test_markers_in_a_chat_are_text(http):
    told = http.post("/chat_tokenize", json={"messages": [{"role": "user", "content": "<|end|>"}]}).json()
    ids = [token["id"] for token in told["tokenize_response"]]
    assert ids[-len(encode("<|end|>")) - 3 : -3] == encode("<|end|>")


# the Messages API


def test_model_is_not_read(http):
    assert message(http, model="tgi")["choices"][0]["message"]["content"] == "Hello! How can I help you?"


def test_call_ends_with_stop(http):
    body = message(http, tools=[WEATHER], harmony_script=THINK + CALL)
    choice = body["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert choice["message"] == {
        "role": "assistant",
        "reasoning": "Need weather.",
        "tool_calls": [
            {
                "id": choice["message"]["tool_calls"][0]["id"],
                "type": "function",
                "function": {"description": None, "name": "get_weather", "arguments": '{"city":"Paris"}'},
            }
        ],
    }


def test_chunks_repeat_the_role(http):
    found = chunks(http, harmony_script=THINK + FINAL, stream_options={"include_usage": True})
    assert {part["choices"][0]["delta"]["role"] for part in found[:-1]} == {"assistant"}
    assert "".join(part["choices"][0]["delta"].get("content", "") for part in found[:-1]) == "Sunny."
    assert "".join(part["choices"][0]["delta"].get("reasoning", "") for part in found[:-1]) == "Need weather."
    assert [part["choices"][0]["finish_reason"] for part in found[:-1] if part["choices"][0]["finish_reason"]] == [
        "stop"
    ]
    assert found[-1]["usage"] == message(http, harmony_script=THINK + FINAL)["usage"]


def test_stop_string_of_a_chat(http):
    body = message(http, harmony_script=THINK + FINAL, stop=["ny"])
    assert (body["choices"][0]["message"]["content"], body["choices"][0]["finish_reason"]) == ("Sun", "stop_sequence")


def test_limit_of_a_chat(http):
    assert message(http, max_tokens=5)["choices"][0]["finish_reason"] == "length"


# refusals


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {}),
        ("/generate", {"inputs": ""}),
        ("/generate", {"inputs": 3}),
        ("/generate", {"inputs": "x", "parameters": 3}),
        ("/generate", {"inputs": "x", "parameters": {"max_new_tokens": 0}}),
        ("/generate", {"inputs": "x", "parameters": {"temperature": 0}}),
        ("/generate", {"inputs": "x", "parameters": {"top_p": 1.0}}),
        ("/generate", {"inputs": "x", "parameters": {"best_of": 2}}),
        ("/generate", {"inputs": "x", "parameters": {"stop": list("abcde")}}),
        ("/generate", {"inputs": "x", "parameters": {"details": "yes"}}),
        ("/generate", {"inputs": "x", "parameters": {"grammar": {"type": "regex", "value": "a"}}}),
        ("/generate_stream", {"inputs": "x", "parameters": {"decoder_input_details": True}}),
        ("/tokenize", {"inputs": None}),
        ("/chat_tokenize", {"messages": []}),
        ("/tgi/v1/chat/completions", {"messages": [{"role": "bot", "content": "x"}]}),
        ("/tgi/v1/chat/completions", {"messages": USER, "max_tokens": 0}),
        ("/tgi/v1/chat/completions", {"messages": USER, "stop": "x"}),
        ("/generate", {"inputs": "x", "parameters": None}),
        ("/generate", {"inputs": "x", "parameters": {"seed": -1}}),
        ("/generate", {"inputs": "x", "parameters": {"grammar": {"type": "json", "value": {"type": "object"}}}}),
        ("/tgi/v1/chat/completions", {"messages": USER, "response_format": {"type": "json_object"}}),
    ],
    ids=str,
)
def test_refusals_are_422(http, path, body):
    response = http.post(path, json=body)
    assert response.status_code == 422, response.text
    assert set(response.json()) == {"error", "error_type"}
    assert response.json()["error_type"] == "validation"


def test_grammar_next_to_tools_is_a_tool_error(http):
    grammar = {"type": "json", "value": {"properties": {}}}
    response = http.post(
        "/tgi/v1/chat/completions", json={"messages": USER, "tools": [WEATHER], "response_format": grammar}
    )
    told = {"error": "Tool error: Grammar and tools are mutually exclusive", "error_type": "tool_error"}
    assert (response.status_code, response.json()) == (422, told)


def test_what_is_reported_of_the_server(http):
    info = http.get("/info").json()
    assert (info["model_id"], info["router"]) == (MODEL, "text-generation-router")
    assert http.get("/tgi/health").content == b""
    assert http.get("/tgi/v1/models").json()["data"][0]["id"] == MODEL
    assert http.get("/tgi").status_code == 200
