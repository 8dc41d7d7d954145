"""Judging with conditions asked together says what judging each check by itself does."""

import re
import string
import sys

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.leaks import broken_characters, markers, role_play
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.applicability import build_index
from harmony_conformance.judge.check import MUST, Outcome, check
from harmony_conformance.judge.condition import condition
from harmony_conformance.judge.conditions import has_response
from harmony_conformance.judge.judge import is_comparison, judge, judge_exchange, judge_one, judge_split
from harmony_conformance.runtime.caching import cached_view
from harmony_conformance.transport.messages import Request

EXAMPLES = tuple(golden.examples())
OF_SEVERAL = tuple(
    dict.fromkeys(needed for rule in CHECKS if is_comparison(rule) for needed in rule.when if needed.is_series_only)
)


def lone(name):
    return Series(name=name, exchanges={"": Exchange(id=name, request=Request(path="/", body=b"{}"))})


@pytest.mark.parametrize("example", [pytest.param(one, id=one.id) for one in EXAMPLES[:: len(EXAMPLES) // 12]])
def test_checks_say_the_same_together_as_alone(example):
    assert list(judge([example.series], CHECKS)) == [
        judge_one(rule, [example.series], exercised=False) for rule in CHECKS
    ]


@pytest.mark.parametrize("example", [pytest.param(one, id=one.id) for one in EXAMPLES[5 :: len(EXAMPLES) // 12]])
def test_what_applies_says_the_same_apart_from_what_does_not(example):
    @check(MUST, spec="chat#usage", when=has_response)
    def breaks(x):
        """It breaks."""
        raise ValueError(x.id)

    rules = (*CHECKS, breaks)
    for x in example.series.exchanges.values():
        told = [one for one in judge_exchange(x, rules) if one.outcome is not Outcome.NOT_APPLICABLE]
        assert judge_split(x, build_index(rules))[1] == told


def test_what_takes_several_exchanges_holds_of_none_alone():
    assert OF_SEVERAL
    alone = [Series(name=x.id, exchanges={name: x}) for one in EXAMPLES for name, x in one.series.exchanges.items()]
    assert [(one.name, needed.description) for one in alone for needed in OF_SEVERAL if needed.holds(one)] == []


def test_what_holds_on_some_apis_alone_holds_on_no_other():
    of_few = {needed for rule in CHECKS for needed in rule.when if needed.apis is not None}
    exchanges = [x for one in EXAMPLES for x in one.series.exchanges.values()]
    held = {(needed.description, x.api) for needed in of_few for x in exchanges if needed.holds(x)}
    assert {about for about, _ in held} == {needed.description for needed in of_few}  # each does somewhere
    assert held <= {(needed.description, api) for needed in of_few for api in needed.apis}


def test_a_condition_is_asked_once_for_all_checks_that_begin_with_it():
    asked = []

    @condition
    def is_good(x):
        """good ones"""
        asked.append(x.id)
        return "good" in x.id

    def made(name):
        def body(x):
            """It is good."""
            yield from ()

        body.__name__ = name
        return check(MUST, spec="chat#usage", when=(is_good,))(body)

    rules = tuple(map(made, "abc"))
    outcomes = [[one.outcome for one in judge([lone(name)], rules)] for name in ("good", "bad")]
    assert (outcomes, asked) == ([[Outcome.PASS] * 3, [Outcome.NOT_APPLICABLE] * 3], ["good", "bad"])
    assert len(build_index(rules).roots[Exchange]) == 1


def test_a_condition_that_raises_is_an_error_of_every_check_that_asks_it_and_of_no_other():
    @condition
    def crashes(x):
        """ones that crash"""
        raise KeyError(x.id)

    @condition
    def is_any(_):
        """all"""
        return True

    @check(MUST, spec="chat#usage", when=(is_any, crashes))
    def broken(x):
        """It is good."""

    @check(MUST, spec="chat#usage", when=is_any)
    def whole(x):
        """It is good."""
        yield from ()

    assert [one.outcome for one in judge([lone("x")], (broken, whole))] == [Outcome.ERROR, Outcome.PASS]


def test_a_view_is_computed_once_of_each_value():
    seen = []

    @cached_view
    def length(x):
        seen.append(x.id)
        return len(x.id)

    one, other = (lone(name).exchanges[""] for name in ("one", "three"))
    assert ([length(x) for x in (one, other, one, other)], seen) == ([3, 5, 3, 5], ["one", "three"])


WRITTEN = """harmony formats|Tokens of Harmony|openai_harmony|stop token|EOS tokens|chat template|prompt markup|ChatML|a tokeniser|the final channel
|gpt-oss channels|<|weird|>|toKenizer|\u017fpecial token|utf8|UTF-16|encoding|decoded|mojibake|replacement character|u+FFFD|bytes|binary|garbled|corrupted
|latin-1|asc\u0131\u0131|dialogue|chatbot|transcripts|scripts|role-play|roleplaying|plays|scenes|sk\u0131t|examples|scenarios|few-shot|prompts|log|story
|templates|speakers|turns|Users|humans|q&a|Q & A|continue|S\u0130MULATE|simulate|format|interviews|conversations|samples""".replace(
    "\n", ""
).split("|")


def test_letters_that_patterns_take_for_others_are_taken_for_them_too():
    every = "".join(map(chr, range(sys.maxunicode)))
    for letter in string.ascii_lowercase:
        found = re.findall(letter, every, re.IGNORECASE)
        assert [other for other in found if not markers.has_any_word(other, [letter])] == []


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        (markers._ABOUT_HARMONY, markers._NEEDED_FOR_HARMONY),
        (broken_characters._ON_CHARACTERS, broken_characters._NEEDED),
        (role_play._ASKS_FOR_TALK, role_play._NEEDED_FOR_TALK),
    ],
    ids=["the format", "characters", "talk"],
)
def test_whatever_a_pattern_finds_holds_one_of_the_words_it_needs(pattern, needed):
    texts = [*WRITTEN, *(one.swapcase() for one in WRITTEN)]
    found = [text for text in texts if pattern.search(text)]
    assert len(found) > 10
    assert [text for text in found if not markers.has_any_word(text, needed)] == []
