"""Messages behind the guard: leaks are blocked in the words of the API, a right answer passes byte for byte, and the official client reads both."""

import asyncio
import json

import anthropic
import httpx
import httpx2
import pytest

from harmony_conformance.reference_server.server.app import create_app
from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.memory_budget import MemoryBudget
from harmony_proxy.configuration import load_rules
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair import REPAIRS, StreamRepairer
from harmony_proxy.repair.text.responses_answer import ANSWER_DIALECTS
from harmony_ref import encode_with_special_tokens

ANSWER = "<|channel|>analysis<|message|>We need to greet.<|end|><|start|>assistant<|channel|>final<|message|>Hello there!<|return|>"
SCRIPT = list(encode_with_special_tokens(ANSWER))
ASK = {"model": "gpt-oss-reference", "max_tokens": 512, "messages": [{"role": "user", "content": "Hi"}]}
LEAK = "channels.no_marker_leak"
WORDS = "channels.no_channel_words"


class Nobody:
    """Takes what is handed on, and judges nothing."""

    memory, captures = MemoryBudget(), False

    def start(self):
        return

    def enqueue(self, recorder, *_):
        self.acted = recorder

    def __init__(self):
        self.finished_exchanges = []

    def pack(self):
        return float("inf")

    def __getattr__(self, name):
        return lambda *_, **__: None


def guarded(*defects, **rules):
    return HarmonyGuard(create_app(defects=defects, now=lambda: 0.0), policy=load_rules(**rules), queue=Nobody())


def send(app, path="/v1/messages", **members):
    async def sent():
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post(path, json={**ASK, "harmony_script": SCRIPT, **members})

    return asyncio.run(sent())


def ask(app, **members):
    async def asked():
        async with (
            httpx2.AsyncClient(transport=httpx2.ASGITransport(app)) as http,
            anthropic.AsyncAnthropic(base_url="http://test", api_key="k", http_client=http, max_retries=0) as client,
            client.messages.stream(**ASK, extra_body={"harmony_script": SCRIPT}, **members) as events,
        ):
            return await events.get_final_message()

    return asyncio.run(asked())


BLOCKING = {"block": [LEAK, WORDS]}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize("rules", [BLOCKING, {}], ids=["blocking", "observing"])
def test_a_right_answer_passes_as_it_came(rules, is_streamed):
    bare = send(create_app(now=lambda: 0.0), stream=is_streamed)
    passed = send(guarded(**rules), stream=is_streamed)
    assert (passed.status_code, passed.content) == (200, bare.content)


def test_a_leak_in_a_whole_answer_is_blocked_in_the_envelope():
    assert "analysis" in send(create_app(defects=["output-unparsed"])).json()["content"][0]["text"]
    response = send(guarded("output-unparsed", **BLOCKING))
    body = response.json()
    assert response.status_code == 502
    assert (body["type"], body["error"]["type"], body["error"]["code"]) == ("error", "api_error", "blocked_by_policy")
    assert "greet" not in response.text


def test_a_leak_in_a_stream_ends_with_an_error_event():
    assert "analysis" in send(create_app(defects=["output-unparsed"]), stream=True).text
    text = send(guarded("output-unparsed", **BLOCKING), stream=True).text
    assert "greet" not in text
    *_, name, data = text.strip().splitlines()
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["code"] == "blocked_by_policy"


@pytest.mark.parametrize("pace", [1, 7, 1000])
def test_no_split_of_the_stream_lets_a_leak_out(pace):
    """The bytes of a stream may come in any pieces."""
    data = send(create_app(defects=["output-unparsed"]), stream=True).content
    request = Request(path="/v1/messages", body=json.dumps({**ASK, "stream": True}).encode())
    response = Response(status=200, chunks=(), headers={"content-type": "text/event-stream"})
    one = StreamRepairer(
        request,
        response,
        "messages",
        dict.fromkeys((LEAK, WORDS), Action.BLOCK),
        fallback=Action.OBSERVE,
        request_id="r-1",
        limit=1 << 24,
    )
    out = b"".join(piece for at in range(0, len(data), pace) for piece in one.feed(data[at : at + pace]))
    out += b"".join(one.close())
    assert b"greet" not in out
    assert out.endswith(b'"code":"blocked_by_policy"}}\n\n')


def test_a_wrong_stop_reason_is_repaired_and_a_leak_is_not_rewritten():
    call = list(
        encode_with_special_tokens('<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a":1}<|call|>')
    )
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    app = guarded("messages-end-turn-with-calls", repair=["tool_calls.finish_reason_agrees"])
    text = send(app, stream=True, tools=tools, harmony_script=call).text
    assert '"stop_reason":"tool_use"' in text
    leaking = send(guarded("output-unparsed", repair=[WORDS]), stream=True)
    assert leaking.text.count("analysis") == 1  # no destination in blocks: it passes, and is reported


CALL = (
    "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
    '<|constrain|>json<|message|>{"city":"Paris"}<|call|>'
)
GREETED = [("thinking", "We need to greet."), ("text", "Hello there!")]
CALLED = [("thinking", "Need weather."), ("tool_use", "get_weather", {"city": "Paris"})]
REPAIRED = [
    ("output-unparsed", ANSWER, GREETED, "end_turn"),
    ("output-unparsed", CALL, CALLED, "tool_use"),
    ("reasoning-in-tags", ANSWER, GREETED, "end_turn"),
    ("raw-call-in-content", CALL, CALLED, "tool_use"),
    ("messages-end-turn-with-calls", CALL, CALLED, "tool_use"),
]


