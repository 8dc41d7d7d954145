"""What a rate limit kept from being found out is not told as if the endpoint did not offer it."""

import asyncio
import json
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harmony_conformance.cli.main import main
from harmony_conformance.engines.target import parse_target
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.limits.rate_limiter import RateLimiter
from harmony_conformance.runner.run import Options, discover_target, make_plan, run

COMPLETION = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}
WHY = "rate limited: HTTP 429 without Retry-After"
RESPONSES, IDS = b"/v1/responses", b"return_token_ids"


def http(status, body):
    data = json.dumps(body).encode()
    return b"HTTP/1.1 %d X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (status, len(data)) + data


@pytest.fixture
def endpoint(raw_server):
    """A plain endpoint that is too busy for a request in which some bytes stand."""

    def serve(busy):
        def answer(connection, request):
            path = request.split(b" ", 2)[1]
            if busy in request:
                connection.sendall(http(429, {"error": {"message": "slow down"}}))
            elif path.startswith(b"/v1/chat/completions"):
                connection.sendall(http(200, COMPLETION))
            else:
                connection.sendall(
                    http(200, {"data": [{"id": "m"}]}) if path == b"/v1/models" else http(404, {"error": "no"})
                )

        return raw_server(answer).url

    return serve


def finished(target, **options):
    options = Options(seed=1, **options)
    return asyncio.run(run(parse_target(target), options, make_plan(options), lambda x: None, lambda found: None))


def told(done):
    return {(result.outcome, result.reason) for result in done.results}


def test_an_api_that_was_too_busy_to_be_asked_is_left_open(endpoint):
    options = {"select": ("simple_answer",), "apis": ("chat", "responses")}
    done = finished(f"openai:{endpoint(RESPONSES)}", **options)
    over = [result for result in done.results if result.api == "responses"]
    reason = f"the endpoint could not be probed for this API: {WHY}"
    assert {(result.outcome, result.reason) for result in over} == {(Outcome.INCONCLUSIVE, reason)}
    assert done.capabilities.to_json()["apis"]["responses"] == {"offered": None, "reason": WHY}
    absent = finished(f"openai:{endpoint(b'nothing of all')}", **options)
    assert {result.api for result in absent.results} == {"chat"}
    assert absent.capabilities.to_json()["apis"]["responses"] == {"offered": False, "reason": "HTTP 404"}


def test_evidence_that_an_endpoint_was_too_busy_to_show_is_left_open(endpoint):
    options = {"select": ("prompt.*",), "skip": ("rows_*",)}
    reason = f"the endpoint could not be probed completely: {WHY}"
    done = finished(f"vllm:{endpoint(IDS)}", **options)
    assert done.capabilities.incomplete_probes == {"chat": WHY}
    assert (Outcome.INCONCLUSIVE, reason) in told(done)
    shows_none = finished(f"vllm:{endpoint(b'nothing of all')}", **options)
    assert shows_none.capabilities.incomplete_probes == {}
    assert not [reason for outcome, reason in told(shows_none) if outcome is Outcome.INCONCLUSIVE]


@pytest.mark.parametrize("busy", [RESPONSES, IDS])
def test_it_stands_in_the_report_and_is_the_same_when_it_is_judged_again(endpoint, busy, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    chosen = ["--select", "simple_answer", "--api", "all", "--latency", "0"]
    main(["run", f"vllm:{endpoint(busy)}", *chosen, "--out", "first"])
    assert f"unknown ({WHY})" in capsys.readouterr().err
    chosen = [word for word in chosen if word not in ("--latency", "0")]
    main(["run", "replay:first/exchanges.jsonl", *chosen, "--out", "again"])
    assert WHY in Path("first/report.md").read_text("utf-8").replace("\\", "")
    schema = Draft202012Validator(json.loads((golden.root() / "schema" / "report.schema.json").read_text("utf-8")))
    lines = [
        [json.loads(line) for line in (tmp_path / name / "report.jsonl").read_text("utf-8").splitlines()]
        for name in ("first", "again")
    ]
    assert [error.message for line in lines[0] for error in schema.iter_errors(line)] == []
    first, again = (
        [(line["check"], line["api"], line["outcome"], line["reason"]) for line in each if line["kind"] == "result"]
        for each in lines
    )
    assert first == again


def paced(came, rate):
    """Whether so many requests took the time they have to; each may come late."""
    return came[-1] - came[0] > (len(came) - 1.5) / rate


@pytest.fixture
def watched(raw_server):
    """An endpoint, and when its requests came."""
    came = []

    def answer(connection, request):
        came.append(time.monotonic())
        is_chat = request.startswith(b"POST /v1/chat/completions ")
        connection.sendall(http(200, COMPLETION if is_chat else {"data": [{"id": "m"}]}))

    return raw_server(answer).url, came


def test_an_endpoint_is_looked_at_no_faster_than_is_allowed(watched):
    url, came = watched
    asyncio.run(discover_target(parse_target(f"openai:{url}"), Options(max_rps=20)))
    assert len(came) >= 3
    assert paced(came, 20)


def test_its_latency_is_probed_no_faster_than_is_allowed(watched, tmp_path):
    url, came = watched
    main(
        [
            "run",
            f"openai:{url}",
            "--select",
            "simple_answer",
            "--latency",
            "9",
            "--max-rps",
            "20",
            "--out",
            str(tmp_path),
        ]
    )
    exchanges = [json.loads(line) for line in (tmp_path / "exchanges.jsonl").read_text("utf-8").splitlines()]
    probing = sum(x["scenario"] == "latency" for x in exchanges)
    assert probing >= 3
    assert paced(came[-probing:], 20)


def test_requests_that_wait_at_the_same_time_go_one_after_the_other():
    async def passed():
        gate = RateLimiter(8, 8, None, 50)
        times = []

        async def one():
            await gate.wait_for_rate()
            times.append(time.monotonic())

        await asyncio.gather(*(one() for _ in range(6)))
        return times

    assert paced(asyncio.run(passed()), 50)
