import pytest

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.check import MUST, SHOULD, Finding, Outcome, Severity, check, comparison, variant
from harmony_conformance.judge.condition import condition, evidence
from harmony_conformance.judge.judge import is_comparison, judge, judge_one, run_outcome
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response

ANSWER = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}'


def answered(name, **members):
    response = Response(
        status=200, headers={"content-type": "application/json"}, chunks=(Chunk(arrival_time=0.0, data=ANSWER),)
    )
    return Exchange(id=name, request=Request(path="/", body=b"{}"), **{"response": response, **members})


def limited(name):
    return answered(name, response=None, failure=Failure(kind=FailureKind.RATE_LIMITED, detail="429"))


def series(*exchanges, name="s"):
    return Series(name=name, exchanges={x.id: x for x in exchanges})


@condition
def is_on_topic(x):
    """exchanges on the topic"""
    return "off" not in x.id


@evidence
def is_shown(x):
    """exchanges that are shown"""
    return "hidden" not in x.id


@check(MUST, spec="chat#usage", when=(is_on_topic, is_shown))
def good(x):
    """It is good."""
    if "bad" in x.id:
        yield Finding(message="bad")
    if "odd" in x.id:
        yield variant("odd")
    if "crash" in x.id:
        raise KeyError("lost")


@evidence
def has_two(one):
    """series of two"""
    return len(one.exchanges) > 1


@comparison(SHOULD, spec="chat#usage", when=has_two)
def alike(one):
    """They are alike."""
    if "bad" in one.exchanges:
        yield Finding(message="not alike", exchange="bad")


@pytest.mark.parametrize(
    ("exchanges", "exercised", "outcome", "reason"),
    [
        pytest.param(["a", "b"], False, Outcome.PASS, "", id="all pass"),
        pytest.param(["a", "bad"], False, Outcome.FAIL, "", id="one fails"),
        pytest.param(["a", "odd"], False, Outcome.VARIANT, "", id="one is a variant"),
        pytest.param(["bad", "odd"], False, Outcome.FAIL, "", id="a failure outweighs a variant"),
        pytest.param(["a", "off"], False, Outcome.PASS, "", id="what is off topic does not count"),
        pytest.param(
            ["off"], False, Outcome.NOT_APPLICABLE, "applies to exchanges on the topic", id="nothing on topic"
        ),
        pytest.param(
            ["hidden"], False, Outcome.NOT_APPLICABLE, "applies to exchanges that are shown", id="nothing shown"
        ),
        pytest.param(
            ["off", "hidden"],
            False,
            Outcome.NOT_APPLICABLE,
            "applies to exchanges on the topic; exchanges that are shown",
            id="two reasons",
        ),
        pytest.param(
            ["off"],
            True,
            Outcome.INCONCLUSIVE,
            "the endpoint did not do what the scenario asks for: applies to exchanges on the topic",
            id="the scenario was made for it",
        ),
        pytest.param(
            ["hidden"],
            True,
            Outcome.NOT_APPLICABLE,
            "not enough evidence: applies to exchanges that are shown",
            id="the scenario was made for it, and nothing is shown",
        ),
        pytest.param([], False, Outcome.NOT_APPLICABLE, "nothing was sent", id="nothing was sent"),
    ],
)
def test_outcomes(exchanges, exercised, outcome, reason):
    result = judge_one(good, [series(*map(answered, exchanges))], exercised=exercised)
    assert (result.outcome, result.reason) == (outcome, reason)


def test_an_exception_of_a_check_is_our_error():
    result = judge_one(good, [series(answered("crash"), answered("bad"))], exercised=False)
    assert result.outcome is Outcome.ERROR
    assert "KeyError: 'lost'" in result.reason
    assert "good, line" in result.reason


class PanicException(BaseException):
    """A panic of a library in Rust."""


def raising(error, *, in_condition):
    @condition
    def is_asked(x):
        """exchanges on the topic"""
        if in_condition:
            raise error
        return True

    @check(MUST, spec="chat#usage", when=is_asked)
    def panics(x):
        """It panics."""
        raise error

    return panics


@pytest.mark.parametrize("in_condition", [False, True])
def test_a_panic_of_a_library_is_an_error_of_the_check(in_condition):
    panics = raising(PanicException("index out of bounds"), in_condition=in_condition)
    result, other = judge([series(answered("bad"))], [panics, good])
    assert (result.outcome, other.outcome) == (Outcome.ERROR, Outcome.FAIL)
    assert result.reason.startswith("PanicException: index out of bounds")


@pytest.mark.parametrize("in_condition", [False, True])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_other_exceptions_that_end_a_program_are_no_result(error, in_condition):
    with pytest.raises(error):
        judge([series(answered("a"))], [raising(error(), in_condition=in_condition)])


def test_a_rate_limited_scenario_is_inconclusive():
    off = limited("off")
    assert judge_one(good, [series(off)], exercised=True).outcome is Outcome.INCONCLUSIVE
    assert judge_one(good, [series(off)], exercised=False).reason == "rate limited: off"


