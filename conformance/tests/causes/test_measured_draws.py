"""The results of a measured draw are those of a run: what the defects changed, and the rest as on the correct server."""

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result

measure = pytest.importorskip("benchmarks.causes.measure", reason="the benchmarks are in the checkout only")
BY_ID = {check.id: check for check in CHECKS}
OF_ONE, OF_SERIES = "channels.nothing_is_lost", "streaming.content_equals_whole"
X, Y = "simple/chat/x/0", "simple/chat/y/0"


def result(check, *exchanges, outcome=Outcome.PASS):
    rule = BY_ID[check]
    return Result(
        check, rule.severity, rule.clause, "simple", "chat", outcome, exchanges=exchanges, applied=len(exchanges)
    )


def known(monkeypatch, correct, *judged, changed):
    monkeypatch.setattr(measure, "_CORRECT", {"ids": correct})
    return [(one.check, one.exchanges) for one in measure.known_results("ids", judged, frozenset(changed))]


def test_a_check_of_an_unchanged_exchange_has_the_result_of_the_correct_server(monkeypatch):
    assert known(monkeypatch, (result(OF_ONE, X, Y),), changed=()) == [(OF_ONE, (X, Y))]


def test_a_changed_exchange_is_not_judged_where_the_check_no_longer_applies(monkeypatch):
    gone = result(OF_ONE, outcome=Outcome.NOT_APPLICABLE)
    assert known(monkeypatch, (result(OF_ONE, X, Y),), gone, changed=[X]) == [(OF_ONE, ()), (OF_ONE, (Y,))]


def test_a_comparison_that_was_judged_again_replaces_its_result(monkeypatch):
    again = result(OF_SERIES, X, outcome=Outcome.FAIL)
    assert known(monkeypatch, (result(OF_SERIES, X, Y),), again, changed=[X]) == [(OF_SERIES, (X,))]


def test_a_check_that_the_level_leaves_nothing_to_judge_is_left_out(monkeypatch):
    blind = result(OF_ONE, X, outcome=Outcome.FAIL)
    assert known(monkeypatch, (blind,), result(OF_ONE, Y, outcome=Outcome.FAIL), changed=[Y]) == []
