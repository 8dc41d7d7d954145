"""A key that is revoked within a run, money that runs out, a limit of a day: nobody's fault, and told from requests that are refused for what they ask."""

import asyncio
import json
from collections import Counter
from threading import Lock

import pytest

import harmony_conformance.transport.client
from harmony_conformance.cli.main import main
from harmony_conformance.engines.target import parse_target
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.limits.access_loss import early_stop_reason
from harmony_conformance.runner.run import Options, make_plan, run
from harmony_conformance.transport.messages import FailureKind

pytest_plugins = ["pytester"]

COMPLETION = {
    "object": "chat.completion",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11},
}
SELECTED = ("simple_answer", "tool_call", "wrong_formats", "side_by_side")
SENT_BEFORE = 8  # requests after discovery, until something happens
REVOKED = 401, "the API key is now rejected (HTTP 401)", FailureKind.ACCESS_REFUSED
UNPAID = 402, "payment is now required (HTTP 402)", FailureKind.ACCESS_REFUSED
USED_UP = (
    429,
    "HTTP 429 after 0 waits, and the server asks to wait longer than 180 s",
    FailureKind.RATE_LIMITED,
)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def http(status, body):
    data = json.dumps(body).encode()
    lines = [b"HTTP/1.1 %d X" % status, b"content-type: application/json", b"connection: close"]
    lines += [b"retry-after: 86400"] if status == 429 else []
    lines += [b"retry-after: 60"] if status == 529 else []
    lines[0] = lines[0].replace(b"529", b"503")
    lines[0] = lines[0].replace(b"420", b"429")  # the same, and not a word of how long
    return b"\r\n".join([*lines, b"content-length: %d" % len(data), b"", data])


def endpoint(raw_server, refuses):
    """A plain endpoint. `refuses(number, body)`: the status by which it refuses a chat request, None where it answers."""
    chats, lock = [], Lock()

    def answer(connection, request):
        if request.split(b" ", 2)[1] != b"/v1/chat/completions":
            connection.sendall(http(200, {"data": [{"id": "m"}]}))
            return
        body = request.partition(b"\r\n\r\n")[2]
        with lock:
            chats.append(body)
            status = refuses(len(chats), body)
        wrong = b'"max_tokens":-1' in body or not body.startswith(b"{")
        connection.sendall(
            http(status, {"error": {"message": "no"}}) if status else http(400 if wrong else 200, COMPLETION)
        )

    return raw_server(answer), chats


def finished(url, **options):
    kept = []
    options = Options(select=SELECTED, seed=1, concurrency=4, **options)
    told = run(parse_target(f"openai:{url}"), options, make_plan(options), kept.append, lambda found: None)
    return asyncio.run(told), kept


def discovered(url):
    _, kept = finished(url, max_requests=0)
    return [x for x in kept if x.request.path == "/v1/chat/completions"]


def refused_after(count, status):
    return lambda number, body: status if number > count else None


@pytest.mark.parametrize(("status", "reason", "kind"), [REVOKED, UNPAID, USED_UP])
def test_a_client_that_is_turned_away_within_a_run_is_no_failure_of_the_endpoint(raw_server, status, reason, kind):
    server, chats = endpoint(raw_server, refused_after(SENT_BEFORE, status))
    done, kept = finished(server.url, latency_requests=5)
    refused = [x for x in kept if x.response is not None and x.response.status == status]
    assert {x.failure.kind for x in refused} == {kind}
    unsent = [x for x in kept if x.response is None]
    assert {(x.failure.kind, x.failure.detail) for x in unsent} == {(kind, f"not sent: {reason}")}
    assert early_stop_reason(done.series) == unsent[0].failure
    assert len(chats) <= SENT_BEFORE + 4 + 5  # those that were under way, and the plain one, five times
    blamed = {finding.exchange for r in done.results if r.outcome is Outcome.FAIL for finding in r.findings}
    assert blamed.isdisjoint(x.id for x in (*refused, *unsent))
    assert Counter(r.outcome for r in done.results)[Outcome.INCONCLUSIVE] > 10
    assert done.latency == ()


def test_a_valid_request_that_is_refused_while_a_plain_one_is_answered_is_judged(raw_server):
    status = 403
    server, chats = endpoint(raw_server, lambda number, body: status if b'"tools"' in body else None)
    done, kept = finished(server.url)
    refused = [x for x in kept if x.response.status == status]
    assert refused
    assert {x.failure for x in refused} == {None}
    (told,) = [r for r in done.results if (r.check, r.scenario) == ("errors.valid_request_is_answered", "tool_call")]
    assert told.outcome is Outcome.FAIL
    assert f"HTTP {status}" in told.findings[0].message
    assert early_stop_reason(done.series) is None
    asked = [x for x in kept if x.request.path == "/v1/chat/completions"]
    assert len(chats) == len(asked) + len(refused)  # a plain one beside each


def test_what_waits_its_turn_is_not_sent_to_a_server_that_lets_nobody_in_any_more(raw_server):
    server, chats = endpoint(raw_server, refused_after(SENT_BEFORE, 401))
    done, kept = finished(server.url, tries=5)
    assert len(chats) <= SENT_BEFORE + 4 + 5
    (reason,) = {x.failure.detail for x in kept if x.response is None}
    assert reason == f"not sent: {REVOKED[1]}"
    assert {one.name for one in done.series} == set(SELECTED)


