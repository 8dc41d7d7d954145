"""The judge of a run spends a bounded time on each scenario."""

import time
from dataclasses import replace

import pytest

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.check import MUST, SHOULD, Outcome, check, comparison
from harmony_conformance.judge.condition import condition
from harmony_conformance.runner import judge_run
from harmony_conformance.runner.judge_run import judge_all
from harmony_conformance.runner.run import Options, make_plan
from harmony_conformance.transport.messages import Request


@condition
def is_sent(_):
    """everything sent"""
    return True


@check(MUST, spec="chat#usage", when=is_sent)
def slow(x):
    """It takes long."""
    while "slow" in x.id:
        time.sleep(0.01)
    yield from ()


@comparison(SHOULD, spec="chat#usage", when=is_sent)
def compares_slowly(one):
    """It compares slowly."""
    while len({x.api for x in one.exchanges.values()}) > 1:
        time.sleep(0.01)
    yield from ()


@pytest.mark.timeout(60, method="thread")  # the limit is not set while another timer is active
def test_a_scenario_that_takes_too_long_is_an_error_and_the_others_are_judged(monkeypatch):
    monkeypatch.setattr(judge_run, "JUDGING_SECONDS", 0.2)
    planned = make_plan(Options(apis=("chat", "responses"), select=("simple_answer",)))
    comparing = replace(compares_slowly, id="apis.compares_slowly")
    plan = replace(planned, checks=(slow, comparing))
    chat, responses = (
        Series(
            name=scenario.name,
            exchanges={"1": Exchange(id=name, api=scenario.api, request=Request(path="/", body=b"{}"))},
        )
        for scenario, name in zip(planned.scenarios, ("slow", "fast"), strict=True)
    )
    results = {(one.check, one.api): one for one in judge_all([chat, responses], plan)}
    assert {key: one.outcome for key, one in results.items()} == {
        (slow.id, chat.api): Outcome.ERROR,
        (slow.id, responses.api): Outcome.PASS,
        (comparing.id, "all"): Outcome.ERROR,
    }
    assert results[slow.id, chat.api].reason == "judging took longer than 0.2 s"
    assert results[comparing.id, "all"].reason == "judging took longer than 0.2 s"
