"""What a rate limit or a lost connection kept from being found out is not told as if the endpoint did not offer it."""

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


def torn(connection):
    """Answer with less than the announced length, and close the connection."""
    connection.sendall(b"HTTP/1.1 200 X\r\nconnection: close\r\ncontent-length: 323\r\n\r\n{")


@pytest.fixture
def flaky(raw_server, monkeypatch):
    """A plain endpoint that cuts its first answers over the Messages API; further ones are a 404."""
    monkeypatch.setenv("COLUMNS", "400")

    def serve(cuts):
        left = [b"/v1/messages"] * cuts

        def answer(connection, request):
            path = request.split(b" ", 2)[1]
            if path in left:
                left.remove(path)
                torn(connection)
            elif path.startswith(b"/v1/chat/completions"):
                connection.sendall(http(200, COMPLETION))
            else:
                connection.sendall(
                    http(200, {"data": [{"id": "m"}]}) if path == b"/v1/models" else http(404, {"error": "no"})
                )

        return raw_server(answer).url

    return serve


@pytest.mark.parametrize(
    ("cuts", "offered", "reason"),
    [
        pytest.param(1, False, "HTTP 404", id="once"),
        pytest.param(2, False, "HTTP 404", id="twice"),
        pytest.param(
            9,
            None,
            "no whole answer: peer closed connection without sending complete message body (received 1 bytes, expected 323)",
            id="always",
        ),
    ],
)
def test_a_cut_probe_is_repeated_and_leaves_open_whether_the_api_is_offered(flaky, cuts, offered, reason):
    done = finished(f"openai:{flaky(cuts)}", select=("simple_answer",), apis=("chat", "messages"))
    assert done.capabilities.to_json()["apis"]["messages"] == {"offered": offered, "reason": reason}
    over = {result.outcome for result in done.results if result.api == "messages"}
    assert over == (set() if offered is False else {Outcome.INCONCLUSIVE})


@pytest.fixture
def overloaded(raw_server):
    """A plain endpoint whose first answers over the Messages API are HTTP 503; further ones are a 404."""

    def serve(times):
        left = [b"/v1/messages"] * times

        def answer(connection, request):
            path = request.split(b" ", 2)[1]
            if path in left:
                left.remove(path)
                connection.sendall(http(503, {"error": {"message": "overloaded"}}))
            elif path.startswith(b"/v1/chat/completions"):
                connection.sendall(http(200, COMPLETION))
            else:
                is_models = path == b"/v1/models"
                connection.sendall(http(200, {"data": [{"id": "m"}]}) if is_models else http(404, {"error": "no"}))

        return raw_server(answer).url

    return serve


@pytest.mark.parametrize(
    ("times", "offered", "reason"),
    [
        pytest.param(1, False, "HTTP 404", id="once"),
        pytest.param(9, None, "HTTP 503 (overloaded)", id="always"),
    ],
)
def test_an_overloaded_probe_is_repeated_and_leaves_open_what_the_server_has(overloaded, times, offered, reason):
    done = finished(f"openai:{overloaded(times)}", select=("simple_answer",), apis=("chat", "messages"))
    assert done.capabilities.to_json()["apis"]["messages"] == {"offered": offered, "reason": reason}
    over = {result.outcome for result in done.results if result.api == "messages"}
    assert over == (set() if offered is False else {Outcome.INCONCLUSIVE})


@pytest.mark.parametrize(
    ("cuts", "verdict"),
    [
        pytest.param(1, "Claude Code cannot use this server: it does not offer Messages.", id="once"),
        pytest.param(
            9,
            "Nothing is known about Claude Code on this server: it is unknown whether it offers Messages (no whole answer:"
            " peer closed connection without sending complete message body (received 1 bytes, expected 323)).",
            id="always",
        ),
    ],
)
def test_the_verdict_for_a_client_says_whether_its_api_is_missing_or_unknown(flaky, cuts, verdict, tmp_path, capsys):
    main(["run", f"openai:{flaky(cuts)}", "--client", "claude-code", "--latency", "0", "--out", str(tmp_path / "run")])
    shown = capsys.readouterr().out
    assert " ".join(shown.split()).startswith(verdict)
    assert "UNKNOWN" not in shown


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
