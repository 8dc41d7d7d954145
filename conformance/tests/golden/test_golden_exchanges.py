import json
from collections import Counter

import pytest
from jsonschema import Draft202012Validator

from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.data import InvalidExampleError, read_example
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import judge

EXAMPLES = tuple(golden.examples())
RULES = {rule.id: rule for rule in CHECKS}
ROOT = golden.root()
SCHEMA = Draft202012Validator(json.loads((ROOT / "schema" / "exchange.schema.json").read_text("utf-8")))
STEPS_ASIDE = {Outcome.NOT_APPLICABLE, Outcome.INCONCLUSIVE}


def told(outcome):
    """The outcome, with the two ways of stepping aside taken together."""
    return Outcome.NOT_APPLICABLE if outcome in STEPS_ASIDE else outcome


@pytest.mark.parametrize("example", [pytest.param(example, id=example.id) for example in EXAMPLES])
def test_an_example_gets_its_verdict_no_check_raises_and_no_other_must_check_fails(example):
    results = {result.check: result for result in judge([example.series], CHECKS)}
    own = results[example.check]
    assert (example.outcome, [finding.message for finding in own.findings if example.outcome is Outcome.PASS]) == (
        told(own.outcome),
        [],
    )
    assert [(name, one.reason) for name, one in results.items() if one.outcome is Outcome.ERROR] == []
    failing = {
        name
        for name, one in results.items()
        if name != example.check and one.severity is Severity.MUST and one.outcome is Outcome.FAIL
    }
    assert example.outcome is Outcome.FAIL or example.also_fails == failing


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in CHECKS])
def test_a_check_is_shown_passing_and_failing(rule):
    shown = {example.outcome for example in EXAMPLES if example.check == rule.id}
    assert {Outcome.PASS, Outcome.FAIL} - shown == set()


def test_every_folder_is_a_check():
    assert {example.check for example in EXAMPLES} - set(RULES) == set()


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.id) for rule in CHECKS])
def test_the_files_of_a_check_are_of_the_schema(rule):
    texts = {file.name: file.read_text("utf-8") for file in sorted((ROOT / "exchanges" / rule.id).iterdir())}
    errors = [
        f"{name}: {error.json_path}: {error.message}"
        for name, text in texts.items()
        for error in SCHEMA.iter_errors(json.loads(text))
    ]
    assert errors == []


def test_comments_are_one_sentence_and_only_failures_name_defects():
    wrong = [
        example.id
        for example in EXAMPLES
        if not example.comment.endswith((".", "`."))
        or ". " in example.comment
        or (example.defects and example.outcome is not Outcome.FAIL)
        or (example.also_fails and example.outcome is Outcome.FAIL)
    ]
    assert wrong == []


def test_an_example_is_not_there_twice():
    bodies = Counter(
        (
            example.check,
            json.dumps(
                {
                    name: [
                        x.request.body.decode(),
                        *map(str, (x.response, x.script, x.failure, x.rendered_prompt, x.validity)),
                    ]
                    for name, x in example.series.exchanges.items()
                }
            ),
        )
        for example in EXAMPLES
    )
    assert [key[0] for key, count in bodies.items() if count > 1] == []


def test_ids_name_every_file_once():
    ids = list(golden.golden_file_ids())
    assert ids == sorted(set(ids), key=ids.index)
    assert {f"exchanges/{example.id}" for example in EXAMPLES} - set(ids) == set()


def example_of(text, name="pass-x"):
    return read_example(text.encode(), check="a.b", name=name)


def test_ids_may_be_written_as_harmony_text():
    example = example_of(
        '{"comment": "c", "request": {"json": {}}, "script": {"$ids": ["<|end|>", {"ordinary": "<|end|>"}, 7]}}'
    )
    (exchange,) = example.series.exchanges.values()
    assert exchange.script == (200007, 27, 91, 419, 91, 29, 7)


def test_exchanges_of_a_series_have_the_name_of_their_step():
    example = example_of(
        '{"comment": "c", "exchanges": {"first": {"request": {"json": 1}}, "again": {"request": {"json": 2}}}}'
    )
    assert [(name, x.step, x.chat_request) for name, x in example.series.exchanges.items()] == [
        ("first", "first", 1),
        ("again", "again", 2),
    ]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        pytest.param("{", "pass-x", "a.b/pass-x: Expecting", id="no JSON"),
        pytest.param("{}", "pass-x", "no exchange", id="no request"),
        pytest.param(
            "{}", "good-x", "expected one of the prefixes pass-, fail-, variant-, na-", id="a name of no kind"
        ),
        pytest.param("{}", "pass", "expected one of the prefixes", id="a name that is only a kind"),
        pytest.param(
            '{"request": {"json": {}}, "script": {"$ids": [true]}}',
            "na-x",
            "invalid piece of a script",
            id="no token id",
        ),
    ],
)
def test_a_file_that_is_no_example_says_why(text, name, said):
    with pytest.raises(InvalidExampleError) as error:
        example_of(text, name)
    assert said in str(error.value)
