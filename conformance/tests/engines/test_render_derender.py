import asyncio
import json
import pickle
import shutil
import subprocess
from dataclasses import replace

import pytest

from harmony_conformance.apis.api import CHAT_PATH
from harmony_conformance.apis.registry import COMPLETIONS, OLLAMA, RESPONSES
from harmony_conformance.engines.diagnosis import EndpointUnusableError
from harmony_conformance.engines.discovery import ProbeOptions, discover
from harmony_conformance.engines.profiles import DERENDER_PATH, ENGINES, RENDER_PATH, ScriptMethod
from harmony_conformance.engines.render_derender import as_event_stream, events, render_and_derender, whole_request
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import read_exchange, write_exchange
from harmony_conformance.evidence.levels import AnsweredBy, OutputLevel, PromptLevel
from harmony_conformance.judge.check import Outcome
from harmony_conformance.reference_server import MODEL, running
from harmony_conformance.runner.reproduce import reproduce
from harmony_conformance.runner.run import Options, make_plan, run
from harmony_conformance.transport.client import Client, ConnectionSettings, SendResult
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_ref import Delta, MessageStarted, Role, StreamParser, encode_with_special_tokens, tokens

SAYS = [200005, 17196, 200008, 13225, 200002]  # Hello in the final channel
OF_RESPONSES = "/v1/responses/render"
NOT_FOUND = (404, {"error": {"message": "Not Found"}})
NOT_OFFERED = (405, {"error": {"message": "Method Not Allowed"}})


class Halves:
    """Answers (status, body) for (method, path, body); `asked` keeps the requests, `refuses` the paths that are not there."""

    def __init__(self, base, refuses=()):
        self.base, self.refuses, self.asked = base, refuses, []

    def answer(self, path, body, method="POST"):
        self.asked.append((path, parsed(body)))
        if path in ("/v1/models", "/version"):
            return 200, {"data": [{"id": MODEL}], "version": "0.33.0"}
        if method != "POST":
            return NOT_OFFERED
        if path in self.refuses or path not in (RENDER_PATH, DERENDER_PATH, OF_RESPONSES):
            return NOT_FOUND
        if path == OF_RESPONSES:
            said = json.loads(body)["input"]
            return 200, {"request_id": "resp_1", "token_ids": encode_with_special_tokens(said if said == "Hi" else "?")}
        if path == RENDER_PATH:
            return self.rendered(body)
        asked = json.loads(body)
        return self.streamed(asked) if asked.get("stream") else self.whole(asked)

    def rendered(self, body):
        status, answer = self.reference(body, SAYS)
        return (
            (status, answer) if status != 200 else (200, {"request_id": "r-1", "token_ids": answer["prompt_token_ids"]})
        )

    def whole(self, body):
        (choice,) = body["generate_response"]["choices"]
        status, answer = self.reference(body["chat_request"], choice["token_ids"])
        answer = {name: value for name, value in answer.items() if name != "prompt_token_ids"}
        answer["choices"][0].pop("token_ids")
        answer["usage"] = {"prompt_tokens": body["prompt_tokens"], "completion_tokens": 7, "total_tokens": 0}
        return status, {**answer, "id": body["generate_response"]["request_id"]}

    def streamed(self, body):
        (choice,) = body["generate_chunk"]["choices"]
        state = body["stream_state"] or {"before": [], "calls": []}
        deltas, calls = delta(state["before"], choice["token_ids"], body["chat_request"].get("tools"))
        calls = state["calls"] + calls
        finish = choice["finish_reason"]
        chunk = {
            "id": body["generate_chunk"]["request_id"],
            "object": "chat.completion.chunk",
            "choices": [
                {
                    "index": 0,
                    "delta": deltas if state["before"] else {"role": "assistant", **deltas},
                    "finish_reason": "tool_calls" if finish == "stop" and calls else finish,
                }
            ],
        }
        return 200, {"chunk": chunk, "stream_state": {"before": state["before"] + choice["token_ids"], "calls": calls}}

    def reference(self, body, script):
        asked = parsed(body) if isinstance(body, bytes) else body
        if isinstance(asked, dict):
            whole = {name: value for name, value in asked.items() if not is_of_streams(name, value)}
            body = json.dumps({**whole, "return_token_ids": True, "harmony_script": script}).encode()
        sent = asyncio.run(self._post(body))
        return sent.response.status, sent.response.json

    async def _post(self, body):
        async with Client(ConnectionSettings(base_url=self.base, headers={})) as client:
            return await client.send(Request(path=CHAT_PATH, body=body))


