"""A run ends: at its time limit, whatever the server does, and where the server has stopped answering."""

import asyncio
import json
from threading import Lock

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.engines.diagnosis import EndpointUnusableError
from harmony_conformance.engines.target import parse_target
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.access_loss import early_stop_reason
from harmony_conformance.runner.run import Options, make_plan, run
from harmony_conformance.runner.run_limits import MAX_TIMEOUTS, RunLimits
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Failure, FailureKind, Response

COMPLETION = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}
SELECTED = ("simple_answer", "tool_call", "wrong_formats", "side_by_side")
ANSWERED = 8  # chat requests, until the server changes
DEAD = f"the server did not answer {MAX_TIMEOUTS} requests in a row (--timeout 0.2 s)"


def http(status, body, *lines):
    data = json.dumps(body).encode()
    head = [b"HTTP/1.1 %d X" % status, b"content-type: application/json", b"connection: close", *lines]
    return b"\r\n".join([*head, b"content-length: %d" % len(data), b"", data])


@pytest.fixture
def endpoint(raw_server):
    """Start an endpoint that answers `count` chat requests; `later(connection, number)` has the others."""

    def start(later, count=ANSWERED):
        chats, lock = [], Lock()

        def answer(connection, request):
            if request.split(b" ", 2)[1] != b"/v1/chat/completions":
                connection.sendall(http(200, {"data": [{"id": "m"}]}))
                return
            with lock:
                chats.append(request)
                number = len(chats)
            if number <= count:
                connection.sendall(http(200, COMPLETION))
            else:
                later(connection, number, server)

        server = raw_server(answer)
        return server, chats

    return start


def silent(connection, number, server):
    server.closing.wait()


def dripping(connection, number, server):
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n{")
    while not server.closing.wait(0.02):
        connection.sendall(b" ")


def busy(connection, number, server):
    connection.sendall(http(429, {"error": {"message": "busy"}}, b"retry-after: 2"))


def finished(url, **options):
    kept = []
    options = Options(select=SELECTED, seed=1, **options)
    done = asyncio.run(run(parse_target(f"openai:{url}"), options, make_plan(options), kept.append, lambda _: None))
    return done, [x for x in kept if x.scenario != "discovery"]


@pytest.mark.parametrize(("later", "concurrency"), [(silent, 1), (silent, 4), (dripping, 4)])
def test_a_server_that_stops_answering_ends_the_run(endpoint, later, concurrency):
    server, chats = endpoint(later)
    done, kept = finished(server.url, concurrency=concurrency, timeout=0.2, latency_requests=5)
    unsent = [x for x in kept if x.failure is not None and x.failure.kind is FailureKind.RUN_STOPPED]
    assert unsent
    assert {x.failure.detail for x in unsent} == {f"not sent: {DEAD}"}
    assert early_stop_reason(done.series) == unsent[0].failure
    assert len(chats) <= ANSWERED + (MAX_TIMEOUTS + 1) * concurrency
    blamed = {finding.exchange for r in done.results if r.outcome is Outcome.FAIL for finding in r.findings}
    assert blamed.isdisjoint(x.id for x in unsent)
    assert {one.name for one in done.series} == set(SELECTED)
    assert done.latency == ()


def test_timeouts_between_answers_end_no_run(endpoint):
    def later(connection, number, server):
        if number % 3:
            server.closing.wait()
        else:
            connection.sendall(http(200, COMPLETION))

    server, chats = endpoint(later)
    done, _ = finished(server.url, concurrency=1, timeout=0.05)
    assert early_stop_reason(done.series) is None
    assert len(chats) > ANSWERED + 2 * MAX_TIMEOUTS


@pytest.mark.parametrize("later", [silent, dripping, busy])
def test_a_run_ends_at_its_time_limit_whatever_the_server_does(endpoint, later):
    server, _ = endpoint(later)
    done, kept = finished(server.url, concurrency=2, timeout=600, max_time=1.5)
    reasons = {x.failure.detail for x in kept if x.failure is not None}
    assert reasons == {"the time limit of 1.5 s was reached", "not sent: the time limit of 1.5 s was reached"}
    assert {x.failure.kind for x in kept if x.failure is not None} == {FailureKind.RUN_STOPPED}
    assert [r for r in done.results if r.outcome is Outcome.FAIL and "time limit" in str(r.findings)] == []
    open_ones = {r.reason for r in done.results if r.outcome is Outcome.INCONCLUSIVE}
    assert any("the time limit of 1.5 s was reached" in reason for reason in open_ones)


def test_the_pause_of_a_rate_ends_at_the_time_limit(endpoint):
    server, chats = endpoint(silent, count=1000)
    with pytest.raises(EndpointUnusableError, match=r"stopped before the first scenario: the time limit of 0[.]5 s"):
        finished(server.url, max_rps=0.001, max_time=0.5)
    assert len(chats) <= 1


@pytest.mark.parametrize("later", [silent, busy])
def test_discovery_ends_at_the_time_limit(endpoint, later):
    server, _ = endpoint(later, count=1)
    with pytest.raises(EndpointUnusableError, match="the time limit of 1 s was reached"):
        finished(server.url, timeout=600, max_time=1)


def test_a_run_that_ended_at_its_limit_is_no_success_and_its_recording_neither(endpoint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    server, _ = endpoint(busy)
    words = [word for name in SELECTED for word in ("--select", name)]
    assert main(["run", f"openai:{server.url}", "--max-time", "1s", "--latency", "0", *words, "--out", "o"]) == 2
    err = capsys.readouterr().err
    assert err.count("the time limit of 1 s was reached\n") == 1
    assert err.splitlines()[-1].startswith("run stopped early: ")
    assert main(["run", "replay:o/exchanges.jsonl", *words, "--out", "again"]) == 2
    assert "the time limit of 1 s was reached\n" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("1.5", 1.5), ("90s", 90), ("30m", 1800), ("2h", 7200)])
