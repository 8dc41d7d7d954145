"""Each repair at work: the reference server with a defect, behind the guard, read by the official clients as if it had none."""

import asyncio
import json

import httpx
import ollama
import openai
import pytest

from harmony_conformance.reference_server.server.app import create_app
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.memory_budget import MemoryBudget
from harmony_proxy.configuration import load_rules
from harmony_proxy.repair import REPAIRS
from harmony_ref import encode_with_special_tokens

ANSWER = "<|channel|>analysis<|message|>We need to greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello there!<|return|>"
CALL = (
    "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
    '<|constrain|>json<|message|>{"city":"Paris"}<|call|>'
)
CUT_IN_A_THOUGHT = (
    "<|channel|>analysis<|message|>We greet.<|start|>assistant<|channel|>final<|message|>Hello there!<|return|>"
)
TOOLS = [
    {
        "type": "function",
        "function": {"name": "get_weather", "description": "Weather", "parameters": {"type": "object"}},
    }
]
GREETED = ("We need to greet.", "Hello there!", [], "stop")
CALLED = ("Need weather.", "", [("get_weather", {"city": "Paris"})], "tool_calls")

# the defect of the server, what the model says, what the client has to get
DEFECTS = {
    "output-unparsed": (ANSWER, GREETED),
    "output-unparsed, a call": (CALL, CALLED),
    "start-inside-reasoning": (CUT_IN_A_THOUGHT, ("We greet.", "Hello there!", [], "stop")),
    "reasoning-in-tags": (ANSWER, GREETED),
    "raw-call-in-content": (CALL, CALLED),
    "stream-calls-as-text": (CALL, CALLED),
    "channel-in-tool-name": (
        CALL.replace("<|constrain|>json", "<|channel|>commentary <|constrain|>json"),
        CALLED,
    ),
    "tool-name-with-namespace": (CALL, CALLED),
    "finish-stop-with-calls": (CALL, CALLED),
    "stream-finish-stop-with-calls": (CALL, CALLED),
    "finish-tool-calls-without-calls": (ANSWER, GREETED),
}


class Nobody:
    """Takes what is handed on, and judges nothing."""

    memory, captures = MemoryBudget(), False

    def start(self):
        return

    def enqueue(self, recorder, *_):
        self.acted = recorder

    def __getattr__(self, name):
        return lambda *_, **__: None


def guarded(*defects):
    rules = load_rules(repair=tuple(REPAIRS))
    return HarmonyGuard(create_app(defects=defects), policy=rules, queue=Nobody())


def asked(script):
    body = {"model": "gpt-oss-reference", "messages": [{"role": "user", "content": "Hi"}]}
    tools = {"tools": TOOLS} if "to=functions" in script else {}
    return {**body, **tools, "extra_body": {"harmony_script": list(encode_with_special_tokens(script))}}


async def read_whole(client, request):
    told = (await client.chat.completions.create(**request)).choices[0]
    calls = [(call.function.name, json.loads(call.function.arguments)) for call in told.message.tool_calls or ()]
    return getattr(told.message, "reasoning", None) or "", told.message.content or "", calls, told.finish_reason


async def read_stream(client, request):
    reasoning = content = ""
    calls, finish, usage = {}, None, None
    async for chunk in await client.chat.completions.create(
        **request, stream=True, stream_options={"include_usage": True}
    ):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            reasoning += getattr(choice.delta, "reasoning", None) or ""
            content += choice.delta.content or ""
            finish = choice.finish_reason or finish
            for call in choice.delta.tool_calls or ():
                held = calls.setdefault(call.index, ["", ""])
                held[0] += call.function.name or ""
                held[1] += call.function.arguments or ""
    assert bool(usage.completion_tokens_details.reasoning_tokens) == bool(reasoning)
    return reasoning, content, [(name, json.loads(arguments)) for name, arguments in calls.values()], finish


def through(app, read, request):
    async def ask():
        async with (
            httpx.AsyncClient(transport=httpx.ASGITransport(app)) as http,
            openai.AsyncOpenAI(base_url="http://test/v1", api_key="k", http_client=http, max_retries=0) as client,
        ):
            return await read(client, request)

    return asyncio.run(ask())


@pytest.mark.parametrize("read", [read_whole, read_stream], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", DEFECTS)
def test_the_openai_client_gets_what_the_model_meant(name, read):
    script, expected = DEFECTS[name]
    defect = name.partition(",")[0]
    told = through(guarded(defect), read, asked(script))
    assert told == expected
    if not (defect.startswith("stream-") and read is read_whole):
        bare = through(create_app(defects=[defect]), read, asked(script))
        assert bare != expected, "the defect does not show"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("script", "expected"), [(ANSWER, GREETED), (CALL, CALLED)], ids=["answer", "call"])