def is_of_streams(name, value):
    """Whether it is what asks for a stream, and rightly so."""
    return (name == "stream" and value is True) or (name == "stream_options" and isinstance(value, dict))


def parsed(body):
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return body


def delta(before, now, tools):
    """The delta of some tokens after others, and the names of the calls that begin in them."""
    parser, calls, said, began = StreamParser(Role.ASSISTANT), -1, {}, []
    for place, token in enumerate([*before, *now]):
        for event in parser.feed([token]):
            recipient = event.header.recipient if isinstance(event, Delta | MessageStarted) else None
            is_call = recipient is not None and recipient.startswith("functions.") and tools
            calls += isinstance(event, MessageStarted) and bool(is_call)
            if place < len(before):
                continue
            if is_call:
                name = recipient.removeprefix("functions.")
                begun = isinstance(event, MessageStarted)
                listed = said.setdefault("tool_calls", [])
                if begun:
                    began.append(name)
                    function = {"name": name, "arguments": ""}
                    listed.append({"index": calls, "id": f"call_{calls}", "type": "function", "function": function})
                elif listed:
                    listed[-1]["function"]["arguments"] += event.text
                else:
                    listed.append({"index": calls, "function": {"arguments": event.text}})
            elif isinstance(event, Delta):
                field = "reasoning" if event.header.channel == "analysis" else "content"
                said[field] = said.get(field, "") + event.text
    return said, began


ASKED = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40}
ANSWER = tuple(
    encode_with_special_tokens(
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hello.<|return|>"
    )
)
CUT = ANSWER[:-3]


@pytest.fixture(scope="module")
def base():
    with running() as url:
        yield url


@pytest.fixture
def halves(base):
    return Halves(base)


def sending(halves):
    """Sends as the client does, without a wire."""

    async def send(request):
        status, answer = await asyncio.to_thread(halves.answer, request.path, request.body)
        data = json.dumps(answer).encode()
        return SendResult(
            response=Response(
                status=status,
                headers={"content-type": "application/json"},
                chunks=(Chunk(arrival_time=0.5, data=data),),
            )
        )

    return send


def asked(script=ANSWER, **members):
    return Exchange(
        id="a/chat/b/0",
        step="b",
        script=script,
        request=Request(path=CHAT_PATH, body=json.dumps({**ASKED, **members}).encode()),
    )


def answer(halves, x, event_tokens=1):
    return asyncio.run(render_and_derender(sending(halves), x, event_tokens))


def test_the_ids_of_the_prompt_are_rendered_and_a_client_is_given_the_script(halves):
    x = answer(halves, asked())
    assert (x.answered_by, x.prompt.level, x.output.level) == (
        AnsweredBy.DERENDER,
        PromptLevel.RENDERED,
        OutputLevel.SCRIPTED,
    )
    assert (x.prompt.source, x.prompt_messages[-1].content) == (RENDER_PATH, "Hi")
    assert (x.turn.reasoning, x.turn.content, x.turn.finish_reason) == ("Hm.", "Hello.", "stop")
    assert [path for path, _ in halves.asked] == [RENDER_PATH, DERENDER_PATH]


def test_what_was_told_to_the_server_is_not_what_it_says(halves):
    x = answer(halves, asked())
    assert x.chat_completion["usage"]["completion_tokens"] == 7
    assert (x.turn.usage, x.turn.prompt_ids, x.turn.output_ids, x.prompt.count) == (None, None, None, None)


