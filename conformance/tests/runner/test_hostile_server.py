"""Values of a hostile server that ended a run, or filled the memory: counts without bounds, ids for paths, ids of tokens, large answers."""

import asyncio
import json

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.engines.profiles import RENDER_ENDPOINT
from harmony_conformance.engines.prompt_endpoint import read_rendered_prompt
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import InvalidRecordError, exchange_line, read_exchange
from harmony_conformance.golden.scenario import Step
from harmony_conformance.json_value import loads
from harmony_conformance.runner.latency.latency_probe import Timing, measure
from harmony_conformance.runner.limits import run_limits
from harmony_conformance.runner.limits.run_limits import RunLimits, count_output_tokens
from harmony_conformance.runner.request_builder import RequestProfile, StepSkippedError, build_request
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Chunk, Request, Response

HUGE = 10**400


def exchange(body, content_type="application/json"):
    chunks = (Chunk(arrival_time=0.5, data=body if isinstance(body, bytes) else json.dumps(body).encode()),)
    response = Response(status=200, headers={"content-type": content_type}, chunks=chunks)
    sent = {"messages": [], "stream": content_type != "application/json"}
    request = Request(path="/v1/chat/completions", body=json.dumps(sent).encode())
    return Exchange(id="x", scenario="s", step="s", request=request, response=response)


def counted(tokens):
    choice = {"index": 0, "message": {"role": "assistant", "content": "Hello, you."}, "finish_reason": "stop"}
    return exchange({"object": "chat.completion", "choices": [choice], "usage": {"completion_tokens": tokens}})


@pytest.mark.parametrize(("tokens", "expected"), [(HUGE, None), (-1, None), (7, 7)])
def test_a_count_that_no_float_can_be_has_no_figures(tokens, expected):
    delta = {"choices": [{"index": 0, "delta": {"content": "a"}}]}
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": {"completion_tokens": tokens}}
    events = b"".join(b"data: %b\n\n" % json.dumps(one).encode() for one in (delta, delta, end))
    timing = measure(exchange(events, "text/event-stream"))
    assert isinstance(timing, Timing)
    assert timing.tokens == expected
    assert (timing.time_per_output_token is None) is (expected is None)


def test_a_negative_count_does_not_extend_the_budget():
    assert count_output_tokens(counted(-1000)) == len("Hello, you.") // 4
    assert count_output_tokens(counted(3)) == 3


def test_a_recorded_time_that_is_too_large_is_refused():
    line = {**loads(exchange_line(counted(1))), "waited": [HUGE]}
    with pytest.raises(InvalidRecordError, match="too large"):
        read_exchange(line)


@pytest.mark.parametrize("ids", [[10**6], [-1], [HUGE], [1, 201_089]])
def test_a_rendered_prompt_outside_of_the_vocabulary_is_none(ids):
    assert read_rendered_prompt(RENDER_ENDPOINT, {"token_ids": ids}) is None


def test_a_rendered_prompt_is_read():
    shown = read_rendered_prompt(RENDER_ENDPOINT, {"token_ids": [200_006, 1]})
    assert shown is not None
    assert shown.ids == (200_006, 1)


def path_of(identity):
    step = Step(name="polled", method="GET", request={}, path="/v1/responses/{started#/id}")
    return build_request(step, RequestProfile(model="m", extra_body={}), {"started": {"id": identity}}).path


@pytest.mark.parametrize("identity", ["", ".", "..", "x" * 5000, 5, {"a": 1}, ["x"], True])
def test_an_id_that_is_no_part_of_a_path_is_not_asked_for(identity):
    with pytest.raises(StepSkippedError):
        path_of(identity)


@pytest.mark.parametrize(
    ("identity", "segment"),
    [
        ("resp_1", "resp_1"),
        ("../../admin", "..%2F..%2Fadmin"),
        ("a\r\nx: y", "a%0D%0Ax%3A%20y"),
        ("?a#b@c", "%3Fa%23b%40c"),
        ("\ud800", "%3F"),
        ("é", "%C3%A9"),
    ],
)
def test_an_id_of_the_server_stays_one_part_of_the_path(identity, segment):
    assert path_of(identity) == f"/v1/responses/{segment}"


def test_the_answers_that_are_kept_have_a_limit(monkeypatch):
    monkeypatch.setattr(run_limits, "LEAST_BYTES", 1000)
    answer = SendResult(response=Response(status=200, headers={}, chunks=(Chunk(arrival_time=0.0, data=bytes(400)),)))

    async def send():
        return answer

    async def sent(conversations):
        limits = RunLimits(None, 60.0, conversations=conversations)
        return [(await limits.send(send)).failure for _ in range(4)]

    *kept, last = asyncio.run(sent(0))
    assert kept == [None] * 3
    assert last is not None
    assert last.detail == "the answers have more than 1000 bytes in all"
    assert asyncio.run(sent(None)) == [None] * 4
    assert asyncio.run(sent(1)) == [None] * 4  # 256 KiB for each conversation


def test_a_run_that_reaches_the_limit_is_incomplete(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(run_limits, "LEAST_BYTES", 20_000)
    monkeypatch.setattr(run_limits, "BYTES_PER_CONVERSATION", 1)
    words = ["run", "reference", "--latency", "0", "--out", str(tmp_path)]
    assert main(words) == 2
    printed = capsys.readouterr()
    assert "the answers have more than 20000 bytes in all" in printed.out + printed.err