def test_the_ollama_client_gets_what_the_model_meant(script, expected, stream):
    async def ask():
        client = ollama.AsyncClient(host="http://test")
        client._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(guarded("output-unparsed")), base_url="http://test"
        )
        request = {"model": "gpt-oss-reference", "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
        tools = {"tools": TOOLS} if expected is CALLED else {}
        script_ = {"harmony_script": list(encode_with_special_tokens(script))}
        async with client._client.stream("POST", "/api/chat", json={**request, **tools, **script_}) as told:
            return [ollama.ChatResponse(**json.loads(line)) async for line in told.aiter_lines() if line]

    told = asyncio.run(ask())
    thinking = "".join(one.message.thinking or "" for one in told)
    content = "".join(one.message.content or "" for one in told)
    calls = [(c.function.name, c.function.arguments) for one in told for c in one.message.tool_calls or ()]
    assert (thinking, content, calls) == expected[:3]
    assert told[-1].done_reason == "stop"


def response_request(request):
    settings = {"model": request["model"], "input": "Hi", "extra_body": request["extra_body"]}
    tools = [{"type": "function", **TOOLS[0]["function"], "strict": False}] if "tools" in request else openai.omit
    return {**settings, "tools": tools}


def of_response(told):
    kinds = {kind: [item for item in told.output if item.type == kind] for kind in ("reasoning", "function_call")}
    reasoning = "".join(part.text for item in kinds["reasoning"] for part in item.content)
    calls = [(item.name, json.loads(item.arguments)) for item in kinds["function_call"]]
    assert len({item.id for item in told.output}) == len(told.output)
    return reasoning, told.output_text, calls, "tool_calls" if calls else "stop"


async def read_response(client, request):
    return of_response(await client.responses.create(**response_request(request)))


async def read_response_stream(client, request):
    """What the client's own accumulation of the events comes to; the last response says the same."""
    grown, announced = {}, {}
    async with client.responses.stream(**response_request(request)) as stream:
        async for event in stream:
            if event.type == "response.output_item.added":
                announced[event.output_index] = event.item.id
            if event.type.endswith(".delta"):
                assert event.item_id == announced[event.output_index]
                grown[event.output_index] = grown.get(event.output_index, "") + event.delta
        told = await stream.get_final_response()
    texts = [item.arguments if item.type == "function_call" else item.content[0].text for item in told.output]
    assert texts == [grown[place] for place in range(len(told.output))]
    assert [item.id for item in told.output] == [announced[place] for place in range(len(told.output))]
    assert bool(told.usage.output_tokens_details.reasoning_tokens) == any(
        item.type == "reasoning" for item in told.output
    )
    return of_response(told)


RESPONSES = (
    "output-unparsed",
    "output-unparsed, a call",
    "raw-call-in-content",
    "start-inside-reasoning",
    "channel-in-tool-name",
)


@pytest.mark.parametrize("read", [read_response, read_response_stream], ids=["whole", "streamed"])
@pytest.mark.parametrize("name", RESPONSES)
def test_the_openai_client_gets_what_the_model_meant_as_a_response(name, read):
    script, expected = DEFECTS[name]
    defect = name.partition(",")[0]
    assert through(guarded(defect), read, asked(script)) == expected
    assert through(create_app(defects=[defect]), read_response, asked(script)) != expected


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_openai_client_is_told_that_the_limit_cut_a_response(stream):
    async def read(client, request):
        more = {"harmony_script": request["extra_body"]["harmony_script"], "return_token_ids": True}
        told = await client.responses.create(
            model=request["model"], input="Hi", max_output_tokens=9, extra_body=more, stream=stream
        )
        *_, last = [event async for event in told] if stream else [told]
        kind, last = (last.type, last.response) if stream else ("", last)
        return kind, last.status, last.incomplete_details and last.incomplete_details.reason

    ending = "response.incomplete" if stream else ""
    defect = "responses-completed-when-cut"
    assert through(guarded(defect), read, asked(ANSWER)) == (ending, "incomplete", "max_output_tokens")
    assert through(create_app(defects=[defect]), read, asked(ANSWER))[1] == "completed"


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
def test_the_openai_client_is_told_that_an_answer_was_blocked(stream):
    guard = HarmonyGuard(
        create_app(defects=["output-unparsed"]), policy=load_rules(block=["channels.*"]), queue=Nobody()
    )
    with pytest.raises(openai.APIError) as told:
        through(guard, read_stream if stream else read_whole, asked(ANSWER))
    assert "channels.no_channel_words" in str(told.value)
    assert "greet" not in str(told.value)