@pytest.mark.parametrize("event_tokens", [1, 2, 3, 5, 1000])
def test_a_stream_is_read_event_by_event_and_says_the_same(halves, event_tokens):
    x = answer(halves, asked(stream=True), event_tokens)
    assert (x.turn.reasoning, x.turn.content, x.turn.finish_reason) == ("Hm.", "Hello.", "stop")
    pieces = [body["generate_chunk"]["choices"][0]["token_ids"] for path, body in halves.asked if path == DERENDER_PATH]
    assert [token for piece in pieces for token in piece] == list(ANSWER)
    assert {len(piece) for piece in pieces[:-1]} <= {event_tokens}
    assert len(x.chunks) == len(pieces)


def test_the_state_travels_from_answer_to_request_and_the_reason_comes_last(halves):
    answer(halves, asked(stream=True), 4)
    sent = [body for path, body in halves.asked if path == DERENDER_PATH]
    assert [len((body["stream_state"] or {"before": ()})["before"]) for body in sent] == list(range(0, len(ANSWER), 4))
    reasons = [body["generate_chunk"]["choices"][0]["finish_reason"] for body in sent]
    assert reasons == [None] * (len(sent) - 1) + ["stop"]
    assert all(body["prompt_token_ids"] for body in sent)


ENDS = {
    "by itself": ({}, ANSWER, len(ANSWER), "stop", None),
    "by a call, which vLLM names": ({}, (*ANSWER[:-1], tokens.CALL), len(ANSWER), "stop", tokens.CALL),
    "by the limit": ({"max_tokens": 6}, ANSWER, 6, "length", None),
    "by the limit, with the script": ({"max_tokens": len(CUT)}, CUT, len(CUT), "length", None),
    "by nothing": ({}, CUT, len(CUT), "stop", None),
    "before what no engine would emit": ({}, (*ANSWER, *ANSWER), len(ANSWER), "stop", None),
}


@pytest.mark.parametrize("how", ENDS)
def test_an_output_ends_as_a_generating_server_would_have_ended_it(how):
    members, script, count, finish, reason = ENDS[how]
    (event,) = events(asked(script, **members), 1000)
    assert event.to_json() == {"index": 0, "token_ids": list(event.ids), "finish_reason": finish, "stop_reason": reason}
    assert len(event.ids) == count


