"""The Completions API of the reference server, driven by the official client: prompts go in and texts come out unread."""

import json

import pytest

from harmony_conformance.reference_server import MODEL
from harmony_ref import decode, encode, encode_with_special_tokens

PROMPT = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
ASK = {"model": MODEL, "prompt": PROMPT, "max_tokens": 64}
SCRIPT = "<|channel|>final<|message|>One two three. 🫠<|return|>"


def answer(http, **members):
    response = http.post("/v1/completions", json={**ASK, **members})
    assert response.status_code == 200, response.text
    return response.json()


def choice(http, **members):
    return answer(http, **members)["choices"][0]


def chunks(http, **members):
    response = http.post("/v1/completions", json={**ASK, **members, "stream": True})
    assert response.status_code == 200, response.text
    *data, done = response.text.removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    return [json.loads(event.removeprefix("data: ")) for event in data]


def told(parts):
    """What a client makes of a stream, choice by choice."""
    found = {}
    for part in parts:
        for piece in part["choices"]:
            text, finish = found.get(piece["index"], ("", None))
            found[piece["index"]] = (text + piece["text"], finish or piece["finish_reason"])
    return found


# the official client


def test_prompt_is_continued(client):
    completion = client.completions.create(**ASK)
    assert (
        completion.choices[0].text == "analysisThe user wants a short answer.assistantfinalHello! How can I help you?"
    )
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage.prompt_tokens == len(encode_with_special_tokens(PROMPT))


def test_stream_is_the_whole_answer(client):
    asked = {**ASK, "extra_body": {"harmony_script": SCRIPT}}
    whole = client.completions.create(**asked)
    parts = list(client.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert "".join(part.choices[0].text for part in parts[:-1]) == whole.choices[0].text == "finalOne two three. 🫠"
    assert [part.choices[0].finish_reason for part in parts[:-1]][-1] == "stop"
    assert parts[-1].usage == whole.usage


def test_several_prompts(client, http):
    asked = {**ASK, "prompt": ["a", "b"], "extra_body": {"harmony_script": SCRIPT}}
    completion = client.completions.create(**asked)
    assert [(one.index, one.text) for one in completion.choices] == [
        (0, "finalOne two three. 🫠"),
        (1, "finalOne two three. 🫠"),
    ]
    assert told(chunks(http, prompt=["a", "b"], harmony_script=SCRIPT)) == {
        0: ("finalOne two three. 🫠", "stop"),
        1: ("finalOne two three. 🫠", "stop"),
    }


# prompts


@pytest.mark.parametrize(
    ("prompt", "ids"),
    [
        (PROMPT, encode_with_special_tokens(PROMPT)),
        (encode_with_special_tokens(PROMPT), encode_with_special_tokens(PROMPT)),
        ([encode(PROMPT)], encode(PROMPT)),
        ([PROMPT], encode_with_special_tokens(PROMPT)),
    ],
    ids=["a text with markers", "token ids", "ordinary tokens that spell markers", "a list of texts"],
)
def test_prompt_is_read(http, prompt, ids):
    assert choice(http, prompt=prompt, return_token_ids=True)["prompt_token_ids"] == ids


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        (PROMPT, "<|channel|>analysis<|message|>The user wants a short answer.<|end|><|start|>assistant"),
        (f"{PROMPT}<|channel|>final<|message|>", "Hello! How can I help you?"),
        (f"{PROMPT}<|channel|>final", "<|message|>Hello!"),
        ("Once", " Hello! How can I help you?"),
    ],
    ids=["at a header", "at a text", "in a header", "in no Harmony"],
)
def test_model_goes_on_where_the_prompt_ends(http, prompt, text):
    assert choice(http, prompt=prompt, skip_special_tokens=False)["text"].startswith(text)


# texts


def test_markers_are_left_out_or_shown(http):
    assert choice(http, harmony_script=SCRIPT)["text"] == "finalOne two three. 🫠"
    shown = choice(http, harmony_script=SCRIPT, skip_special_tokens=False)
    assert shown["text"] == "<|channel|>final<|message|>One two three. 🫠"


def test_token_ids_are_returned(http):
    ids = encode_with_special_tokens(SCRIPT)
    assert choice(http, harmony_script=SCRIPT, return_token_ids=True)["token_ids"] == ids
    parts = chunks(http, harmony_script=SCRIPT, return_token_ids=True)
    assert [token for part in parts for token in part["choices"][0].get("token_ids", [])] == ids
    assert [part["choices"][0]["prompt_token_ids"] for part in parts if "prompt_token_ids" in part["choices"][0]] == [
        encode_with_special_tokens(PROMPT)
    ]