def test_a_server_that_lets_nobody_in_after_the_longest_waits_is_not_waited_for_again(raw_server, monkeypatch):
    slept = []

    async def pause(seconds):
        slept.append(seconds)

    monkeypatch.setattr(harmony_conformance.transport.client, "_pause", pause)
    server, _ = endpoint(raw_server, refused_after(SENT_BEFORE, 529))
    done, _ = finished(server.url, tries=2)
    assert early_stop_reason(done.series).detail == "not sent: HTTP 503 after 3 waits"
    assert set(slept) == {60.0}
    assert len(slept) <= 3 * (4 + 1)  # of those that were under way, and of the plain one


@pytest.mark.parametrize("status", [403, 429])
def test_a_server_that_refuses_now_and_then_is_not_taken_for_one_that_lets_nobody_in(raw_server, status):
    refused_plain = 0

    def refuses(number, body):
        nonlocal refused_plain
        is_plain = number > 2 and b"Say hello." in body
        refused_plain += is_plain
        return status if b'"tools"' in body or (is_plain and refused_plain % 5) else None

    server, _ = endpoint(raw_server, refuses)
    done, _ = finished(server.url)
    assert early_stop_reason(done.series) is None
    told = [r for r in done.results if (r.check, r.outcome) == ("errors.valid_request_is_answered", Outcome.FAIL)]
    assert bool(told) == (status == 403)


def test_a_refusal_after_which_no_request_is_left_to_see_whom_it_meant_is_left_open(raw_server):
    server, chats = endpoint(raw_server, refused_after(SENT_BEFORE, 401))
    looking, _ = endpoint(raw_server, lambda number, body: None)
    done, kept = finished(server.url, max_requests=SENT_BEFORE - len(discovered(looking.url)) + 1)
    (refused,) = [x for x in kept if x.response is not None and x.response.status == 401]
    assert len(chats) == SENT_BEFORE + 1
    assert refused.failure.detail == "HTTP 401; no request is left to check whether access was lost"
    assert not [r for r in done.results if r.outcome is Outcome.FAIL and refused.id in r.exchanges]


def test_a_refusal_of_which_nobody_knows_whom_it_meant_is_left_open_and_the_run_goes_on(raw_server):
    def refuses(number, body):
        asks_again = number > 2 and b"Say hello." in body
        return 403 if b'"tools"' in body else 420 if asks_again else None

    server, _ = endpoint(raw_server, refuses)
    done, _ = finished(server.url)
    (told,) = [r for r in done.results if (r.check, r.scenario) == ("errors.valid_request_is_answered", "tool_call")]
    assert told.outcome is Outcome.INCONCLUSIVE
    assert told.reason.startswith("rate limited: tool_call/")
    assert early_stop_reason(done.series) is None


def test_a_request_that_costs_too_much_is_nobodys_fault_and_the_run_goes_on(raw_server):
    server, _ = endpoint(raw_server, lambda number, body: 402 if b'"tools"' in body else None)
    done, _ = finished(server.url)
    (told,) = [r for r in done.results if (r.check, r.scenario) == ("errors.valid_request_is_answered", "tool_call")]
    assert (told.outcome, told.reason) == (Outcome.INCONCLUSIVE, "this request requires payment (HTTP 402)")
    assert early_stop_reason(done.series) is None
    assert [r for r in done.results if r.scenario == "simple_answer" and r.outcome is Outcome.PASS]


@pytest.mark.parametrize(("status", "reason", "code"), [(*REVOKED[:2], 2), (*USED_UP[:2], 1)])
@pytest.mark.usefixtures("elsewhere")
def test_a_run_that_was_cut_short_says_so_in_one_line(raw_server, capsys, status, reason, code):
    server, _ = endpoint(raw_server, refused_after(SENT_BEFORE, status))
    words = [word for name in SELECTED for word in ("--select", name)]
    assert main(["run", f"openai:{server.url}", "--latency", "0", "--concurrency", "4", *words, "--out", "o"]) == code
    assert f"run stopped early: not sent: {reason}\n" in capsys.readouterr().err
    if code == 2:
        assert main(["run", "replay:o/exchanges.jsonl", *words, "--out", "again"]) == code
        assert f"run stopped early: not sent: {reason}\n" in capsys.readouterr().err


def test_a_session_of_pytest_that_was_cut_short_is_no_success_and_says_so(raw_server, pytester):
    server, _ = endpoint(raw_server, refused_after(3, 401))
    options = ("select=errors.*@simple_answer", "select=errors.*@tool_call", "concurrency=1")
    words = [word for option in options for word in ("--harmony", option)]
    module = "harmony_conformance.conformance_test"
    done = pytester.runpytest_subprocess("--pyargs", module, "--endpoint", f"openai:{server.url}", *words)
    counts = done.parseoutcomes()
    assert (counts.get("failed", 0), counts["passed"] > 0) == (0, True)
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.stdout.fnmatch_lines([f"harmony-conformance: the run was stopped: not sent: {REVOKED[1]}"])
