"""Checks that judge a part of an exchange need no more than that part."""

import json

import pytest

from harmony_conformance.audit.batches import Batch, ReadOptions, scan_batch
from harmony_conformance.audit.readers.records.shapes import read_line
from harmony_conformance.audit.scopes import _CHECKS, Scope, checks_of, left_out
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.file_lines import Line
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import judge_split

KNOWN_BY_THE_REQUEST = (
    "asked-for",
    "about-harmony",
    "speaks-of-it",
    "raw-mode",
    "quotes",
    "markers",
    "tags",
    "escaped",
    "raw-reasoning",
    "grammar",
)
"""Examples whose request permits what is a failure in any other answer: without it, they cannot be told from a leak."""
PARTIAL = (Scope.ANSWER, Scope.CONVERSATION, Scope.TEXT)


def read(value):
    (record,) = read_line(Line(offset=0, number=1, data=json.dumps(value).encode()), "auto", name="log@0")
    return record


def failures(record):
    _, results = judge_split(record.exchange, checks_of(record.scope))
    return {result.check for result in results if result.outcome in (Outcome.FAIL, Outcome.ERROR)}


def parts(x):
    """Return the records that a log may have of an exchange, by scope."""
    body = x.response_json if x.events is None else {"response": x.response.body.decode()}
    message = {"role": "assistant", "content": x.turn.content, "reasoning": x.turn.reasoning}
    return {
        Scope.ANSWER: body,
        Scope.CONVERSATION: {"messages": [*x.messages, message]},
        Scope.TEXT: {"output": x.turn.content},
    }


def passing():
    for example in golden.examples():
        if example.id.rpartition("/")[2].startswith("pass-") and not any(
            word in example.id for word in KNOWN_BY_THE_REQUEST
        ):
            for x in example.series.exchanges.values():
                if (
                    x.api == "chat"
                    and x.turn is not None
                    and x.turn.content
                    and x.messages
                    and x.output.ids is None
                    and x.failure is None
                ):
                    yield x


def test_no_part_of_a_good_exchange_fails():
    xs = list(passing())
    assert len(xs) > 100
    found = {}
    for x in xs:
        _, whole = judge_split(x, checks_of(Scope.WHOLE))
        if any(result.outcome is Outcome.FAIL for result in whole):
            continue
        for scope, value in parts(x).items():
            record = read(value)
            assert record.scope is scope
            if failed := failures(record):
                found[x.id, scope.name] = failed
    assert found == {}


@pytest.mark.parametrize("scope", PARTIAL)
def test_a_leak_fails_in_every_part(scope):
    x = next(x for x in passing() if x.events is None)
    leak = "Hello.<|end|><|start|>assistant<|channel|>final<|message|>Hello."
    body = json.loads(x.response.body)
    body["choices"][0]["message"]["content"] = leak
    values = {
        Scope.ANSWER: body,
        Scope.CONVERSATION: {"messages": [*x.messages, {"role": "assistant", "content": leak}]},
        Scope.TEXT: {"output": leak},
    }
    record = read(values[scope])
    assert record.scope is scope
    assert failures(record) == {"channels.no_marker_leak"}


def test_the_scopes_name_checks_that_exist():
    names = {f"{family}.{name}" for checks in _CHECKS.values() for family, found in checks.items() for name in found}
    assert names <= {rule.id for rule in CHECKS}


@pytest.mark.parametrize("scope", Scope)
def test_every_check_is_judged_or_left_out(scope):
    x = next(passing())
    judged = {rule.id for rule in checks_of(scope).rules}
    others = {result.check for result in left_out(x, scope)}
    assert judged | others == {rule.id for rule in CHECKS}
    assert not judged & others


def test_what_the_log_does_not_have_is_the_reason():
    line = Line(offset=0, number=1, data=json.dumps({"output": "Hello."}).encode())
    tally = scan_batch(Batch(file="log", lines=(line,)), ReadOptions()).tally
    assert tally.exchanges == 1
    assert sum(sum(check.counts.values()) for check in tally.checks.values()) == len(CHECKS)
    assert tally.checks["usage.is_reported"].reasons == {"the log has only the texts of the answer": 1}
