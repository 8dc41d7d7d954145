"""Messages of the reference server, driven by the official client, and its events one by one."""

import json

import anthropic
import pytest

from harmony_conformance.reference_server import MODEL
from harmony_ref import decode

WEATHER = {
    "name": "get_weather",
    "description": "Weather in a place.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
USER = {"role": "user", "content": "Hi"}
ASK = {"model": MODEL, "max_tokens": 512, "messages": [USER]}
START = "<|start|>assistant"
THINK = f"<|channel|>analysis<|message|>Need weather.<|end|>{START}"
PREAMBLE = f"<|channel|>commentary<|message|>I look it up.<|end|>{START}"
HEAD = "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
CALL = THINK + PREAMBLE + HEAD + '{"city":"Paris"}<|call|>'
FINAL = THINK + "<|channel|>final<|message|>Sunny, 21 °C. 🫠<|return|>"


@pytest.fixture(scope="module")
def client(url):
    return anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)


def create(client, script=FINAL, **members):
    return client.messages.create(**{**ASK, **members}, extra_body={"harmony_script": script})


def stream(client, script=FINAL, **members):
    return client.messages.stream(**{**ASK, **members}, extra_body={"harmony_script": script})


def post(http, **members):
    return http.post("/v1/messages", json={**ASK, "return_token_ids": True, **members})


def events(response):
    return [json.loads(line.removeprefix("data: ")) for line in response.text.splitlines() if line.startswith("data: ")]


# the official client


def test_the_client_reads_an_answer(client):
    message = create(client)
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[0].thinking == "Need weather."
    assert message.content[0].signature
    assert message.content[1].text == "Sunny, 21 °C. 🫠"
    assert (message.role, message.stop_reason, message.stop_sequence) == ("assistant", "end_turn", None)
    assert message.usage.output_tokens > message.usage.output_tokens_details.thinking_tokens > 0


@pytest.mark.parametrize("script", [FINAL, CALL], ids=["answer", "call"])
def test_the_client_joins_a_stream_to_the_whole_answer(client, script):
    whole = create(client, script, tools=[WEATHER])
    with stream(client, script, tools=[WEATHER]) as events:
        texts = "".join(events.text_stream)
        joined = events.get_final_message()
    assert texts == "".join(block.text for block in whole.content if block.type == "text")
    contents = [[block.model_dump(exclude={"parsed_output"}) for block in one.content] for one in (joined, whole)]
    assert contents[0] == contents[1]
    for name in ("stop_reason", "stop_sequence", "model", "role"):
        assert getattr(joined, name) == getattr(whole, name), name
    assert joined.usage.output_tokens == whole.usage.output_tokens
    assert joined.usage.input_tokens == whole.usage.input_tokens


def test_a_tool_loop_goes_round(client, http):
    ask = {"role": "user", "content": "What is the weather in Paris?"}
    thinking = {"type": "enabled", "budget_tokens": 1024}
    members = {"tools": [WEATHER], "max_tokens": 2048, "thinking": thinking}
    called = create(client, CALL, messages=[ask], **members)
    use = called.content[-1]
    assert (called.stop_reason, use.name, use.input) == ("tool_use", "get_weather", {"city": "Paris"})
    assert use.id.startswith("toolu_")
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "21 °C"}
    history = [ask, {"role": "assistant", "content": called.content}, {"role": "user", "content": [result]}]
    said = create(client, FINAL, messages=history, **members)
    assert said.stop_reason == "end_turn"
    sent = json.loads(json.dumps(history, default=lambda block: block.to_dict()))
    prompt = decode(post(http, messages=sent, **members).json()["prompt_token_ids"])
    assert f"{START}<|channel|>analysis<|message|>Need weather.<|end|>" in prompt
    assert f"{START}<|channel|>commentary<|message|>I look it up.<|end|>" in prompt
    assert "<|start|>functions.get_weather to=assistant<|channel|>commentary<|message|>21 °C<|end|>" in prompt