def test_several_choices_are_several_outputs_each_with_its_state():
    found = [(event.index, event.ids) for event in events(asked(n=2), 11)]
    assert [index for index, _ in found] == [0, 1] * (len(found) // 2)
    assert len(json.loads(whole_request(asked(n=2)).body)["generate_response"]["choices"]) == 2


def test_a_request_without_a_script_is_only_rendered(halves):
    x = answer(halves, asked(None))
    assert (x.answered_by, x.turn, x.prompt.level) == (AnsweredBy.RENDER, None, PromptLevel.RENDERED)
    assert [path for path, _ in halves.asked] == [RENDER_PATH]


def test_a_request_that_is_refused_is_refused_by_the_half_that_renders(halves):
    x = answer(halves, asked(messages="none"))
    assert (x.answered_by, x.rendered_prompt, x.response.status) == (AnsweredBy.RENDER, None, 400)


@pytest.mark.parametrize("stream", [False, True])
def test_a_half_that_refuses_the_output_is_the_answer(base, stream):
    x = answer(Halves(base, refuses=(DERENDER_PATH,)), asked(stream=stream))
    assert (x.answered_by, x.response.status, x.chat_completion) == (AnsweredBy.DERENDER, *NOT_FOUND)


def test_no_more_is_sent_than_allowed():
    async def send(_):
        return None

    assert asyncio.run(render_and_derender(send, asked(), 1)) is None


def test_half_of_a_surrogate_pair_in_a_chunk_is_not_made_bad_utf_8():
    x = replace(asked(stream=True), response=as_event_stream([(0.1, {"choices": [{"delta": {"content": "\ud83d"}}]})]))
    assert x.response.body.decode("utf-8") == 'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n'
    assert x.chunks[0]["choices"][0]["delta"]["content"] == "\ud83d"


@pytest.mark.parametrize("stream", [False, True])
def test_what_answered_is_recorded(halves, stream):
    x = answer(halves, asked(stream=stream))
    again = read_exchange(write_exchange(x))
    assert (again.answered_by, again.turn, again.prompt, again.output) == (x.answered_by, x.turn, x.prompt, x.output)


def test_the_requests_that_were_sent_are_shown_again(halves):
    target = parse_target("vllm:http://host:8000")
    command = reproduce(target, answer(halves, asked()), "s", None)
    assert [word for word in command.split() if word.startswith("http")] == [
        f"http://host:8000{RENDER_PATH}",
        f"http://host:8000{DERENDER_PATH}",
    ]
    assert reproduce(target, answer(halves, asked(None)), "s", None).count("curl") == 1
    assert reproduce(target, answer(halves, asked(stream=True, n=2), 1000), "s", None).startswith(
        "harmony-conformance run"
    )


@pytest.mark.skipif(not all(map(shutil.which, ("bash", "curl", "jq"))), reason="needs bash, curl and jq")
@pytest.mark.parametrize("event_tokens", [1, 3])
def test_the_commands_for_a_stream_are_answered_as_the_stream_was(halves, raw_server, event_tokens):
    step = "b+stream" if event_tokens == 1 else f"b+stream by {event_tokens}"
    x = answer(
        halves,
        replace(asked(stream=True, messages=[{"role": "user", "content": "It's $1 \\ `ü`"}]), step=step),
        event_tokens,
    )
    halves.asked.clear()
    command = reproduce(parse_target(f"vllm:{raw_server(responding(halves)).url}"), x, "s", None)
    shown = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout.decode()
    assert [path for path, _ in halves.asked] == [RENDER_PATH, *[DERENDER_PATH] * len(x.chunks)]
    told = [json.loads(line) for line in shown.removeprefix(shown.partition("}")[0] + "}").splitlines() if line.strip()]
    assert [one["chunk"]["choices"] for one in told] == [chunk["choices"] for chunk in x.chunks]


def found(halves, script="auto", engine="vllm"):
    return asyncio.run(discover(sending(halves), ProbeOptions(engine=ENGINES[engine], script=script)))


@pytest.mark.parametrize(
    ("script", "way"),
    [("auto", ScriptMethod.DERENDER), ("derender", ScriptMethod.DERENDER), ("none", ScriptMethod.NONE)],
)
def test_discovery_finds_out_that_nothing_is_generated(halves, script, way):
    capabilities = found(halves, script)
    assert (capabilities.generates, capabilities.script_method, capabilities.prompt_level) == (
        False,
        way,
        PromptLevel.RENDERED,
    )
    lean = replace(capabilities, exchanges=())
    assert pickle.loads(pickle.dumps(lean)) == lean  # as a worker of pytest-xdist is told
    assert (capabilities.model, capabilities.engine_version) == (MODEL, "0.33.0")
    assert capabilities.to_json()["prompt_source"] == RENDER_PATH
    assert "not generated" in capabilities.output
    assert [path for path, _ in halves.asked].count(CHAT_PATH) == 1


def test_prompts_of_other_apis_are_shown_behind_their_own_paths(halves):
    others = (RESPONSES, OLLAMA, COMPLETIONS)
    asked_for = ProbeOptions(engine=ENGINES["vllm"], apis=others)
    offers = asyncio.run(discover(sending(halves), asked_for)).api_support
    assert [
        (offer.api, offer.prompt_endpoint and offer.prompt_endpoint.path, bool(offer.unsupported_reason))
        for offer in offers
    ] == [
        (RESPONSES, OF_RESPONSES, False),
        (OLLAMA, None, True),
        (COMPLETIONS, None, True),
    ]
    x = Exchange(id="x", api="responses", request=Request(path="/v1/responses", body=b'{"input": "Hi"}'))
    shown = answer(halves, x)
    assert (shown.answered_by, shown.prompt.source, shown.turn) == (AnsweredBy.RENDER, OF_RESPONSES, None)
    assert shown.prompt.ids == (12194,)


def test_without_the_half_that_reads_outputs_only_prompts_are_looked_at(base):
    assert found(Halves(base, refuses=(DERENDER_PATH,))).script_method is ScriptMethod.NONE
    with pytest.raises(EndpointUnusableError, match="--script derender: the server did not play"):
        found(Halves(base, refuses=(DERENDER_PATH,)), "derender")


def test_a_server_without_either_half_is_reported_as_any_other(base):
    with pytest.raises(EndpointUnusableError, match="invalid model or path"):
        found(Halves(base, refuses=(RENDER_PATH,)))
    with pytest.raises(EndpointUnusableError, match="invalid model or path"):
        found(Halves(base), engine="openai")


def test_a_script_that_needs_a_generation_is_refused(halves):
    with pytest.raises(EndpointUnusableError, match=r"invalid --script: expected derender, .*got vllm"):
        found(halves, "vllm")


SCENARIOS = (
    "simple_answer",
    "tool_call",
    "preamble_and_call",
    "own_answer_replayed",
    "cut_in_reasoning",
    "wrong_requests",
    "slow_stream",
)


def responding(halves):
    """Answers over a wire."""

    def respond(connection, request):
        head, _, body = request.partition(b"\r\n\r\n")
        method, path, *_ = head.decode().split()
        status, answer = halves.answer(path, body, method)
        data = json.dumps(answer).encode()
        lines = (b"HTTP/1.1 %d X" % status, b"content-type: application/json", b"connection: close")
        connection.sendall(b"\r\n".join([*lines, b"content-length: %d" % len(data), b"", data]))

    return respond


@pytest.fixture
def finished(base, raw_server):
    options = Options(select=SCENARIOS, latency_requests=3)
    target = parse_target(f"vllm:{raw_server(responding(Halves(base))).url}")
    kept = []
    return asyncio.run(run(target, options, make_plan(options), kept.append, lambda _: None)), kept


def test_a_server_in_halves_that_does_it_right_passes_and_is_not_judged_by_what_is_ours(finished):
    done, kept = finished
    wrong = [
        (result.check, result.scenario, result.findings or result.reason)
        for result in done.results
        if result.outcome not in (Outcome.PASS, Outcome.NOT_APPLICABLE)
    ]
    assert wrong == []
    applied = {result.check for result in done.results if result.applied}
    assert applied >= {
        "errors.wrong_request_is_refused",
        "errors.valid_request_is_answered",
        "prompt.user_text_is_whole",
        "prompt.tools_are_declared",
        "reasoning.analysis_is_reasoning",
        "tool_calls.calls_arrive",
        "streaming.content_equals_whole",
        "streaming.call_deltas_can_be_joined",
        "streaming.one_finish_reason",
    }
    ours = {
        "streaming.is_a_stream",
        "streaming.ends_with_done",
        "streaming.one_identity",
        "streaming.usage_comes_last",
        "streaming.deltas_come_as_generated",
    }
    assert not applied & (ours | {check for check in applied if check.startswith("usage.")})
    reasons = {result.reason for result in done.results if result.check in ours and result.scenario == "simple_answer"}
    assert (
        "not enough evidence: applies to streamed answers that were read to their end, as the server framed them"
        in reasons
    )
    assert done.latency == ()
    sent = [x for x in kept if x.scenario != "discovery" and x.request.path == CHAT_PATH]
    assert {x.answered_by for x in sent} == {AnsweredBy.RENDER, AnsweredBy.DERENDER}
