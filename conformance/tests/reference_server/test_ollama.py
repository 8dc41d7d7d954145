"""Ollama's API of the reference server, driven by the official client, and its lines one by one."""

import json

import httpx
import ollama
import pytest

from harmony_conformance.reference_server import MODEL
from harmony_ref import decode, encode_with_special_tokens

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather in a place.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
USER = {"role": "user", "content": "Hi"}
ASK = {"model": MODEL, "messages": [USER]}
START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Need weather.<|end|>{START}"
HEAD = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
CALL = HEAD + '{"city":"Paris"}<|call|>'
FINAL = "<|channel|>final<|message|>Sunny, 21 °C. 🫠<|return|>"
METRICS = {
    "total_duration",
    "load_duration",
    "prompt_eval_count",
    "prompt_eval_duration",
    "eval_count",
    "eval_duration",
}


@pytest.fixture(scope="module")
def client(url):
    return ollama.Client(host=url)


class Scripted(httpx.BaseTransport):
    """Adds a script to the body of every request: the client has no extra members."""

    def __init__(self, script):
        self._script = script
        self._under = httpx.HTTPTransport()

    def handle_request(self, request):
        body = {**json.loads(request.read()), "harmony_script": self._script}
        headers = {name: value for name, value in request.headers.items() if name != "content-length"}
        return self._under.handle_request(httpx.Request(request.method, request.url, headers=headers, json=body))


def scripted(url, script):
    return ollama.Client(host=url, transport=Scripted(script))


def post(http, path="/api/chat", **members):
    base = ASK if path == "/api/chat" else {"model": MODEL, "prompt": "Hi"}
    return http.post(path, json={**base, **members})


def answer(http, path="/api/chat", **members):
    response = post(http, path, stream=False, **members)
    assert response.status_code == 200, response.text
    return response.json()


def lines(http, path="/api/chat", **members):
    response = post(http, path, **members)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "application/x-ndjson"
    assert response.text.endswith("\n")
    return [json.loads(line) for line in response.text.splitlines()]


def prompt_of(http, path="/api/chat", **members):
    return decode(answer(http, path, return_token_ids=True, **members)["prompt_token_ids"])


# the official client


def test_unscripted_chat_is_answered(client):
    said = client.chat(MODEL, [USER])
    assert (said.message.role, said.message.content) == ("assistant", "Hello! How can I help you?")
    assert said.message.thinking == "The user wants a short answer."
    assert (said.done, said.done_reason) == (True, "stop")
    assert said.eval_count > 0


@pytest.mark.parametrize(
    "script", [THINK + FINAL, THINK + CALL, CALL, FINAL, THINK], ids=["all", "loop", "call", "final", "thought"]
)
def test_stream_adds_up_to_the_whole_answer(url, script):
    client = scripted(url, script)
    whole = client.chat(MODEL, [USER], tools=[WEATHER])
    parts = list(client.chat(MODEL, [USER], tools=[WEATHER], stream=True))
    assert "".join(part.message.content or "" for part in parts) == (whole.message.content or "")
    assert "".join(part.message.thinking or "" for part in parts) == (whole.message.thinking or "")
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    assert parts[-1].message.tool_calls == whole.message.tool_calls
    assert (parts[-1].eval_count, parts[-1].prompt_eval_count) == (whole.eval_count, whole.prompt_eval_count)


def test_tool_loop_by_the_official_client(url, client, http):
    first = scripted(url, THINK + CALL).chat(MODEL, [USER], tools=[WEATHER])
    call = first.message.tool_calls[0].function
    assert (call.name, call.arguments) == ("get_weather", {"city": "Paris"})
    history = [USER, first.message, {"role": "tool", "tool_name": "get_weather", "content": "sun"}]
    assert client.chat(MODEL, history, tools=[WEATHER]).message.content == "Hello! How can I help you?"
    sent = [USER, first.message.model_dump(exclude_none=True), history[2]]
    assert prompt_of(http, messages=sent, tools=[WEATHER]).endswith(
        "<|start|>user<|message|>Hi<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Need weather.<|end|>"
        '<|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
        "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>sun<|end|>"
        "<|start|>assistant"
    )


