"""The Responses API of the reference server, driven by the official client, and its events held against a grammar."""

import json
import re
from itertools import pairwise

import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from harmony_conformance.reference_server import MODEL
from harmony_ref import decode, encode, encode_with_special_tokens

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "Weather in a place.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
ASK = {"model": MODEL, "input": "Hi"}
START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Need weather.<|end|>{START}"
CALL = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
PREAMBLE = f"<|channel|>commentary<|message|>I look it up.<|end|>{START}"
FINAL = "<|channel|>final<|message|>Sunny, 21 °C. 🫠<|return|>"
PYTHON = "<|channel|>analysis to=python code<|message|>print(1)<|call|>"
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"x","topn":3}<|call|>'
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"id":"https://a.example","cursor":2}<|call|>'
BUILT_IN = [{"type": "web_search"}, {"type": "code_interpreter", "container": {"type": "auto"}}]
SCRIPTS = {
    "an answer": THINK + FINAL,
    "a call": THINK + CALL,
    "a preamble and a call": THINK + PREAMBLE + CALL,
    "two calls": CALL.replace("<|call|>", "<|end|>") + START + CALL,
    "python": THINK + PYTHON,
    "a search": THINK + SEARCH,
    "a page": OPEN,
    "no final answer": "<|channel|>analysis<|message|>Hm.<|end|>",
    "an empty thought": f"<|channel|>analysis<|message|><|end|>{START}{FINAL}",
    "an empty answer": "<|channel|>final<|message|><|return|>",
    "nothing": "<|return|>",
    "no header": "Hello<|return|>",
}
EVENT = TypeAdapter(ResponseStreamEvent)


def post(http, **members):
    return http.post("/v1/responses", json={**ASK, **members})


def answer(http, **members):
    response = post(http, **members)
    assert response.status_code == 200, response.text
    return response.json()


def events(http, **members):
    response = post(http, stream=True, **members)
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.text.endswith("\n\n")
    found = []
    for block in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def prompt_of(http, **members):
    return decode(answer(http, return_token_ids=True, **members)["prompt_token_ids"])


# the official client


def test_unscripted_request_is_answered(client):
    response = client.responses.create(**ASK)
    assert response.output_text == "Hello! How can I help you?"
    assert response.output[0].content[0].text == "The user wants a short answer."
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_official_client_reads_a_stream_as_the_whole_answer(client, script):
    asked = {**ASK, "tools": [WEATHER, *BUILT_IN], "extra_body": {"harmony_script": script}}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    said = [item.model_dump(exclude={"id", "parsed_arguments"}) for item in whole.output]
    for item in said:
        for part in item.get("content") or []:
            part.pop("parsed", None)
    told = [item.model_dump(exclude={"id", "parsed_arguments"}) for item in final.output]
    for item in told:
        for part in item.get("content") or []:
            part.pop("parsed", None)
    assert told == said
    assert final.usage == whole.usage


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_answer_and_events_are_valid_to_the_official_types(http, script):
    members = {"tools": [WEATHER, *BUILT_IN], "harmony_script": script}
    Response.model_validate(answer(http, **members))
    for event in events(http, **members):
        EVENT.validate_python(event)


def test_tool_loop_by_the_official_client(client, http):
    first = client.responses.create(**ASK, tools=[WEATHER], extra_body={"harmony_script": THINK + PREAMBLE + CALL})
    assert [item.type for item in first.output] == ["reasoning", "message", "function_call"]
    call = first.output[-1]
    assert (call.name, call.arguments, call.status) == ("get_weather", '{"city":"Paris"}', "completed")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sun"}
    back = [item.model_dump(exclude_none=True) for item in first.output]
    prompt = prompt_of(http, input=[{"role": "user", "content": "Hi"}, *back, result], tools=[WEATHER])
    assert prompt.endswith(
        "<|start|>user<|message|>Hi<|end|>"
        "<|start|>assistant<|channel|>analysis<|message|>Need weather.<|end|>"
        "<|start|>assistant<|channel|>commentary<|message|>I look it up.<|end|>"
        '<|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|>json<|message|>{"city":"Paris"}<|call|>'
        "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>sun<|end|>"
        "<|start|>assistant"
    )


