"""The selftest with the guard in between: what the wire shows is seen, what it cannot show has its reason, and a guard that loses something is told."""

from dataclasses import replace

import pytest

from harmony_conformance.runtime import processes
from harmony_conformance.selftest.through_proxy import ScenarioSubset, UnknownProxyError, load_proxy, run_proxy_selftest
from harmony_proxy.selftest_hook import GuardBetween

PART = ScenarioSubset(scenarios=("tool_round_trip", "simple_answer", "slow_stream"), apis=("chat",))
PARSERS = ScenarioSubset(scenarios=("sglang_parsers",), apis=("sglang-generate",))


class Forgetful(GuardBetween):
    """A guard that loses the end of each answer, and says that it was whole."""

    def exchanges(self):
        return [replace(x, response=replace(x.response, chunks=x.response.chunks[:-1])) for x in super().exchanges()]


def watched(way, *defects, part=PART):
    told = []
    outcome = run_proxy_selftest(way, defects, told.append, workers=1, part=part)
    assert tuple(told) == outcome.defect_results
    return outcome


def test_what_crosses_the_wire_is_seen_and_what_does_not_has_its_reason():
    outcome = watched(GuardBetween, "finish-stop-with-calls", "tool-result-quoted", "tool-history-refused")
    assert outcome.correct_run_problems == ()
    assert outcome.exchange_count >= 10
    by_name = {one.defect: one for one in outcome.defect_results}
    assert all(one.is_as_expected for one in outcome.defect_results), outcome.defect_results
    assert by_name["tool-result-quoted"].detected_by == ("prompt.results_are_rendered",)
    assert by_name["tool-history-refused"].detected_by == ()
    assert by_name["tool-history-refused"].undetectable_reasons == {
        "errors.valid_request_is_answered": ("the intended validity of the request",)
    }
    assert outcome.passed


def test_parsers_that_are_asked_by_themselves_are_judged_as_in_the_suite():
    calls = ("sglang-untyped-call-lost", "sglang-first-call-as-text", "sglang-dotted-name-lost")
    outcome = watched(GuardBetween, "sglang-reasoning-unseparated", *calls, part=PARSERS)
    assert outcome.correct_run_problems == ()
    assert outcome.exchange_count >= 6
    assert {one.defect: one.detected_by for one in outcome.defect_results} == {
        "sglang-reasoning-unseparated": ("native.reasoning_is_separated",),
        **dict.fromkeys(calls, ("native.written_calls_are_parsed",)),
    }
    assert outcome.passed


def test_nothing_else_is_told_where_nothing_can_be_forked(monkeypatch):
    monkeypatch.setattr(processes, "may_fork", lambda: False)
    outcome = watched(GuardBetween, "sglang-first-call-as-text", part=PARSERS)
    assert [one.detected_by for one in outcome.defect_results] == [("native.written_calls_are_parsed",)]
    assert outcome.passed


def test_a_guard_that_loses_the_end_of_answers_is_told():
    outcome = watched(Forgetful)
    assert "the correct server: streaming.ends_with_done fails on the recorded traffic" in outcome.correct_run_problems
    assert not outcome.passed


def test_what_can_be_put_in_between_is_found_by_name():
    assert load_proxy("proxy") is GuardBetween
    with pytest.raises(UnknownProxyError, match=r"'mesh' is not installed; available: .*proxy"):
        load_proxy("mesh")