def blocks(body):
    def one(block):
        shown = (block["name"], block["input"]) if block["type"] == "tool_use" else (block[block["type"]],)
        return (block["type"], *shown)

    return [one(block) for block in body["content"]]


@pytest.mark.parametrize(("defect", "script", "expected", "reason"), REPAIRED)
def test_a_whole_answer_is_repaired_as_blocks(defect, script, expected, reason):
    tool = {"name": "get_weather", "description": "Weather", "input_schema": {"type": "object"}}
    members = {"harmony_script": list(encode_with_special_tokens(script)), "tools": [tool] if script is CALL else []}
    broken = send(create_app(defects=[defect]), **members).json()
    assert (blocks(broken), broken["stop_reason"]) != (expected, reason)
    repaired = send(guarded(defect, repair=tuple(REPAIRS)), **members).json()
    assert (blocks(repaired), repaired["stop_reason"]) == (expected, reason)
    assert repaired["content"][0]["signature"]
    assert repaired["usage"]["output_tokens_details"]["thinking_tokens"] > 0


def test_an_answer_with_other_blocks_is_not_rewritten():
    said = {"type": "text", "text": "analysisA secret.assistantfinalHello!"}
    body = {"type": "message", "role": "assistant", "content": [said, {"type": "server_tool_use", "id": "s"}]}
    assert ANSWER_DIALECTS["messages"].parts(body) == ()
    (part,) = ANSWER_DIALECTS["messages"].parts({**body, "content": [said]})
    assert part.message["content"] == said["text"]


def test_a_leak_passes_without_a_policy():
    app = create_app(defects=["output-unparsed"], now=lambda: 0.0)
    assert send(guarded("output-unparsed")).content == send(app).content


def test_the_official_client_reads_the_answer_and_the_block():
    assert [block.type for block in ask(guarded(**BLOCKING)).content] == ["thinking", "text"]
    with pytest.raises(anthropic.APIStatusError) as caught:
        ask(guarded("output-unparsed", **BLOCKING))
    assert caught.value.body["error"]["type"] == "api_error"


def test_the_count_of_tokens_shows_no_text_and_passes_where_unknown_paths_are_refused():
    app = guarded(**BLOCKING, fail="closed")
    assert send(app, "/v1/messages/count_tokens").json()["input_tokens"] > 0
    assert send(app, "/v1/messages/batches").status_code == 403


SECRET = "SECRETREASON"
MARKERS = f"<|channel|>analysis<|message|>{SECRET}<|end|><|start|>assistant<|channel|>final<|message|>Hi"
JOINED = f"analysisThe user asks for it, {SECRET}assistantfinalHi there"
MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": "end_turn"}
READINGS = {
    "content as a text": lambda leak: {"content": leak},
    "content as an object": lambda leak: {"content": {"type": "text", "text": leak}},
    "content in a list in a list": lambda leak: {"content": [[{"type": "text", "text": leak}]]},
    "a block of another type": lambda leak: {"content": [{"type": "text", "text": "x"}, {"type": "z", "text": leak}]},
    "another member of a block": lambda leak: {"content": [{"type": "tool_use", "name": "f", "input": {}, "text": leak}]},
    "a result of a server's tool": lambda leak: {"content": [{"type": "web_search_tool_result", "content": [{"title": leak}]}]},
    "a choice": lambda leak: {"content": [{"type": "text", "text": "x"}], "choices": [{"message": {"content": leak}}]},
    "a stop sequence": lambda leak: {"content": [{"type": "text", "text": "x"}], "stop_sequence": leak},
}  # fmt: skip
START = {"type": "message_start", "message": MESSAGE}
EVENTS = {
    "content of the message as a text": lambda leak: {**START, "message": {**MESSAGE, "content": leak}},
    "a chunk of Chat Completions": lambda leak: {"choices": [{"index": 0, "delta": {"content": leak}}]},
    "a result of a server's tool": lambda leak: {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "web_search_tool_result", "content": [{"title": leak}]},
    },
}


def answered(data, content_type):
    """What a client gets of an answer through a guard that blocks."""

    async def server(_scope, receive, send):
        while (await receive()).get("more_body"):
            pass
        headers = [(b"content-type", content_type)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": data})

    guard = HarmonyGuard(server, policy=load_rules(**BLOCKING), queue=Nobody())
    return send(guard, stream=content_type == b"text/event-stream").text


@pytest.mark.parametrize("leak", [MARKERS, JOINED], ids=["markers", "channel words"])
@pytest.mark.parametrize("reading", READINGS)
def test_what_only_some_clients_read_of_a_message_is_blocked(reading, leak):
    body = {**MESSAGE, **READINGS[reading](leak)}
    assert SECRET not in answered(json.dumps(body).encode(), b"application/json")
    innocent = json.dumps({**MESSAGE, **READINGS[reading]("It is sunny.")})
    assert json.loads(answered(innocent.encode(), b"application/json")) == json.loads(innocent)


@pytest.mark.parametrize("leak", [MARKERS, JOINED], ids=["markers", "channel words"])
@pytest.mark.parametrize("place", EVENTS)
def test_what_only_some_clients_read_of_a_stream_is_blocked(place, leak):
    def stream(text):
        events = (START, EVENTS[place](text), {"type": "message_stop"})
        return "".join(f"event: {one.get('type', 'x')}\ndata: {json.dumps(one)}\n\n" for one in events)

    assert SECRET not in answered(stream(leak).encode(), b"text/event-stream")
    assert answered(stream("It is sunny.").encode(), b"text/event-stream") == stream("It is sunny.")
