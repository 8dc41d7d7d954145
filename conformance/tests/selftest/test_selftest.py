"""What the selftest leaves out is what it has already seen: answers that a defect leaves as they are."""

import asyncio
import json
import time
from dataclasses import replace

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.run import Options, make_plan, run
from harmony_conformance.selftest.in_memory_transport import application_client, run_with_simulated_clock
from harmony_conformance.selftest.selftest import (
    ExpectedDetections,
    judge_defect,
    read_checks_of_logs,
    read_switches,
    run_reference,
)
from harmony_conformance.selftest.unchanged_answers import changed_series, digests
from harmony_conformance.transport.messages import Chunk, FailureKind, Request, Response


def answered(*bodies, date="1", status=200, late=0.0):
    headers = {"date": date, "content-type": "application/json"}
    return {
        f"step {n}": Exchange(
            id=str(n),
            request=Request(path="/v1/chat/completions", body=b"{}"),
            response=Response(
                status=status, headers=headers, chunks=(Chunk(arrival_time=n + late, data=json.dumps(body).encode()),)
            ),
        )
        for n, body in enumerate(bodies)
    }


def digest(*bodies, arrivals=False, **fields):
    return digests([Series(name="s", exchanges=answered(*bodies, **fields))], arrivals=arrivals)["s", "chat"]


def judged(bodies, right):
    known = digests([Series(name="s", exchanges=answered(*right))], arrivals=True)
    return [[*one.exchanges] for one in changed_series([Series(name="s", exchanges=answered(*bodies))], known)]


ONE = {"id": "chatcmpl-a", "created": 5, "call": "call_x"}
OTHER = {"id": "chatcmpl-b", "created": 6, "call": "call_y"}


def test_ids_and_times_of_another_run_make_no_difference():
    assert digest(ONE, OTHER) == digest(
        {"id": "chatcmpl-q", "created": 8, "call": "call_r"},
        {"id": "chatcmpl-p", "created": 8, "call": "call_s"},
        date="2",
    )


def test_an_id_that_begins_with_no_word_is_one_too():
    one, other = ({"text": "Hi", "meta_info": {"id": digit * 32}} for digit in "ab")
    assert compact(one) == compact(other)
    assert compact({"text": "a" * 32}) != compact({"text": "b" * 32})


def compact(body):
    """The digest of an answer that is written without blanks, as a server writes it."""
    (x,) = answered(body).values()
    data = json.dumps(body, separators=(",", ":")).encode()
    told = replace(x, response=replace(x.response, chunks=(Chunk(arrival_time=0.0, data=data),)))
    return digests([Series(name="s", exchanges={"first": told})], arrivals=False)


@pytest.mark.parametrize(
    "bodies",
    [
        (ONE, ONE),
        (ONE, OTHER | {"call": "call_x"}),
        (ONE, OTHER | {"more": 1}),
        (ONE,),
        (OTHER | {"id": "call_y"}, ONE),
    ],
    ids=["an id twice", "a call's id twice", "a member more", "an answer less", "an id for another"],
)
def test_whatever_else_differs_is_judged(bodies):
    assert digest(*bodies) != digest(ONE, OTHER)


def test_another_status_is_judged():
    assert digest(ONE, status=201) != digest(ONE)


def test_when_answers_come_is_compared_where_time_stands_still_meanwhile():
    assert digest(ONE, late=0.1) == digest(ONE)
    assert digest(ONE, late=0.1, arrivals=True) != digest(ONE, arrivals=True)


@pytest.mark.parametrize(
    ("bodies", "left"),
    [
        ((ONE, OTHER), []),
        ((ONE, OTHER | {"more": 1}), [["step 1"]]),
        ((ONE | {"more": 1}, OTHER), [["step 0"]]),
        ((ONE,), [["step 0"]]),
        ((ONE, OTHER, ONE), [["step 2"]]),
    ],
    ids=["nothing", "one", "another", "one is missing", "one more"],
)
def test_exchanges_that_differ_are_judged_and_all_of_them_where_one_is_missing(bodies, left):
    assert judged(bodies, (ONE, OTHER)) == left


def test_without_a_wire_the_same_is_answered_at_times_that_are_exact():
    paced = replace(make_plan(Options()), checks=())
    paced = replace(paced, scenarios=tuple(one for one in paced.scenarios if one.name in ("slow_stream", "routing")))
    begun = time.monotonic()
    first, again = (run_reference((), paced).series for _ in range(2))
    assert time.monotonic() - begun < sum(
        x.response.chunks[-1].arrival_time for one in first for x in one.exchanges.values()
    )
    assert digests(first, arrivals=True) == digests(again, arrivals=True)
    wired = asyncio.run(run(parse_target("reference"), Options(), paced, lambda _: None, lambda _: None)).series
    assert digests(wired, arrivals=False) == digests(first, arrivals=False)


async def _refused(scope, receive, send):
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
    raise RuntimeError("down")


def test_an_answer_that_breaks_off_is_cut_without_a_wire_too():
    sent = run_with_simulated_clock(application_client(_refused).send(Request(path="/v1/chat/completions", body=b"{}")))
    assert (sent.response.body, sent.failure.kind) == (b"data: 1\n\n", FailureKind.CUT)


def test_waiting_for_what_never_comes_is_an_error():
    with pytest.raises(RuntimeError, match="every task waits for another task"):
        run_with_simulated_clock(asyncio.Event().wait())


def test_every_check_is_there_for_a_defect_or_for_logs_alone():
    there = {check for row in read_switches().values() for check in row.caught_by}
    logs_only = read_checks_of_logs()
    assert {check.id for check in CHECKS} - there == logs_only.keys()
    failing = {example.check for example in golden.examples() if example.outcome is Outcome.FAIL}
    assert logs_only.keys() <= failing
    assert all(logs_only.values())
    assert there - {check.id for check in CHECKS} == set()


@pytest.mark.parametrize(
    ("failed", "expected"),
    [
        ({"a", "b"}, (("a",), (), (), True)),
        ({"a", "b", "c"}, (("a",), ("c",), (), False)),
        ({"b"}, ((), (), ("a",), False)),
        ({"a"}, (("a",), (), ("b",), False)),
    ],
    ids=["as named", "another check fails too", "missed", "a consequence does not show"],
)
def test_what_fails_is_what_the_table_names(failed, expected):
    catch = ExpectedDetections(caught_by=frozenset({"a"}), also=frozenset({"b"}), by_wire=frozenset({"d"}))
    one = judge_defect("defect", frozenset(failed), catch)
    assert (one.caught_by, one.unrelated, one.missed, one.is_as_expected) == expected
    assert one.to_json()["silent"] == list(one.missed)