def test_python_functions_are_tools_to_the_client(client):
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: one
            b: the other
        """
        return a + b

    assert client.chat(MODEL, [USER], tools=[add]).message.content


def test_generate_by_the_official_client(client):
    whole = client.generate(MODEL, "Hi", think="low")
    assert (whole.response, whole.thinking) == ("Hello! How can I help you?", "The user wants a short answer.")
    parts = list(client.generate(MODEL, "Hi", think="low", stream=True))
    assert "".join(part.response for part in parts) == whole.response
    assert parts[-1].context == whole.context
    again = client.generate(MODEL, "And?", context=whole.context)
    assert again.response == "Hello! How can I help you?"


def test_structured_output_by_the_official_client(client):
    schema = {"type": "object", "properties": {"width": {"type": "integer"}}, "required": ["width"]}
    assert client.chat(MODEL, [USER], format=schema).message.content == '{"width":0}'
    assert client.chat(MODEL, [USER], format="json").message.content == "{}"


def test_what_the_client_asks_of_the_server(client):
    assert [model.model for model in client.list().models] == [f"{MODEL}:latest"]
    shown = client.show(MODEL)
    assert {"tools", "thinking", "completion"} <= set(shown.capabilities)
    assert shown.modelinfo["general.architecture"] == "gptoss"
    assert [model.model for model in client.ps().models] == [f"{MODEL}:latest"]


def test_errors_of_the_official_client(client):
    with pytest.raises(ollama.ResponseError, match="model 'nope' not found") as caught:
        client.chat("nope", [USER])
    assert caught.value.status_code == 404


def test_probabilities_by_the_official_client(client):
    said = client.chat(MODEL, [USER], logprobs=True, top_logprobs=1)
    assert {entry.logprob for entry in said.logprobs} == {0.0}
    assert len(said.logprobs) == said.eval_count


# lines


def test_first_and_last_line(http):
    found = lines(http, harmony_script=THINK + CALL, tools=[WEATHER])
    assert set(found[0]) == {"model", "created_at", "message", "done"}
    assert found[0]["message"] == {"role": "assistant", "content": "", "thinking": "Need"}
    last = found[-1]
    assert set(last) == {"model", "created_at", "message", "done", "done_reason"} | METRICS
    assert last["message"] == {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": last["message"]["tool_calls"][0]["id"],
                "function": {"index": 0, "name": "get_weather", "arguments": {"city": "Paris"}},
            }
        ],
    }
    assert all("tool_calls" not in line["message"] for line in found[:-1])


def test_streaming_is_the_default(http):
    assert len(lines(http)) > 2
    assert len(lines(http, "/api/generate")) > 2


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_lines_add_up(http, path):
    members = {"harmony_script": THINK + FINAL, "return_token_ids": True, "logprobs": True}
    whole = answer(http, path, **members)
    found = lines(http, path, **members)
    assert (
        [token for line in found for token in line["token_ids"]]
        == whole["token_ids"]
        == encode_with_special_tokens(THINK + FINAL)
    )
    assert found[0]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert [entry for line in found for entry in line["logprobs"]] == whole["logprobs"]
    name = "message" if path == "/api/chat" else None
    texts = [
        line[name] if name else {"content": line["response"], "thinking": line.get("thinking", "")} for line in found
    ]
    assert "".join(said["content"] for said in texts) == "Sunny, 21 °C. 🫠"
    assert "".join(said.get("thinking", "") for said in texts) == "Need weather."


@pytest.mark.parametrize("length", range(1, len(encode_with_special_tokens(THINK + CALL)) - 1))
def test_limit_cuts_anywhere(http, length):
    members = {"harmony_script": THINK + CALL, "tools": [WEATHER], "options": {"num_predict": length}}
    whole = answer(http, **members)
    assert (whole["done_reason"], whole["eval_count"]) == ("length", length)
    assert "tool_calls" not in whole["message"]
    assert whole["message"]["content"] == ""
    assert lines(http, **members)[-1]["done_reason"] == "length"


@pytest.mark.parametrize("arguments", ["import json", "[1]", "3", '{"a":', '{"a":[1e400]}'])
def test_arguments_that_are_no_object_are_content(http, arguments):
    members = {"harmony_script": THINK + HEAD + arguments + "<|call|>", "tools": [WEATHER]}
    whole = answer(http, **members)
    assert whole["message"] == {"role": "assistant", "content": arguments, "thinking": "Need weather."}
    assert "".join(line["message"]["content"] for line in lines(http, **members)) == arguments


def test_several_calls(http):
    script = CALL.replace("<|call|>", "<|end|>") + START + CALL.replace("Paris", "Rome")
    calls = answer(http, harmony_script=script, tools=[WEATHER])["message"]["tool_calls"]
    assert [(call["function"]["index"], call["function"]["arguments"]["city"]) for call in calls] == [
        (0, "Paris"),
        (1, "Rome"),
    ]


@pytest.mark.parametrize(
    ("stop", "text"), [(["21"], "Sunny, "), (["°", "y, "], "Sunn"), (["Need"], ""), (["zzz"], "Sunny, 21 °C. 🫠")]
)
def test_stop_strings(http, stop, text):
    whole = answer(http, harmony_script=THINK + FINAL, options={"stop": stop})
    assert (whole["message"]["content"], whole["done_reason"]) == (text, "stop")
    assert (
        "".join(
            line["message"]["content"] for line in lines(http, harmony_script=THINK + FINAL, options={"stop": stop})
        )
        == text
    )


def test_model_is_loaded_and_unloaded(http):
    for path, empty in (("/api/chat", {"messages": []}), ("/api/generate", {"prompt": ""})):
        assert answer(http, path, **empty)["done_reason"] == "load"
        assert answer(http, path, **empty, keep_alive=0)["done_reason"] == "unload"


# prompts


@pytest.mark.parametrize(
    ("think", "level"),
    [
        (None, "medium"),
        (True, "medium"),
        (False, "low"),
        ("low", "low"),
        ("medium", "medium"),
        ("high", "high"),
        ("max", "high"),
    ],
)
def test_think_is_the_effort(http, think, level):
    assert f"Reasoning: {level}\n" in prompt_of(http, think=think)
    assert f"Reasoning: {level}\n" in prompt_of(http, "/api/generate", think=think)


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate"])
def test_prompt_is_rendered_alone(http, path):
    body = answer(http, path, _debug_render_only=True)
    assert body["_debug_info"]["rendered_template"] == prompt_of(http, path)
    assert body["done"] is False


def test_answer_is_begun_by_the_client(http):
    begun = {"role": "assistant", "content": "Once upon"}
    prompt = prompt_of(http, messages=[USER, begun])
    assert prompt.endswith("<|start|>assistant<|channel|>final<|message|>Once upon")
    assert answer(http, messages=[USER, begun], harmony_script=" a time.<|return|>")["message"] == {
        "role": "assistant",
        "content": " a time.",
    }
    thought = {"role": "assistant", "content": "", "thinking": "Hm"}
    assert prompt_of(http, messages=[USER, thought]).endswith("<|start|>assistant<|channel|>analysis<|message|>Hm")
    script = f", well.<|end|>{START}{FINAL}"
    assert answer(http, messages=[USER, thought], harmony_script=script)["message"]["thinking"] == ", well."


def test_context_goes_on(http):
    first = answer(http, "/api/generate", prompt="One", system="Be brief.", harmony_script=THINK + FINAL)
    prompt = prompt_of(http, "/api/generate", prompt="Two", context=first["context"])
    assert prompt.endswith(
        "<|start|>developer<|message|># Instructions\n\nBe brief.<|end|><|start|>user<|message|>One<|end|>"
        "<|start|>assistant<|channel|>final<|message|>Sunny, 21 °C. 🫠<|end|><|start|>user<|message|>Two<|end|><|start|>assistant"
    )


def test_context_of_an_answer_that_was_cut_goes_on(http):
    first = answer(http, "/api/generate", harmony_script=FINAL, options={"num_predict": 5})
    prompt = prompt_of(http, "/api/generate", prompt="Two", context=first["context"])
    assert prompt.startswith(decode(first["context"]))
    assert prompt.endswith("<|start|>user<|message|>Two<|end|><|start|>assistant")


def test_raw_prompt_is_neither_rendered_nor_parsed(http):
    raw = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
    body = answer(http, "/api/generate", prompt=raw, raw=True, harmony_script=THINK + FINAL, return_token_ids=True)
    assert body["prompt_token_ids"] == encode_with_special_tokens(raw)
    assert body["response"] == (THINK + FINAL).removesuffix("<|return|>")
    assert "context" not in body
    assert "".join(
        line["response"] for line in lines(http, "/api/generate", prompt=raw, raw=True, harmony_script=FINAL)
    ) == (FINAL.removesuffix("<|return|>"))


# refusals


@pytest.mark.parametrize(
    ("path", "members", "status"),
    [
        ("/api/chat", {"model": None}, 400),
        ("/api/chat", {"model": "other"}, 404),
        ("/api/chat", {"messages": 3}, 400),
        ("/api/chat", {"messages": [{"role": "bot", "content": "x"}]}, 400),
        ("/api/chat", {"messages": [{"role": "user", "content": ["x"]}]}, 400),
        ("/api/chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, 400),
        ("/api/chat", {"messages": [{"role": "tool", "content": "x"}]}, 400),
        (
            "/api/chat",
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}]},
            400,
        ),
        ("/api/chat", {"think": "minimal"}, 400),
        ("/api/chat", {"format": "xml"}, 400),
        ("/api/chat", {"options": {"temperature": "hot"}}, 400),
        ("/api/chat", {"options": {"num_predict": "many"}}, 400),
        ("/api/chat", {"stream": "yes"}, 400),
        ("/api/chat", {"top_logprobs": 21}, 400),
        ("/api/generate", {"raw": True, "system": "x"}, 400),
        ("/api/generate", {"raw": True, "context": [1]}, 400),
        ("/api/generate", {"suffix": "x"}, 400),
        ("/api/generate", {"context": [-1]}, 400),
        ("/api/show", {"model": "other"}, 404),
    ],
    ids=str,
)
def test_refusals_are_one_sentence(http, path, members, status):
    response = post(http, path, **members)
    assert response.status_code == status, response.text
    assert list(response.json()) == ["error"]
    assert isinstance(response.json()["error"], str)


def test_no_json_is_refused(http):
    response = http.post("/api/chat", content=b"{")
    assert (response.status_code, list(response.json())) == (400, ["error"])


def test_banner(http):
    assert http.get("/").text == "Ollama is running"
    assert http.head("/").status_code == 200
    assert set(http.get("/api/version").json()) == {"version"}


def test_a_stop_string_outside_a_list_is_refused(http):
    refused = post(http, options={"stop": "x"})
    assert (refused.status_code, refused.json()) == (400, {"error": 'option "stop" must be of type array'})