def test_the_client_counts_tokens(client):
    members = {"system": "Be brief.", "tools": [WEATHER], "messages": [{"role": "user", "content": "Grüße! 🫠"}]}
    counted = client.messages.count_tokens(model=MODEL, **members)
    assert counted.input_tokens == create(client, **members).usage.input_tokens


@pytest.mark.parametrize(
    ("members", "error", "kind"),
    [
        ({"model": "no-such-model"}, anthropic.NotFoundError, "not_found_error"),
        ({"max_tokens": -1}, anthropic.BadRequestError, "invalid_request_error"),
        ({"messages": []}, anthropic.BadRequestError, "invalid_request_error"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_the_client_reads_refusals(client, members, error, kind, is_streamed):
    with pytest.raises(error) as caught:
        client.messages.create(**{**ASK, **members}, stream=is_streamed)
    assert caught.value.body["type"] == "error"
    assert caught.value.body["error"]["type"] == kind
    assert caught.value.body["error"]["message"]


def test_the_client_may_send_a_beta(client):
    message = client.beta.messages.create(**ASK, betas=["interleaved-thinking-2025-05-14"])
    assert message.stop_reason == "end_turn"


# prompts


def prompt(http, **members):
    response = post(http, **members)
    assert response.status_code == 200, response.text
    return decode(response.json()["prompt_token_ids"])


def test_instructions_are_the_developer_message(http):
    marked = {"type": "text", "text": " In French.", "cache_control": {"type": "ephemeral"}}
    for system in ("Be brief. In French.", [{"type": "text", "text": "Be brief."}, marked]):
        assert "<|start|>developer<|message|># Instructions\n\nBe brief. In French.<|end|>" in prompt(
            http, system=system
        )


@pytest.mark.parametrize(
    ("members", "level"),
    [
        ({}, "medium"),
        ({"output_config": {"effort": "low"}}, "low"),
        ({"output_config": {"effort": "xhigh"}}, "high"),
        ({"output_config": {"effort": "max"}}, "high"),
        ({"thinking": {"type": "disabled"}}, "low"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "high"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2048}, "medium"),
    ],
    ids=str,
)
def test_effort_is_a_level_of_harmony(http, members, level):
    assert f"Reasoning: {level}\n" in prompt(http, **members)


def test_finished_reasoning_is_dropped(http):
    past = [{"type": "thinking", "thinking": "Secret.", "signature": "s"}, {"type": "text", "text": "Sunny."}]
    messages = [USER, {"role": "assistant", "content": past}, USER]
    shown = prompt(http, messages=messages)
    assert "Secret." not in shown
    assert f"{START}<|channel|>final<|message|>Sunny.<|end|>" in shown


def test_omitted_thinking_comes_back_by_its_signature(http):
    members = {"tools": [WEATHER], "thinking": {"type": "adaptive", "display": "omitted"}}
    content = post(http, harmony_script=CALL, **members).json()["content"]
    assert content[0]["thinking"] == ""
    result = {"type": "tool_result", "tool_use_id": content[2]["id"], "content": "21 °C"}
    history = [USER, {"role": "assistant", "content": content}, {"role": "user", "content": [result]}]
    assert "<|channel|>analysis<|message|>Need weather.<|end|>" in prompt(http, messages=history, **members)


def test_a_begun_answer_is_continued(http):
    messages = [USER, {"role": "assistant", "content": "Hel"}]
    assert prompt(http, messages=messages).endswith(f"{START}<|channel|>final<|message|>Hel")


# answers


def test_disabled_thinking_is_not_shown(http):
    answer = post(http, harmony_script=FINAL, thinking={"type": "disabled"}).json()
    assert [block["type"] for block in answer["content"]] == ["text"]


@pytest.mark.parametrize(
    ("script", "members", "reason", "sequence"),
    [
        (FINAL, {}, "end_turn", None),
        (CALL, {"tools": [WEATHER]}, "tool_use", None),
        (FINAL, {"max_tokens": 12}, "max_tokens", None),
        (CALL, {"tools": [WEATHER], "max_tokens": 30}, "max_tokens", None),
        (FINAL, {"stop_sequences": ["zebra", ", 21"]}, "stop_sequence", ", 21"),
    ],
    ids=["end", "call", "cut", "cut in a call", "stop sequence"],
)
def test_the_end_is_reported(http, script, members, reason, sequence):
    whole = post(http, harmony_script=script, **members).json()
    last = events(post(http, harmony_script=script, stream=True, **members))[-2]
    assert (whole["stop_reason"], whole["stop_sequence"]) == (reason, sequence)
    assert last["delta"] == {"stop_reason": reason, "stop_sequence": sequence}
    assert last["usage"] == whole["usage"]


def test_events_come_in_their_order(http):
    told = events(post(http, harmony_script=CALL, stream=True, tools=[WEATHER]))
    kinds = [event["type"] for event in told]
    assert kinds[:2] == ["message_start", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    blocks = [event["content_block"]["type"] for event in told if event["type"] == "content_block_start"]
    assert blocks == ["thinking", "text", "tool_use"]
    assert [event["index"] for event in told if event["type"] == "content_block_stop"] == [0, 1, 2]
    deltas = [event["delta"]["type"] for event in told if event["type"] == "content_block_delta"]
    assert list(dict.fromkeys(deltas)) == ["thinking_delta", "signature_delta", "text_delta", "input_json_delta"]


@pytest.mark.parametrize("arguments", ["[1]", '{"n":1e400}'])
def test_input_that_is_no_object_is_text(http, arguments):
    script = f"{THINK}{HEAD}{arguments}<|call|>"
    answer = post(http, harmony_script=script, tools=[WEATHER]).json()
    assert [(block["type"], block.get("text")) for block in answer["content"]][1:] == [("text", arguments)]
    assert answer["stop_reason"] == "end_turn"


# refusals


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"max_tokens": None}, "max_tokens"),
        ({"top_k": -1}, "top_k"),
        ({"metadata": {"user_id": 7}}, "metadata"),
        ({"system": 7}, "system"),
        ({"system": [{"type": "image"}]}, "system[0]"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": ["Hi"]}, "messages[0]"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "expected user, assistant or system"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'image'"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}, "'x'"),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "id": "x", "name": "f"}]}]}, "input"),
        ({"tools": 7}, "tools"),
        ({"tools": [{"name": "f"}]}, "input_schema"),
        ({"tools": [WEATHER, WEATHER]}, "declared twice"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "server tool"),
        ({"mcp_servers": [{"type": "url", "url": "https://mcp.example/sse", "name": "notes"}]}, "mcp_servers"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "g"}}, "'g'"),
        ({"tools": [WEATHER], "tool_choice": "auto"}, "tool_choice.type"),
        ({"thinking": {"type": "hard"}}, "thinking.type"),
        ({"thinking": {"type": "adaptive", "display": "all"}}, "thinking.display"),
        ({"thinking": {"type": "enabled", "budget_tokens": 512}}, "budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "budget_tokens"),
        ({"output_config": 7}, "output_config"),
        ({"output_config": {"effort": "enormous"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "json_object"}}}, "output_config.format"),
        ({"stop_sequences": "x"}, "stop_sequences"),
        ({"stop_sequences": [""]}, "stop_sequences"),
        ({"stream": "yes"}, "stream"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_wrong_is_refused_and_named(http, members, reason):
    response = post(http, **members)
    body = response.json()
    assert response.status_code == 400
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert reason in body["error"]["message"]
    assert body["request_id"].startswith("req_")


def test_other_failures_have_the_envelope_too(http):
    assert http.get("/v1/messages").json()["error"]["type"] == "invalid_request_error"
    assert http.post("/v1/messages/batches", json={}).json()["error"]["type"] == "not_found_error"
    assert http.post("/v1/messages", content=b"{").json()["error"]["type"] == "invalid_request_error"