def test_parsed_output_by_the_official_client(client):
    from pydantic import BaseModel

    class Size(BaseModel):
        width: int

    parsed = client.responses.parse(**ASK, text_format=Size).output_parsed
    assert parsed == Size(width=0)


def test_earlier_response_is_built_upon(client, http):
    first = client.responses.create(**ASK, tools=[WEATHER], extra_body={"harmony_script": THINK + CALL})
    result = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "sun"}
    by_id = prompt_of(http, previous_response_id=first.id, input=[result], tools=[WEATHER])
    back = [item.model_dump(exclude_none=True) for item in first.output]
    assert by_id == prompt_of(http, input=[{"role": "user", "content": "Hi"}, *back, result], tools=[WEATHER])
    assert client.responses.retrieve(first.id).output == first.output
    assert [item.role for item in client.responses.input_items.list(first.id)] == ["user"]
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**ASK, previous_response_id=first.id)
    assert refused.value.code == "previous_response_not_found"


def test_earlier_streamed_response_is_built_upon(client, http):
    with client.responses.stream(**ASK, extra_body={"harmony_script": THINK + FINAL}) as stream:
        first = stream.get_final_response()
    prompt = prompt_of(http, previous_response_id=first.id, input="And?")
    assert prompt.endswith(
        "<|start|>assistant<|channel|>final<|message|>Sunny, 21 °C. 🫠<|end|><|start|>user<|message|>And?<|end|><|start|>assistant"
    )


def test_item_is_referred_to(client, http):
    first = client.responses.create(**ASK, extra_body={"harmony_script": THINK + FINAL})
    reference = {"type": "item_reference", "id": first.output[-1].id}
    assert "final<|message|>Sunny" in prompt_of(http, input=[reference, {"role": "user", "content": "And?"}])


def test_unstored_response_is_forgotten(client):
    first = client.responses.create(**ASK, store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_instructions_of_an_earlier_request_are_not_kept(client, http):
    first = client.responses.create(**ASK, instructions="Be brief.")
    assert "Be brief." not in prompt_of(http, previous_response_id=first.id, input="And?")


@pytest.mark.parametrize(
    "members",
    [{}, {"reasoning": {"summary": "auto"}}, {"include": ["reasoning.encrypted_content"], "store": False}],
    ids=["content", "summary", "sealed"],
)
def test_reasoning_comes_back_in_each_form(http, members):
    first = answer(http, tools=[WEATHER], harmony_script=THINK + CALL, **members)
    back = first["output"]
    if "include" in members:
        back[0] = {**back[0], "content": []}
    result = {"type": "function_call_output", "call_id": back[-1]["call_id"], "output": "sun"}
    prompt = prompt_of(http, input=[{"role": "user", "content": "Hi"}, *back, result], tools=[WEATHER])
    assert "<|start|>assistant<|channel|>analysis<|message|>Need weather.<|end|>" in prompt


@pytest.mark.parametrize("script", [PYTHON, SEARCH, OPEN], ids=["python", "search", "page"])
def test_built_in_call_comes_back(http, script):
    first = answer(http, tools=BUILT_IN, harmony_script=script)
    prompt = prompt_of(http, input=[{"role": "user", "content": "Hi"}, *first["output"]], tools=BUILT_IN)
    header, _, content = script.removesuffix("<|call|>").partition(" code<|message|>")
    recipient = header.partition("to=")[2]
    assert f"<|start|>assistant to={recipient}<|channel|>analysis code<|message|>{content}<|call|>" in prompt


def test_logs_of_python_come_back(http):
    item = {"type": "code_interpreter_call", "id": "ci", "code": "print(1)", "container_id": "", "status": "completed"}
    item["outputs"] = [{"type": "logs", "logs": "1"}]
    prompt = prompt_of(http, input=[{"role": "user", "content": "Hi"}, item], tools=BUILT_IN)
    assert prompt.endswith("<|start|>python to=assistant<|channel|>analysis<|message|>1<|end|><|start|>assistant")


def test_built_in_tools_are_shown_in_the_system_message(http):
    system = prompt_of(http, tools=BUILT_IN).partition("<|end|>")[0]
    assert "# Tools\n\n## browser\n" in system
    assert "## python\n" in system
    assert "# Tools" not in prompt_of(http, tools=BUILT_IN, tool_choice="none")


# events


def is_about(event):
    return event.get("item_id") or event.get("item", {}).get("id")


@pytest.mark.parametrize("members", [{}, {"reasoning": {"summary": "auto"}}], ids=["content", "summary"])
@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)
def test_events_keep_the_grammar(http, script, members):
    found = events(http, tools=[WEATHER, *BUILT_IN], harmony_script=script, **members)
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    kinds = [event["type"] for event in found]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert sum("response" in event for event in found) == 3
    final = found[-1]["response"]
    between = found[2:-1]
    borders = [event for event in between if event["type"].startswith("response.output_item.")]
    assert [event["type"].rpartition(".")[2] for event in borders] == ["added", "done"] * len(final["output"])
    for index, item in enumerate(final["output"]):
        of_item = [event for event in between if is_about(event) == item["id"]]
        assert all(event["output_index"] == index for event in of_item)
        assert of_item[0]["type"] == "response.output_item.added"
        assert of_item[0]["item"]["status"] == "in_progress"
        assert of_item[-1] == {**of_item[-1], "type": "response.output_item.done", "item": item}
    places = [event["output_index"] for event in between]
    assert all(earlier <= later for earlier, later in pairwise(places))


