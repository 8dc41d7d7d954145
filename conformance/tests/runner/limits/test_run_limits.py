"""A run ends: at its time limit, whatever the server does, and where the server has stopped answering."""

import asyncio
import json
import re
from threading import Lock

import pytest

from harmony_conformance.cli.main import main
from harmony_conformance.engines.diagnosis import EndpointUnusableError
from harmony_conformance.engines.target import parse_target
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.limits.access_loss import early_stop_reason
from harmony_conformance.runner.limits.run_limits import MAX_TIMEOUTS, RunLimits
from harmony_conformance.runner.run import Options, make_plan, run
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
    """Start an endpoint that answers `count` chat requests; `later(connection, number)` has the others.

    `has_gateway`: other requests are always answered, otherwise only until then.
    """

    def start(later, count=ANSWERED, has_gateway=True, completion=COMPLETION):
        chats, lock = [], Lock()

        def answer(connection, request):
            if request.split(b" ", 2)[1] != b"/v1/chat/completions":
                if not has_gateway and len(chats) >= count:
                    return
                connection.sendall(http(200, {"data": [{"id": "m"}]}))
                return
            with lock:
                chats.append(request)
                number = len(chats)
            if number <= count:
                connection.sendall(http(200, completion))
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


def finished(url, select=SELECTED, **options):
    kept = []
    options = Options(select=select, seed=1, **options)
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


def dying(connection, number, server):
    server.__exit__()


def resetting(connection, number, server):
    """Close the connection without an answer."""


def blamed_exchanges(done):
    return {finding.exchange for r in done.results if r.outcome is Outcome.FAIL for finding in r.findings}


def gone(kept):
    return [x for x in kept if x.failure is not None and x.failure.kind is FailureKind.SERVER_GONE]


@pytest.mark.parametrize(("later", "concurrency"), [(dying, 1), (dying, 4), (resetting, 1), (resetting, 4)])
def test_a_server_that_goes_away_ends_the_run_and_fails_no_request(endpoint, later, concurrency):
    server, chats = endpoint(later, has_gateway=False)
    done, kept = finished(server.url, concurrency=concurrency, latency_requests=5)
    lost = gone(kept)
    reason = early_stop_reason(done.series).detail
    assert reason.startswith("the server went away after scenario ")
    assert {x.failure.detail for x in lost} == {reason}
    assert blamed_exchanges(done).isdisjoint(x.id for x in lost)
    last = max((x for x in kept if x.response is not None), key=lambda x: x.started)
    assert f" {last.scenario}, step " in reason.partition(";")[0]
    assert {one.name for one in done.series} == set(SELECTED)
    assert (done.latency, len(chats) <= ANSWERED + concurrency + 1) == ((), True)


def test_requests_that_are_not_answered_by_a_living_server_fail_and_the_run_goes_on(endpoint):
    def later(connection, number, server):
        if number % 4 == 0:
            connection.sendall(http(200, COMPLETION))

    server, _ = endpoint(later)
    done, kept = finished(server.url, concurrency=1)
    assert (gone(kept), early_stop_reason(done.series)) == ([], None)
    lost = {x.id for x in kept if x.failure is not None and x.failure.kind is FailureKind.RESET}
    assert lost
    assert lost <= blamed_exchanges(done)


def test_a_server_that_answers_only_chat_requests_is_not_lost(endpoint):
    """It answers `GET /v1/models` in discovery only."""

    def later(connection, number, server):
        if number != ANSWERED + 1:
            connection.sendall(http(200, COMPLETION))

    server, _ = endpoint(later, has_gateway=False)
    done, kept = finished(server.url, concurrency=1)
    assert (gone(kept), early_stop_reason(done.series)) == ([], None)


def test_a_gateway_that_answers_for_a_dead_server_hides_no_loss(endpoint):
    server, _ = endpoint(resetting)
    done, kept = finished(server.url, concurrency=1)
    assert gone(kept)
    assert early_stop_reason(done.series).kind is FailureKind.SERVER_GONE


def test_an_invalid_request_that_ends_the_server_fails(endpoint):
    server, _ = endpoint(dying, count=4)
    done, kept = finished(server.url, select=("wrong_formats",))
    (ended,) = [x for x in kept if x.failure is not None and x.failure.kind is FailureKind.RESET]
    assert {x.step for x in gone(kept)} == {"no schema", "a format that does not exist", "after"}
    assert ended.id in blamed_exchanges(done)


WRONG_SUM = {**COMPLETION, "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 12}}


@pytest.mark.parametrize(("completion", "code"), [(COMPLETION, 2), (WRONG_SUM, 1)])
def test_the_exit_code_of_a_run_without_its_server(completion, code, endpoint, capsys, tmp_path):
    server, _ = endpoint(dying, count=3, completion=completion)
    assert main(["run", f"openai:{server.url}", "--select", "simple_answer", "--out", str(tmp_path)]) == code
    err = capsys.readouterr().err
    assert err.count("run stopped early: ") == 1
    assert "the server went away after scenario simple_answer, step answer (" in err


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


WITHOUT_USAGE = {name: value for name, value in COMPLETION.items() if name != "usage"}


@pytest.mark.parametrize(
    ("completion", "most", "sent"), [(COMPLETION, 9, 5), (WITHOUT_USAGE, 3, 3), (COMPLETION, 999, 99)]
)
def test_a_run_ends_when_its_output_tokens_are_spent(endpoint, completion, most, sent):
    server, _ = endpoint(silent, count=1000, completion=completion)
    done, kept = finished(server.url, concurrency=1, max_tokens=most, latency_requests=1)
    chats_sent = len([x for x in kept if x.response is not None and x.scenario in SELECTED])
    cut = early_stop_reason(done.series)
    if sent == 99:
        assert (cut, chats_sent > 5) == (None, True)
        return
    assert chats_sent == sent
    assert (cut.kind, cut.detail) == (FailureKind.RUN_STOPPED, f"not sent: --max-tokens {most} was reached")
    assert done.latency_skip_reason == "the run was stopped"


def test_the_latency_probe_is_not_sent_beyond_the_output_tokens(endpoint):
    server, _ = endpoint(silent, count=1000)
    done, _ = finished(server.url, select=("simple_answer",), concurrency=1, max_tokens=500, latency_requests=5)
    assert re.fullmatch(r"it takes up to \d+ output tokens, but --max-tokens leaves 496", done.latency_skip_reason)


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
    *_, stopped, again = err.splitlines()
    assert stopped.startswith("run stopped early: ")
    assert again.startswith("to continue: ")
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
