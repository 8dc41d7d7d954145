"""What the selftest leaves out is what it has already seen: answers that a defect leaves as they are."""

import json

import pytest

from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.selftest import fingerprints
from harmony_conformance.wire import Chunk, Request, Response


def answered(*bodies, date="1", status=200):
    headers = {"date": date, "content-type": "application/json"}
    return {
        f"step {n}": Exchange(
            id=str(n),
            request=Request(path="/v1/chat/completions", body=b"{}"),
            response=Response(status=status, headers=headers, chunks=(Chunk(at=n, data=json.dumps(body).encode()),)),
        )
        for n, body in enumerate(bodies)
    }


def fingerprint(*bodies, **fields):
    return fingerprints([Series(name="s", exchanges=answered(*bodies, **fields))])["s"]


ONE = {"id": "chatcmpl-a", "created": 5, "call": "call_x"}
OTHER = {"id": "chatcmpl-b", "created": 6, "call": "call_y"}


def test_ids_and_times_of_another_run_make_no_difference():
    assert fingerprint(ONE, OTHER) == fingerprint(
        {"id": "chatcmpl-q", "created": 8, "call": "call_r"},
        {"id": "chatcmpl-p", "created": 8, "call": "call_s"},
        date="2",
    )


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
    assert fingerprint(*bodies) != fingerprint(ONE, OTHER)


def test_another_status_is_judged():
    assert fingerprint(ONE, status=201) != fingerprint(ONE)


def test_series_about_time_are_always_judged():
    assert fingerprints([Series(name="slow_stream", exchanges=answered(ONE))]) == {}