@pytest.mark.parametrize("script", [SCRIPTS["a preamble and a call"], THINK + FINAL], ids=["call", "answer"])
def test_deltas_add_up_to_the_final_object(http, script):
    found = events(http, tools=[WEATHER], harmony_script=script)
    for item in found[-1]["response"]["output"]:
        deltas = "".join(event.get("delta", "") for event in found if is_about(event) == item["id"])
        told = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        done = [
            event
            for event in found
            if is_about(event) == item["id"] and re.search(r"(text|arguments)\.done$", event["type"])
        ]
        assert deltas == told
        assert [event.get("text", event.get("arguments")) for event in done] == [told]


def test_stream_ends_with_the_whole_answer(http):
    members = {"tools": [WEATHER], "harmony_script": THINK + CALL, "return_token_ids": True}
    whole = answer(http, **members)
    found = events(http, **members)
    last = found[-1]["response"]
    unsteady = ("id", "created_at", "output")
    assert {name: value for name, value in last.items() if name not in unsteady} == {
        name: value for name, value in whole.items() if name not in unsteady
    }
    assert [{**item, "id": ""} for item in last["output"]] == [{**item, "id": ""} for item in whole["output"]]
    assert found[0]["response"]["prompt_token_ids"] == whole["prompt_token_ids"]
    assert [token for event in found for token in event.get("token_ids", [])] == whole["token_ids"]
    assert whole["token_ids"] == encode_with_special_tokens(THINK + CALL)


# what comes back


