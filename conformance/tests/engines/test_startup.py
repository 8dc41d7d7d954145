"""`--wait`: a server that is starting is asked again until it answers, and no longer than the user allowed."""

import asyncio
import json

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.engines import startup
from harmony_conformance.engines.startup import wait_for_start
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Failure, FailureKind, Request, Response

LIST = Request(method="GET", path="/v1/models", body=b"")
ASK = Request(path="/v1/chat/completions", body=b"{}")
REFUSED = SendResult(failure=Failure(kind=FailureKind.NO_CONNECTION, detail="connection refused"))


def answered(status):
    return SendResult(response=Response(status=status, chunks=()))


class Clock:
    """A time that passes by sleeping alone."""

    def __init__(self):
        self.time = 100.0

    def now(self):
        return self.time

    async def sleep(self, seconds):
        self.time += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(startup, "now", clock.now)
    monkeypatch.setattr(startup, "sleep", clock.sleep)
    return clock


def ask(requests, results, seconds):
    """Send requests to a server with these results; return the statuses, the notices, and the number of attempts."""
    coming, notices, attempts = iter(results), [], []

    async def send(request):
        attempts.append(request)
        return next(coming, REFUSED)

    async def send_all():
        patient = wait_for_start(send, seconds, notices.append)
        return [await patient(request) for request in requests]

    got = asyncio.run(send_all())
    return [one.response.status if one.response else 0 for one in got], list(map(str, notices)), len(attempts)


def test_a_server_that_starts_is_asked_again(clock):
    results = [REFUSED, answered(503), answered(200), answered(503), answered(200)]
    assert ask([LIST, ASK], results, 600.0) == (
        [200, 200],
        ["waiting for the server to start: connection refused (--wait 600)"],
        5,
    )
    assert clock.time == 103


def test_a_reason_is_reported_each_half_minute(clock):
    statuses, notices, attempts = ask([LIST], [], 65.0)
    assert (statuses, attempts, clock.time) == ([0], 66, 165.0)
    assert notices == ["waiting for the server to start: connection refused (--wait 65)"] * 3


def test_a_server_that_answered_a_question_has_started(clock):
    assert ask([ASK, LIST, ASK], [answered(400), REFUSED, answered(503)], 600.0) == ([400, 0, 503], [], 3)
    assert clock.time == 100


def test_without_the_option_nothing_is_repeated():
    async def send(request):
        raise AssertionError(request)

    assert wait_for_start(send, None, print) is send


COMPLETION = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}


@pytest.fixture
def late_server(raw_server, monkeypatch):
    """A server that lists its model, and loads it until a client waits."""
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(startup, "sleep", pause)

    def answer(connection, request):
        status, body = 404, {"error": "no"}
        if b" /v1/models " in request:
            status, body = 200, {"data": [{"id": "m"}]}
        elif request.startswith(b"POST /v1/chat/completions "):
            status, body = (200, COMPLETION) if pauses else (503, {"error": {"message": "Loading model"}})
        data = json.dumps(body).encode()
        connection.sendall(
            b"HTTP/1.1 %d X\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (status, len(data)) + data
        )

    return raw_server(answer).url


def test_a_run_waits_for_a_server_that_loads_its_model(late_server, tmp_path, capsys):
    words = ["run", late_server, "--select", "simple_answer", "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "HTTP 503: Loading model" in capsys.readouterr().err
    assert main([*words, "--wait", "10m"]) in {0, 1}
    printed = capsys.readouterr().err
    assert "waiting for the server to start: HTTP 503 (--wait 600)" in printed
    assert "model m;" in printed


def test_a_server_that_does_not_start_is_an_error(tmp_path, capsys):
    assert main(["run", "http://127.0.0.1:9", "--wait", "0.01", "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err.splitlines()
    assert error[-1].endswith("http://127.0.0.1:9: no HTTP response: connection refused")


def test_a_wait_is_a_time(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["run", "http://127.0.0.1:9", "--wait", "soon"])
    assert "expected a time above 0 such as 90, 30m or 2h, got 'soon'" in capsys.readouterr().err
