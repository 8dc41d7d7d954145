"""The results of a measured draw are those of a run: what the defects changed, and the rest as on the correct server."""

import json
from pathlib import Path

import pytest

from harmony_conformance.causes.signatures import FailureKey
from harmony_conformance.checks import CHECKS
from harmony_conformance.judge.check import Finding, Outcome
from harmony_conformance.judge.judge import Result

measure = pytest.importorskip("benchmarks.causes.measure", reason="the benchmarks are in the checkout only")
misses = pytest.importorskip("benchmarks.causes.misses", reason="the benchmarks are in the checkout only")
BY_ID = {check.id: check for check in CHECKS}
OF_ONE, OF_SERIES = "channels.nothing_is_lost", "streaming.content_equals_whole"
X, Y = "simple/chat/x/0", "simple/chat/y/0"


def result(check, *exchanges, outcome=Outcome.PASS):
    rule = BY_ID[check]
    return Result(
        check, rule.severity, rule.clause, "simple", "chat", outcome, exchanges=exchanges, applied=len(exchanges)
    )


def known(monkeypatch, correct, *judged, changed, apis=("chat",)):
    monkeypatch.setattr(measure, "_CORRECT", {"ids": correct})
    found = measure.known_results("ids", judged, frozenset(changed), frozenset(apis))
    return [(one.check, one.exchanges) for one in found]


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


def failing(scenario, message):
    finding = Finding(message=message, exchange=f"{scenario}/chat/x/0")
    one = result(OF_ONE, finding.exchange, outcome=Outcome.FAIL)
    return one._replace(scenario=scenario, findings=(finding,))


def test_a_failure_that_the_level_itself_makes_is_left_out_in_other_scenarios_too(monkeypatch):
    blind, made, own = failing("simple", "no count"), failing("other", "no count"), failing("other", "it is lost")
    assert known(monkeypatch, (blind,), made, own, changed=["other/chat/x/0"]) == [(OF_ONE, ("other/chat/x/0",))]
    assert known(monkeypatch, (blind,), made, changed=["other/chat/x/0"]) == []


def test_an_api_that_the_draw_does_not_change_has_no_results(monkeypatch):
    over_chat, over_ollama = (result(OF_ONE, X)._replace(api=api) for api in ("chat", "ollama"))
    of_all = result("apis.same_content", X)._replace(api="all")
    correct = (over_chat, over_ollama, of_all)
    assert [name for name, _ in known(monkeypatch, correct, changed=())] == [OF_ONE]
    assert len(known(monkeypatch, correct, changed=(), apis=("chat", "ollama"))) == len(correct)


ALONE, BESIDE, OTHER = ("tools-sorted",), ("tools-sorted", "stop-ignored"), ("stop-ignored",)
SEEN = frozenset({("chat", FailureKey(OF_ONE, "simple", "x", "it is lost"))})


@pytest.mark.parametrize(
    ("alone", "beside", "expected"), [((), (), "silent"), (SEEN, (), "masked"), (SEEN, SEEN, "not_named")]
)
def test_a_miss_has_its_reason(alone, beside, expected):
    one = misses.Miss("texts", BESIDE, "tools-sorted")
    runs = {
        ALONE: {"texts": frozenset(alone)},
        BESIDE: {"texts": frozenset(beside)},
        OTHER: {"texts": frozenset()},
    }
    assert misses.reason(one, runs) == expected
    figures = misses.summarise([one], [expected])
    assert figures["texts"][expected] == 1
    assert len(figures["texts"]["draws"]) == (expected != "silent")


def test_counts_are_read_from_the_signatures():
    assert misses.reason(misses.Miss("counts", BESIDE, "tools-sorted"), {}) == "silent"
    assert not misses.is_silent(misses.Miss("counts", BESIDE, "stop-ignored"), {})


def test_the_misses_are_those_in_the_file():
    document = {"partly_named": {"a + b": {"ids": ["b"], "texts": ["a", "b"]}}}
    found = list(misses.read_misses(document))
    assert [(one.level, one.missed, one.others) for one in found] == [
        ("ids", "b", ("a",)),
        ("texts", "a", ("b",)),
        ("texts", "b", ("a",)),
    ]
    assert misses.needed_alone(found) == [("a",), ("b",)]


ROOT = Path(misses.__file__).parents[2]
EVIDENCE = {"ids": "the prompt's ids", "counts": "token counts", "texts": "texts alone"}


def test_the_page_has_the_measured_figures():
    page = (ROOT / "docs" / "run-reference.md").read_text("utf-8")
    figures = json.loads((ROOT / misses.RESULTS).read_text("utf-8"))
    for level, words in EVIDENCE.items():
        of_level, why = figures[level], figures["misses"][level]
        lost = of_level["switched_on"] - of_level["found"]
        assert f"| {words} | {of_level['recall']:.0%} | {of_level['precision']:.0%} |".replace("%", " %") in page
        assert f"| {words} | {lost} | {why['silent']} | {why['masked']} | {why['not_named']} |" in page
        assert sum(why[one] for one in misses.REASONS) == lost
    pairs = json.loads((ROOT / "benchmarks" / "results" / "causes_pairs.json").read_text("utf-8"))["ids"]
    assert (pairs["draws"], pairs["found"], pairs["switched_on"]) == (100, 200, 200)
    assert f"{pairs['right']} of {pairs['named']} names are right" in page
