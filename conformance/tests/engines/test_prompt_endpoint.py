"""Evidence of the prompt beside the ids: what an answer reveals, what a side endpoint counts. Shapes of llama.cpp b11549 and SGLang 0.5.23."""

import asyncio
import json
from dataclasses import replace

import pytest

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.engines.profiles import ENGINES
from harmony_conformance.engines.prompt_endpoint import build_prompt_request, read_echoed_prompt, read_prompt_count
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import read_exchange, write_exchange
from harmony_conformance.evidence.levels import OutputLevel, PromptLevel, PromptTokenCount
from harmony_conformance.golden.scenario import expand
from harmony_conformance.runner.request_builder import RequestProfile, build_request
from harmony_conformance.runner.run import Options, make_plan, run
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import encode_with_special_tokens

REVEALS, COUNTS = ENGINES["llamacpp"].prompt_echo, f"{CHAT_PATH}{ENGINES['llamacpp'].count_endpoint}"
PROMPT = "<|start|>user<|message|>Hi<|end|><|start|>assistant"
IDS = tuple(encode_with_special_tokens(PROMPT))
SAID = [17196, 200002]
VERBOSE = {"prompt": PROMPT, "tokens": SAID, "content": ""}
WHOLE = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": len(IDS), "completion_tokens": 2, "total_tokens": len(IDS) + 2},
}


def exchange(answer, said="Hi", stream=False):
    body = {"messages": [{"role": "user", "content": said}], "stream": stream}
    data = (
        b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in answer)
        if stream
        else json.dumps(answer).encode()
    )
    kind = "text/event-stream" if stream else "application/json"
    response = Response(status=200, headers={"content-type": kind}, chunks=(Chunk(arrival_time=0, data=data),))
    return Exchange(id="a", request=Request(path=CHAT_PATH, body=json.dumps(body).encode()), response=response)


def test_a_whole_answer_reveals_its_prompt_and_its_tokens():
    x = exchange({**WHOLE, "__verbose": VERBOSE})
    x = replace(x, rendered_prompt=read_echoed_prompt(REVEALS, x))
    assert (x.prompt.level, x.prompt.source, x.prompt.ids) == (PromptLevel.RENDERED, "__verbose.prompt", IDS)
    assert (x.output.level, x.output.ids) == (OutputLevel.EXACT, tuple(SAID))