@pytest.mark.parametrize("length", range(1, len(encode_with_special_tokens(SCRIPT))))
def test_limit_cuts(http, length):
    cut = answer(http, harmony_script=SCRIPT, max_tokens=length)
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == length
    assert "finalOne two three. 🫠".startswith(cut["choices"][0]["text"])
    assert told(chunks(http, harmony_script=SCRIPT, max_tokens=length))[0] == (cut["choices"][0]["text"], "length")


def test_16_tokens_are_the_usual_limit(http):
    assert answer(http, max_tokens=None, harmony_script="a b " * 50)["usage"]["completion_tokens"] == 16


@pytest.mark.parametrize(
    ("members", "text", "stop"),
    [
        ({"stop": "two"}, "finalOne ", "two"),
        ({"stop": [" thr", "o t"]}, "finalOne tw", "o t"),
        ({"stop": "two", "include_stop_str_in_output": True}, "finalOne two", "two"),
        ({"stop": "four"}, "finalOne two three. 🫠", None),
        ({"stop": "One two thre!"}, "finalOne two three. 🫠", None),
        ({"stop": []}, "finalOne two three. 🫠", None),
    ],
    ids=str,
)
def test_stop_string_ends_it(http, members, text, stop):
    whole = choice(http, harmony_script=SCRIPT, **members)
    assert (whole["text"], whole["finish_reason"], whole["stop_reason"]) == (text, "stop", stop)
    assert told(chunks(http, harmony_script=SCRIPT, **members))[0] == (text, "stop")


def test_tokens_behind_a_stop_string_are_not_generated(http):
    assert answer(http, harmony_script="a b " * 50, stop="a b a")["usage"]["completion_tokens"] < 6


def test_prompt_is_echoed(http):
    assert choice(http, echo=True, harmony_script=SCRIPT)["text"] == f"{PROMPT}finalOne two three. 🫠"
    ids = encode_with_special_tokens(PROMPT)
    assert choice(http, prompt=ids, echo=True, harmony_script="x")["text"] == "userHiassistantx"
    shown = choice(http, prompt=ids, echo=True, harmony_script="x", skip_special_tokens=False)
    assert shown["text"] == f"{PROMPT}x"
    assert told(chunks(http, echo=True, harmony_script=SCRIPT))[0][0] == f"{PROMPT}finalOne two three. 🫠"


def test_prompt_alone_is_echoed(http):
    found = answer(http, echo=True, max_tokens=0, logprobs=1)
    assert found["choices"][0]["text"] == PROMPT
    assert found["usage"]["completion_tokens"] == 0
    assert found["choices"][0]["logprobs"]["tokens"] == [
        decode([token]) for token in encode_with_special_tokens(PROMPT)
    ]


def test_probabilities(http):
    found = choice(http, harmony_script="One two", logprobs=1, echo=True, prompt="Zero, ", skip_special_tokens=False)
    logprobs = found["logprobs"]
    assert "".join(logprobs["tokens"]) == "Zero, One two" == found["text"]
    assert [
        found["text"][place:].startswith(token)
        for place, token in zip(logprobs["text_offset"], logprobs["tokens"], strict=True)
    ]
    assert logprobs["token_logprobs"] == [None] + [0.0] * (len(logprobs["tokens"]) - 1)
    assert logprobs["top_logprobs"][1:] == [{token: 0.0} for token in logprobs["tokens"][1:]]
    assert choice(http, harmony_script="One", logprobs=0)["logprobs"]["top_logprobs"] is None
    assert choice(http, harmony_script="One")["logprobs"] is None


def test_probabilities_of_a_stream_are_those_of_the_whole(http):
    members = {"harmony_script": "One two three", "logprobs": 1, "echo": True, "skip_special_tokens": False}
    whole = choice(http, **members)["logprobs"]
    parts = [part["choices"][0]["logprobs"] for part in chunks(http, **members)]
    assert {name: [entry for part in parts for entry in part[name]] for name in whole} == whole


# refusals


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": ["a", [1.5]]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [300000]}, "prompt"),
        ({"n": 2}, "n"),
        ({"suffix": "x"}, "suffix"),
        ({"logprobs": 6}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": "9"}, "max_tokens"),
        ({"stop": 3}, "stop"),
        ({"stop": list("abcde")}, "stop"),
        ({"echo": "yes"}, "echo"),
        ({"stream_options": {}}, "stream_options"),
    ],
    ids=str,
)
def test_refusal_names_the_parameter(http, members, param):
    response = http.post("/v1/completions", json={**ASK, **members})
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
