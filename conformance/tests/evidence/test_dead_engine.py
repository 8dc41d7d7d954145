"""Requests to an engine that an earlier request killed are the server's loss, and only the exchange that killed it fails."""

from dataclasses import replace

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.dead_engine import mark_dead_engine
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.levels import Validity
from harmony_conformance.json_value import dumps
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response

DEAD = "EngineCore encountered an issue. See stack trace (above) for the root cause."
ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello!"}, "finish_reason": "stop"}]}
REFUSED = Failure(kind=FailureKind.NO_CONNECTION, detail="connection refused")
RESET = Failure(kind=FailureKind.RESET, detail="connection reset")


def exchange(step, second, response=None, *, seconds=0.5, failure=None, validity=Validity.VALID):
    """An exchange: `response` is a status with a message, an answer, or None."""
    body = {"error": {"message": response[1]}} if isinstance(response, tuple) else response
    status = response[0] if isinstance(response, tuple) else 200
    return Exchange(
        id=f"s/{step}",
        step=step,
        scenario="s",
        request=Request(
            path="/v1/chat/completions", body=dumps({"messages": [{"role": "user", "content": "Hi"}]}).encode()
        ),
        response=None
        if body is None
        else Response(
            status=status,
            headers={"content-type": "application/json"},
            chunks=(Chunk(arrival_time=seconds, data=dumps(body).encode()),),
        ),
        failure=failure,
        validity=validity,
        started=f"2026-11-22T22:57:{second:06.3f}+00:00",
    )


def series(*exchanges):
    return Series(name="s", exchanges={x.step: x for x in exchanges})


def gone(*exchanges):
    """The steps whose server was gone, with the exchange that killed it."""
    (marked,) = mark_dead_engine([series(*exchanges)])
    return {
        step: x.failure.detail.removeprefix("the engine was dead since s/")
        for step, x in marked.exchanges.items()
        if x.failure is not None and x.failure.kind is FailureKind.SERVER_GONE
    }


def test_what_follows_the_request_that_killed_the_engine_is_not_its_own_fault():
    found = gone(
        exchange("before", 0, ANSWER),
        exchange("killer", 1, (500, DEAD)),
        exchange("wrong", 2, (500, DEAD), validity=Validity.INVALID),
        exchange("refused by the server itself", 3, (400, "no such format"), validity=Validity.INVALID),
        exchange("after", 4, (500, DEAD)),
    )
    assert found == {"wrong": "killer", "after": "killer"}


def test_an_engine_that_answers_again_is_alive():
    found = gone(
        exchange("killer", 1, (500, DEAD)),
        exchange("restarted", 2, ANSWER),
        exchange("killer again", 3, (500, DEAD)),
        exchange("after", 4, (500, DEAD)),
    )
    assert found == {"after": "killer again"}


def test_any_other_error_is_the_answer_to_its_request():
    assert not gone(exchange("a", 1, (500, "Internal Server Error")), exchange("b", 2, (500, "Internal Server Error")))


def test_requests_under_way_when_the_engine_died_keep_their_own_failure():
    assert not gone(exchange("one", 1, (500, DEAD), seconds=2), exchange("other", 2, (500, DEAD)))


def test_an_answer_that_was_under_way_does_not_revive_the_engine():
    found = gone(
        exchange("killer", 1, (500, DEAD), seconds=1),
        exchange("under way", 1.5, ANSWER, seconds=3),
        exchange("after", 3, (500, DEAD)),
    )
    assert found == {"after": "killer"}


@pytest.mark.parametrize("failure", [RESET, Failure(kind=FailureKind.CUT, detail="peer closed connection")])
def test_a_refused_connection_names_the_connection_that_was_lost_before(failure):
    found = gone(
        exchange("killer", 1, failure=failure),
        exchange("next", 2, failure=REFUSED),
        exchange("last", 3, failure=REFUSED),
    )
    assert found == {"next": "killer", "last": "killer"}


def test_the_first_refused_connection_fails_if_nothing_explains_it():
    found = gone(
        exchange("lost, and answered again", 0, failure=RESET),
        exchange("answered", 1, ANSWER),
        exchange("first", 2, failure=REFUSED),
        exchange("second", 3, failure=REFUSED),
    )
    assert found == {"second": "first"}


def test_the_killer_may_be_in_another_series():
    first, second = series(exchange("killer", 1, (500, DEAD))), series(exchange("after", 2, (500, DEAD)))
    marked = mark_dead_engine([second, first])
    assert [x.failure.detail for one in marked for x in one.exchanges.values() if x.failure is not None] == [
        "the engine was dead since s/killer"
    ]


def test_exchanges_without_times_keep_their_order():
    steps = exchange("killer", 1, (500, DEAD)), exchange("after", 2, (500, DEAD))
    assert gone(*(replace(x, started=None) for x in steps)) == {"after": "killer"}


def test_the_check_on_wrong_requests_is_inconclusive_and_names_the_killer():
    (marked,) = mark_dead_engine(
        [
            series(
                exchange("killer", 1, (500, DEAD)),
                exchange("wrong", 2, (500, DEAD), validity=Validity.INVALID),
                exchange("wrong form", 3, (400, "no such format"), validity=Validity.INVALID),
            )
        ]
    )
    exercised = frozenset({"errors.wrong_request_is_refused", "errors.valid_request_is_answered"})
    results = {one.check: one for one in judge([marked], CHECKS, exercised)}
    wrong, valid = results["errors.wrong_request_is_refused"], results["errors.valid_request_is_answered"]
    assert (wrong.outcome, wrong.reason) == (Outcome.INCONCLUSIVE, "the engine was dead since s/killer")
    assert (valid.outcome, [finding.exchange for finding in valid.findings]) == (Outcome.FAIL, ["s/killer"])


def test_a_wrong_request_that_killed_the_engine_fails():
    (marked,) = mark_dead_engine(
        [
            series(
                exchange("before", 0, ANSWER),
                exchange("wrong", 1, (500, DEAD), validity=Validity.INVALID),
                exchange("after", 2, (500, DEAD)),
            )
        ]
    )
    results = {one.check: one for one in judge([marked], CHECKS)}
    assert results["errors.wrong_request_is_refused"].outcome is Outcome.FAIL
    assert results["errors.server_survives_wrong_requests"].outcome is Outcome.FAIL