def test_a_stream_reveals_its_prompt_in_any_of_its_chunks_and_its_tokens_in_none():
    """Not every token has a chunk, and the last one, which tells of the whole, has no tokens."""
    first = {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": None}]}
    last = {
        "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        "__verbose": {"prompt": PROMPT, "tokens": []},
    }
    x = exchange([first, last], stream=True)
    assert read_echoed_prompt(REVEALS, x).ids == IDS
    assert x.output.level is OutputLevel.API_ONLY


def test_tokens_that_were_not_asked_for_are_not_known():
    assert exchange({**WHOLE, "__verbose": {**VERBOSE, "tokens": []}}).output.ids is None


@pytest.mark.parametrize("said", ["<|end|>", [{"<|end|>": 1}]])
def test_a_text_proves_nothing_where_the_request_quotes_markers(said):
    x = exchange({**WHOLE, "__verbose": VERBOSE}, said=said)
    assert read_echoed_prompt(REVEALS, x) is None
    assert build_prompt_request(ENGINES["llamacpp"].prompt_endpoint, x.request) is None


@pytest.mark.parametrize("answer", [WHOLE, {**WHOLE, "__verbose": {"prompt": None}}, {**WHOLE, "__verbose": []}])
def test_what_is_not_told_is_no_evidence(answer):
    assert read_echoed_prompt(REVEALS, exchange(answer)) is None


def test_a_prompt_of_another_length_than_is_billed_is_no_evidence_but_a_finding():
    x = exchange({**WHOLE, "__verbose": {**VERBOSE, "prompt": PROMPT + "<|channel|>"}})
    assert replace(x, rendered_prompt=read_echoed_prompt(REVEALS, x)).prompt.level is PromptLevel.ACCOUNTING


def test_a_count_is_used_where_no_usage_is_reported_and_recorded():
    x = replace(exchange({**WHOLE, "usage": None}), counted_prompt=read_prompt_count(COUNTS, {"input_tokens": 9}))
    assert (x.prompt.level, x.prompt.source, x.prompt.count) == (PromptLevel.ACCOUNTING, COUNTS, 9)
    assert read_exchange(write_exchange(x)).counted_prompt == PromptTokenCount(source=COUNTS, tokens=9)
    assert replace(exchange(WHOLE), counted_prompt=x.counted_prompt).prompt.source == "usage.prompt_tokens"


@pytest.mark.parametrize("answer", [None, {}, {"input_tokens": "9"}, {"input_tokens": 0}, {"error": {}}])
def test_no_number_is_no_count(answer):
    assert read_prompt_count(COUNTS, answer) is None


def test_an_answer_is_asked_to_reveal_itself_where_it_can():
    scenario = next(one for one in load_scenarios() if one.name == "simple_answer")
    asked = [
        build_request(step, RequestProfile(model="m", prompt_echo=REVEALS, extra_body={}), {}).json
        for step in expand(scenario)
    ]
    assert [(body["verbose"], body["return_tokens"]) for body in asked] == [(True, True)] * 2
    assert not any(
        "verbose" in build_request(step, RequestProfile(model="m", extra_body={}), {}).json for step in expand(scenario)
    )


def test_a_run_uses_what_llama_cpp_tells(raw_server):
    """The prompt is the reference's rendering of the request, as far as this one goes; the count endpoint leaves a field out."""

    def respond(connection, request):
        head, _, body = request.partition(b"\r\n\r\n")
        path = head.split()[1].decode()
        asked = json.loads(body) if body else {}
        answers = {
            "/v1/models": {"data": [{"id": "m"}]},
            CHAT_PATH: {**WHOLE, **({"__verbose": VERBOSE} if asked.get("verbose") else {})},
            COUNTS: {"object": "response.input_tokens", "input_tokens": len(IDS) - 1},
        }
        data = json.dumps(answers.get(path, {})).encode()
        status = b"200" if path in answers else b"404"
        head = b"HTTP/1.1 %s X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        connection.sendall(head % (status, len(data)) + data)

    kept = []
    target, options = parse_target(f"llamacpp:{raw_server(respond).url}"), Options(select=("simple_answer",))
    done = asyncio.run(run(target, options, make_plan(options), kept.append, lambda _: None))
    x = next(x for x in kept if x.id == "simple_answer/chat/answer/0")
    assert (x.prompt.level, x.prompt.source, x.output.level) == (
        PromptLevel.RENDERED,
        "__verbose.prompt",
        OutputLevel.EXACT,
    )
    assert x.counted_prompt == PromptTokenCount(source=COUNTS, tokens=len(IDS) - 1)
    (counted,) = (result for result in done.results if result.check == "usage.counts_the_prompt")
    assert [finding.message for finding in counted.findings][:1] == [f"prompt_tokens is not what {COUNTS} counts"]


RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "status": "completed",
    "model": "m",
    "output": [
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [{"type": "output_text", "text": "Hello!"}]}
    ],
    "usage": {"input_tokens": len(IDS), "output_tokens": 5, "total_tokens": len(IDS) + 5},
}
BESIDE = {
    "vllm": ("/v1/responses/render", {"token_ids": IDS}, (PromptLevel.RENDERED, "/v1/responses/render")),
    "llamacpp": (
        "/v1/responses/input_tokens",
        {"object": "response.input_tokens", "input_tokens": len(IDS)},
        (PromptLevel.ACCOUNTING, "usage.prompt_tokens"),
    ),
}


@pytest.mark.parametrize("engine", BESIDE)
def test_prompts_of_another_api_are_shown_or_counted_behind_its_own_path(engine, raw_server):
    beside, told, evidence = BESIDE[engine]
    answers = {"/v1/models": {"data": [{"id": "m"}]}, CHAT_PATH: WHOLE, "/v1/responses": RESPONSE, beside: told}

    def respond(connection, request):
        data = json.dumps(answers.get(request.split()[1].decode(), {})).encode()
        status = b"200" if request.split()[1].decode() in answers else b"404"
        head = b"HTTP/1.1 %s X\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        connection.sendall(head % (status, len(data)) + data)

    kept = []
    target = parse_target(f"{engine}:{raw_server(respond).url}")
    options = Options(select=("simple_answer",), apis=("responses",), script="none")
    asyncio.run(run(target, options, make_plan(options), kept.append, lambda _: None))
    x = next(x for x in kept if x.id == "simple_answer/responses/answer/0")
    assert (x.prompt.level, x.prompt.source) == evidence
    assert x.counted_prompt == (PromptTokenCount(source=beside, tokens=len(IDS)) if engine == "llamacpp" else None)


def test_a_request_with_half_of_a_surrogate_pair_keeps_it_as_an_escape():
    asked = Request(path="/api/chat", body=b'{"messages":[{"role":"user","content":"\\ud83d"}]}')
    shown = build_prompt_request(ENGINES["ollama"].prompt_endpoint, asked)
    assert shown.body == b'{"messages":[{"role":"user","content":"\\ud83d"}],"_debug_render_only":true}'
