"""Token accounting: what counts say. The wrong counts are the reference server's, which shares nothing with the hypotheses but the format."""

import json
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

import httpx
import pytest

from harmony_conformance.checks.helpers.counted_requests import BASE_STEP, REPEATED_BASE_STEP
from harmony_conformance.golden import data as golden
from harmony_conformance.prompts.known_mistakes import MISTAKES
from harmony_conformance.prompts.token_accounting import (
    FORMS,
    RequestSet,
    cost_tables,
    count_in_form,
    explain_counts,
    nearest_forms,
)
from harmony_conformance.reference_server import MODEL, running

STEPS = {
    step["as"]: step["request"]
    for step in json.loads((golden.root() / "scenarios" / "prompt_accounting.json").read_text("utf-8"))["steps"]
    if step["as"] != REPEATED_BASE_STEP
}
REQUESTS = RequestSet(
    bodies=tuple((name, json.dumps(body).encode()) for name, body in STEPS.items()), base_name=BASE_STEP
)


def counts_of_server(*defects):
    with running(defects=defects) as url, httpx.Client(base_url=url) as client:
        answers = [
            client.post("/v1/chat/completions", json={**body, "model": MODEL, "max_tokens": 1})
            for body in STEPS.values()
        ]
    return [answer.json()["usage"]["prompt_tokens"] for answer in answers]


def told(accounts):
    """What the accounts say, each once: the same may hold in several forms."""
    said = [
        (tuple(sorted(mistake.description for group in account.mistakes for mistake in group)), account.growth)
        for account in accounts
    ]
    return list(dict.fromkeys(said))


# what the counts of each defect of the reference server are explained by
SEEN = {
    "developer-not-rendered": ["messages of the role developer do not reach the prompt"],
    "later-instructions-dropped": ["system and developer messages that are not the first message are dropped"],
    "reasoning-not-passed-back": ["reasoning that is sent back is never read"],
    "finished-reasoning-kept": ["reasoning of finished turns is kept"],
    "preamble-erased-from-history": [
        "the text before a call is erased",
        "the text before a call is erased where there is reasoning too",
    ],
    "tools-not-rendered": ["functions are not declared"],
    "arguments-encoded-twice": ["the arguments of earlier calls are encoded once more"],
    "tool-result-quoted": ["results of functions are quoted as JSON"],
    "past-final-without-channel": ["earlier answers lack `<|channel|>final`"],
    "special-tokens-injected": ["markers in texts become special tokens"],
}
GROWN = {
    "tools-in-user-text": [  # with `commentary` in every prompt, and with it only beside functions
        "each request that offers functions has 71 tokens more than in any accepted form",
        "each request that offers functions has 69 tokens more than in any accepted form",
    ],
    "instructions-added": ["each developer message with instructions has 6 tokens more than in any accepted form"],
}
# changes every count alike, or none, or as an accepted form does
UNSEEN = {
    "assistant-not-begun": -2,
    "other-identity": -8,
    "tool-result-without-recipient": 0,
    "tool-result-under-another-name": 0,
    "call-forms-mixed": 0,
    "header-forms-mixed": 0,
    "effort-ignored": 0,
}


def test_the_right_counts_fit_the_librarys_form():
    accounts = explain_counts(REQUESTS, counts_of_server())
    assert told(accounts) == [((), "")]
    assert accounts[0].is_library_form
    assert accounts[0].extra_tokens == 0


@pytest.mark.parametrize("defect", SEEN)
def test_a_defects_counts_are_explained_by_its_mistake(defect):
    assert told(explain_counts(REQUESTS, counts_of_server(defect))) == [(tuple(SEEN[defect]), "")]


@pytest.mark.parametrize("pair", list(combinations(SEEN, 2))[::4], ids=" and ".join)
def test_two_defects_are_both_named(pair):
    accounts = explain_counts(REQUESTS, counts_of_server(*pair))
    assert told(accounts) == [(tuple(sorted(chain.from_iterable(SEEN[defect] for defect in pair))), "")]