def test_a_scenario_without_an_answer_names_the_exchange():
    silent = answered("off", response=None, failure=Failure(kind=FailureKind.TIMEOUT, detail="late"))
    result = judge_one(good, [series(silent)], exercised=True)
    assert (result.outcome, result.reason) == (
        Outcome.INCONCLUSIVE,
        "no usable answer to off (see errors.valid_request_is_answered)",
    )


UNPLAYED = {"script_not_played": "the output differs from the script"}


def test_scripts_that_were_not_played_are_counted_and_listed():
    played, unplayed = answered("played"), answered("unplayed", **UNPLAYED)
    result = judge_one(good, [series(played, unplayed)], exercised=True)
    expected = "1 of 2 exchanges are inconclusive, since the output differs from the script: unplayed"
    assert (result.outcome, result.reason) == (Outcome.PASS, expected)


def test_a_check_whose_scripts_were_not_played_is_inconclusive():
    unplayed = answered("hidden", **UNPLAYED), answered("hidden too", **UNPLAYED)
    result = judge_one(good, [series(*unplayed)], exercised=True)
    expected = "2 of 2 exchanges are inconclusive, since the output differs from the script: hidden, hidden too"
    assert (result.outcome, result.reason) == (Outcome.INCONCLUSIVE, expected)
    assert judge_one(good, [series(*unplayed)], exercised=False).outcome is Outcome.NOT_APPLICABLE


def test_a_request_without_a_script_lacks_none():
    unscripted = answered("hidden", script_not_played="the request has no script")
    result = judge_one(good, [series(unscripted)], exercised=True)
    assert (result.outcome, result.reason) == (Outcome.NOT_APPLICABLE, "the request has no script")


def test_a_server_that_was_gone_leaves_the_rest_open():
    gone = answered("off", response=None, failure=Failure(kind=FailureKind.SERVER_GONE, detail="dead since one"))
    result = judge_one(good, [series(answered("one"), gone)], exercised=True)
    assert (result.outcome, result.reason, result.passed) == (Outcome.INCONCLUSIVE, "dead since one", 1)
    assert judge_one(good, [series(answered("bad"), gone)], exercised=True).outcome is Outcome.FAIL
    assert judge_one(good, [series(answered("one"), gone)], exercised=False).outcome is Outcome.PASS


def test_tries_are_counted():
    tries = [series(answered("a"), name="s"), series(answered("bad"), name="s"), series(answered("off"), name="s")]
    result = judge_one(good, tries, exercised=False)
    assert (result.scenario, result.tries, result.applied, result.passed) == ("s", 3, 2, 1)
    assert (result.exchanges, [finding.exchange for finding in result.findings]) == (("a", "bad"), ["bad"])


def test_a_comparison_judges_each_series_as_a_whole():
    result = judge_one(
        alike, [series(answered("a"), answered("b")), series(answered("a"), answered("bad"))], exercised=False
    )
    assert (result.outcome, result.applied, result.passed) == (Outcome.FAIL, 2, 1)
    assert [finding.exchange for finding in result.findings] == ["bad"]
    assert judge_one(alike, [series(answered("a"))], exercised=False).outcome is Outcome.NOT_APPLICABLE
    assert [is_comparison(rule) for rule in (good, alike)] == [False, True]


def test_evidence_names_what_the_result_rests_on():
    result = judge_one(good, [series(answered("a"), answered("b", script=(200002,)))], exercised=False)
    assert result.evidence == ("output: api only", "output: scripted", "prompt: none")


def test_judging_applies_every_check():
    results = list(judge([series(answered("a"))], [good, alike], frozenset({"test_judge.alike"})))
    assert [(result.check, result.outcome) for result in results] == [
        ("test_judge.good", Outcome.PASS),
        ("test_judge.alike", Outcome.NOT_APPLICABLE),
    ]


@pytest.mark.parametrize(
    ("names", "fails_on", "expected"),
    [
        pytest.param(["a"], {Severity.MUST}, Outcome.PASS, id="all pass"),
        pytest.param(["bad"], {Severity.MUST}, Outcome.FAIL, id="a MUST fails"),
        pytest.param(["bad"], set(), Outcome.PASS, id="no severity counts"),
        pytest.param(["odd"], {Severity.MUST}, Outcome.PASS, id="a variant is no failure"),
        pytest.param(["bad", "crash"], set(), Outcome.ERROR, id="an error always counts"),
    ],
)
def test_what_a_run_comes_to(names, fails_on, expected):
    results = [judge_one(good, [series(answered(name))], exercised=False) for name in names]
    assert run_outcome(results, frozenset(fails_on)) is expected


def test_a_failing_should_counts_where_it_is_asked_for():
    result = judge_one(alike, [series(answered("a"), answered("bad"))], exercised=False)
    both = frozenset({Severity.MUST, Severity.SHOULD})
    assert [run_outcome([result], fails_on) for fails_on in (frozenset({Severity.MUST}), both)] == [
        Outcome.PASS,
        Outcome.FAIL,
    ]