def test_a_time_has_a_unit_or_is_in_seconds(text, seconds):
    from harmony_conformance.pytest_plugin.session import read_pytest_options

    assert read_pytest_options("reference", [f"max-time={text}"]).options.max_time == seconds


@pytest.mark.parametrize("text", ["0", "-1", "h", "1d", "nan", "2hh", "inf", ""])
def test_other_times_are_refused_in_one_line(text, capsys):
    with pytest.raises(SystemExit):
        main(["run", "reference", f"--max-time={text}"])
    err = capsys.readouterr().err
    assert f"--max-time: expected a time above 0 such as 90, 30m or 2h, got {text!r}" in err


def test_connections_that_are_not_accepted_count_as_timeouts_and_refused_ones_do_not():
    async def stopped(delay, kind):
        limits = RunLimits(None, 0.01)

        async def send():
            await asyncio.sleep(delay)
            return SendResult(failure=Failure(kind=kind, detail="x"))

        for _ in range(MAX_TIMEOUTS):
            await limits.send(send)
        return limits.stop_reason is not None

    assert asyncio.run(stopped(0.02, FailureKind.NO_CONNECTION))
    assert not asyncio.run(stopped(0, FailureKind.NO_CONNECTION))
    assert not asyncio.run(stopped(0.02, FailureKind.RESET))


def test_an_answer_between_timeouts_starts_the_count_again():
    async def reason():
        limits = RunLimits(None, 1)
        timeout = SendResult(failure=Failure(kind=FailureKind.TIMEOUT, detail="x"))

        async def send(result):
            async def sent():
                return result

            await limits.send(sent)

        for result in [timeout] * (MAX_TIMEOUTS - 1) + [SendResult(response=Response(status=500, chunks=()))]:
            await send(result)
        for _ in range(MAX_TIMEOUTS - 1):
            await send(timeout)
        return limits.stop_reason

    assert asyncio.run(reason()) is None