@pytest.mark.parametrize("defect", GROWN)
def test_what_grew_is_named(defect):
    assert told(explain_counts(REQUESTS, counts_of_server(defect))) == [((), growth) for growth in GROWN[defect]]


@pytest.mark.parametrize("defect", UNSEEN)
def test_what_counts_can_not_show_is_no_mistake(defect):
    accounts = explain_counts(REQUESTS, counts_of_server(defect))
    assert told(accounts) == [((), "")]
    assert accounts[0].extra_tokens == UNSEEN[defect]


@pytest.mark.parametrize("preamble", [0, 211, -9])
def test_no_accepted_form_is_blamed(preamble):
    for form in FORMS:
        counts = [count_in_form(body, form) + preamble for _, body in REQUESTS.bodies]
        assert told(explain_counts(REQUESTS, counts)) == [((), "")], str(form)


@pytest.mark.parametrize("form", FORMS[::13], ids=str)
def test_a_mistake_is_found_in_every_form(form):
    right = [count_in_form(body, form) for _, body in REQUESTS.bodies]
    for mistake in MISTAKES:
        counts = [count_in_form(body, form, mistake) for _, body in REQUESTS.bodies]
        gap = {wrong - count for wrong, count in zip(counts, right, strict=True)}
        if gap == {0} or any(not account.mistakes for account in explain_counts(REQUESTS, counts)):
            continue  # no count shows it, or it costs what another accepted form does
        assert any(mistake.description in said for said, _ in told(explain_counts(REQUESTS, counts))), (
            mistake.description
        )


def test_nothing_explains_arbitrary_counts():
    counts = [count + off for count, off in zip(counts_of_server(), (0, 1, 5, 2, 9, 3, 7, 4), strict=True)]
    assert explain_counts(REQUESTS, counts) == ()


def test_the_nearest_form_says_how_far_each_request_is_off():
    counts = counts_of_server("developer-not-rendered")
    ((ledger, gap),) = nearest_forms(REQUESTS, counts)
    assert ledger.form_names[0] == "harmony_0_0_8"
    assert dict(zip(REQUESTS.names, gap, strict=True)) == {**dict.fromkeys(STEPS, 0), "developer instructions": -10}


@pytest.mark.parametrize("name", [name for name in STEPS if name != BASE_STEP])
def test_no_request_can_be_left_out(name):
    """Without it a mistake would no longer be seen, or two things could no longer be told apart."""
    fewer = replace(REQUESTS, bodies=tuple(body for body in REQUESTS.bodies if body[0] != name))
    assert told_apart(fewer) < told_apart(REQUESTS)


def told_apart(requests):
    found = cost_tables(requests)
    growths = {numbers for _, numbers in found[0].growths if any(numbers)}
    return len(found) + len(found[0].groups) + len(growths)


def test_every_mistake_can_be_seen():
    groups = cost_tables(REQUESTS)[0].groups
    assert {mistake.description for group in groups for mistake in group.mistakes} == {
        mistake.description for mistake in MISTAKES
    }


def test_the_published_table_is_the_present_one(capsys):
    from argparse import ArgumentParser

    from harmony_conformance.cli import checks as command
    from harmony_conformance.cli.options.information import configure_checks

    parser = ArgumentParser()
    configure_checks(parser)
    assert command.execute(parser.parse_args(["--format", "accounting"])) == 0
    assert (Path(__file__).parents[2] / "ACCOUNTING.md").read_text("utf-8") == capsys.readouterr().out


def test_commentary_only_with_functions_is_a_form():
    form = next(one for one in FORMS if not one.always_has_commentary)
    counts = [count_in_form(body, form) for _, body in REQUESTS.bodies]
    always = [count_in_form(body, replace(form, always_has_commentary=True)) for _, body in REQUESTS.bodies]
    offers = ["tools" in json.loads(body) for _, body in REQUESTS.bodies]
    assert [more - less for more, less in zip(always, counts, strict=True)] == [0 if tools else 2 for tools in offers]
    accounts = explain_counts(REQUESTS, counts)
    assert told(accounts) == [((), "")]
    assert any(str(form) in one.form_names for one in accounts)
