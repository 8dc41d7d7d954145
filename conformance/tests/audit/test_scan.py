from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harmony_conformance.audit.tallies import MAX_EXAMPLES, JudgedExchange, Tally, TallyBuilder
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.file_lines import LinePosition, UnreadableLine
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.applicability import build_index
from harmony_conformance.judge.check import Finding, Outcome, Severity
from harmony_conformance.judge.harmony_clauses import CLAUSES
from harmony_conformance.judge.judge import Result, is_comparison, judge_exchange, judge_split
from harmony_conformance.transport.messages import Request

CLAUSE = next(iter(CLAUSES.values()))
NOTHING = Exchange(id="x", request=Request(path="/v1/chat/completions", body=b"{}"))


def tally(judged, problems=()):
    counting = TallyBuilder()
    for one in judged:
        counting.add(one)
    for place, problem in problems:
        counting.add_problem(place, problem)
    return counting.tally()


def result(check, outcome):
    findings = (Finding(message=f"{check} {outcome}"),) if outcome in (Outcome.FAIL, Outcome.VARIANT) else ()
    return Result(
        check=check,
        severity=Severity.MUST,
        clause=CLAUSE,
        scenario="traffic",
        api="chat",
        outcome=outcome,
        evidence=("prompt: none",) if outcome is Outcome.PASS else (),
        findings=findings,
        reason="applies to nothing" if outcome is Outcome.NOT_APPLICABLE else "",
    )


PLACES = st.builds(LinePosition, file=st.sampled_from(["a", "b"]), offset=st.integers(0, 40))
RESULTS = st.lists(
    st.builds(result, st.sampled_from(["one.a", "two.b"]), st.sampled_from(list(Outcome))), min_size=1, max_size=3
)
JUDGED = st.lists(
    st.builds(JudgedExchange, place=PLACES, results=RESULTS),
    max_size=40,
    unique_by=lambda one: one.place,
)
PROBLEMS = st.lists(
    st.tuples(
        PLACES,
        st.builds(UnreadableLine, offset=st.just(0), number=st.just(1), kind=st.sampled_from(["no JSON", "cut"])),
    ),
    max_size=30,
)


@given(judged=JUDGED, problems=PROBLEMS, data=st.data())
def test_a_log_gives_the_same_tally_however_it_is_divided_and_ordered(judged, problems, data):
    whole = tally(judged, problems)
    shuffled = data.draw(st.permutations(judged))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(judged)), max_size=3)))
    parts = [tally(shuffled[start:stop]) for start, stop in zip([0, *cuts], [*cuts, len(judged)], strict=True)]
    parts += [tally((), [problem]) for problem in problems]
    total = Tally()
    for part in data.draw(st.permutations(parts)):
        total = total + part
    assert total == whole


@given(judged=JUDGED, problems=PROBLEMS)
def test_nothing_is_lost_from_the_counts(judged, problems):
    total = tally(judged, problems)
    assert total.exchanges == len(judged)
    assert total.unreadable == len(problems)
    assert sum(n for check in total.checks.values() for n in check.counts.values()) == sum(
        len(one.results) for one in judged
    )


@given(judged=JUDGED, most=st.integers(0, 3))
def test_what_does_not_apply_is_counted_the_same_where_it_is_told_apart(judged, most):
    aside = Outcome.NOT_APPLICABLE
    apart = [
        replace(
            one,
            results=[told for told in one.results if told.outcome is not aside],
            shared_results=(tuple(told for told in one.results if told.outcome is aside),),
        )
        for one in judged
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("harmony_conformance.audit.tallies._MOST_ASIDES", most)
        assert tally(apart) == tally(judged)


@pytest.mark.parametrize("example", [pytest.param(one, id=one.id) for one in [*golden.examples()][7::200]])
def test_a_line_is_reported_in_two_parts_that_are_the_whole(example):
    for x in example.series.exchanges.values():
        aside, told = judge_split(x, build_index(CHECKS))
        assert sorted([*aside, *told]) == sorted(judge_exchange(x, CHECKS))
        assert judge_split(x, build_index(CHECKS))[0] is aside


def test_the_first_examples_are_kept_by_file_and_offset():
    failing = (result("one.a", Outcome.FAIL),)
    judged = [JudgedExchange(place=LinePosition(file="f", offset=n), results=failing) for n in range(100, 0, -1)]
    examples = tally(judged).checks["one.a"].examples
    assert [example.place.offset for example in examples] == list(range(1, MAX_EXAMPLES + 1))
    assert examples[0].findings[0].exchange == "f@1"


def test_a_line_is_judged_alone_so_no_comparison_applies():
    results = {one.check: one.outcome for one in judge_exchange(NOTHING, CHECKS)}
    assert len(results) == len(CHECKS)
    assert {results[rule.id] for rule in CHECKS if is_comparison(rule)} == {Outcome.NOT_APPLICABLE}