@pytest.mark.parametrize("length", range(1, len(encode_with_special_tokens(THINK + PREAMBLE + CALL))))
def test_limit_cuts_the_answer_anywhere(http, length):
    members = {"tools": [WEATHER], "harmony_script": THINK + PREAMBLE + CALL, "max_output_tokens": length}
    body = answer(http, **members)
    assert (body["status"], body["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert body["usage"]["output_tokens"] == length
    assert all(item["status"] == "completed" for item in body["output"][:-1])
    found = events(http, **members)
    assert found[-1]["type"] == "response.incomplete"
    assert [{**item, "id": ""} for item in found[-1]["response"]["output"]] == [
        {**item, "id": ""} for item in body["output"]
    ]


def test_cut_reasoning_is_kept(http):
    body = answer(http, harmony_script=THINK, max_output_tokens=5)
    assert [(item["type"], item["status"], item["content"][0]["text"]) for item in body["output"]] == [
        ("reasoning", "incomplete", "Need weather")
    ]


def test_usage_counts_tokens(http):
    usage = answer(http, harmony_script=THINK + FINAL)["usage"]
    assert usage["output_tokens"] == len(encode_with_special_tokens(THINK + FINAL))
    assert usage["output_tokens_details"] == {"reasoning_tokens": len(encode("Need weather."))}
    assert usage["input_tokens"] == len(answer(http, return_token_ids=True)["prompt_token_ids"])


def test_demanded_call_is_made(http):
    for choice in ("required", {"type": "function", "name": "get_weather"}):
        item = answer(http, tools=[WEATHER], tool_choice=choice)["output"][-1]
        assert (item["name"], item["arguments"]) == ("get_weather", '{"city":"x"}')


def test_call_is_text_when_none_may_be_called(http):
    body = answer(http, tools=[WEATHER], tool_choice="none", harmony_script=THINK + CALL)
    assert [item["type"] for item in body["output"]] == ["reasoning", "message"]


def test_one_call_where_parallel_ones_are_not_wanted(http):
    body = answer(http, tools=[WEATHER], harmony_script=SCRIPTS["two calls"], parallel_tool_calls=False)
    assert [item["type"] for item in body["output"]] == ["function_call"]


def test_answer_repeats_its_request(http):
    members = {"instructions": "Be brief.", "metadata": {"a": "b"}, "temperature": 0.5, "max_output_tokens": 90}
    body = answer(http, **members, reasoning={"effort": "high"})
    assert {name: body[name] for name in members} == members
    assert body["reasoning"] == {"effort": "high", "summary": None}
    assert body["text"] == {"format": {"type": "text"}}


# refusals


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"input": []}, "input"),
        ({"input": 3}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"type": "image"}]}, "input[0].type"),
        ({"input": [{"role": "tool", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user", "content": 3}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_text"}]}]}, "input[0].content[0].text"),
        ({"input": [{"role": "assistant", "content": "x", "phase": "x"}]}, "input[0].phase"),
        ({"input": [{"type": "function_call", "call_id": "c", "name": "f"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0].call_id"),
        ({"input": [{"type": "reasoning", "content": [{"type": "text", "text": "x"}]}]}, "input[0].content[0].type"),
        ({"input": [{"type": "reasoning", "encrypted_content": "x"}]}, "input[0].encrypted_content"),
        ({"input": [{"type": "web_search_call", "action": {"type": "x"}}]}, "input[0].action.type"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"instructions": 3}, "instructions"),
        ({"tools": 3}, "tools"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools[0].name"),
        ({"tools": [{"type": "file_search"}]}, "tools[0].type"),
        ({"tools": [{}]}, "tools[0]"),
        ({"tools": [WEATHER, WEATHER]}, "tools"),
        ({"tool_choice": "any"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "g"}, "tools": [WEATHER]}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "get_weather"}}, "tools": [WEATHER]}, "tool_choice"),
        ({"reasoning": "high"}, "reasoning"),
        ({"reasoning": {"effort": "extreme"}}, "reasoning.effort"),
        ({"reasoning": {"summary": "long"}}, "reasoning.summary"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "json_schema", "schema": {}}}}, "text.format.name"),
        ({"include": ["no.such.part"]}, "include"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": 3}, "conversation"),
        ({"conversation": "conv_x", "previous_response_id": "resp_x"}, "previous_response_id"),
        ({"max_tool_calls": 0}, "max_tool_calls"),
        ({"previous_response_id": "resp_x"}, "previous_response_id"),
        ({"temperature": 3}, "temperature"),
    ],
    ids=str,
)
def test_refusal_names_the_parameter(http, members, param):
    response = post(http, **members)
    assert response.status_code == 400, response.text
    assert set(response.json()["error"]) == {"message", "type", "param", "code"}
    assert response.json()["error"]["param"] == param


def test_unknown_model_is_not_found(client):
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.responses.create(model="gpt-4", input="x")


def test_log_probabilities_are_reported_where_include_lists_them(http):
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "harmony_script": THINK_AND_ANSWER}
    (told,) = (part["logprobs"] for item in answer(http, **asked)["output"][1:] for part in item["content"])
    assert "".join(entry["token"] for entry in told) == "Teal."
    assert [len(entry["top_logprobs"]) for entry in told] == [2] * len(told)
    streamed = events(http, **asked)
    deltas = [
        entry for event in streamed if event["type"] == "response.output_text.delta" for entry in event["logprobs"]
    ]
    done = next(event["logprobs"] for event in streamed if event["type"] == "response.output_text.done")
    assert [entry["token"] for entry in deltas] == [entry["token"] for entry in told]
    assert done == deltas
    assert set(deltas[0]) == {"token", "logprob", "top_logprobs"}
    assert streamed[-1]["response"]["output"][1]["content"][0]["logprobs"] == told
    assert answer(http, top_logprobs=2)["output"][-1]["content"][0]["logprobs"] == []


THINK_AND_ANSWER = (
    "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Teal.<|return|>"
)
