"""`golden/evidence.json` and its page: what shows each defect of the prompt, by ids and by counts alone. The selftest computes it anew; here it is whole."""

import asyncio
import json
from argparse import ArgumentParser
from dataclasses import replace
from pathlib import Path

import pytest

from harmony_conformance.checks import CHECKS
from harmony_conformance.cli import checks as command
from harmony_conformance.cli.options.information import configure_checks
from harmony_conformance.engines.target import parse_target
from harmony_conformance.evidence.levels import PromptLevel
from harmony_conformance.golden import data as golden
from harmony_conformance.judge.check import Outcome
from harmony_conformance.reference_server.defects import DEFECTS, responses
from harmony_conformance.reference_server.defects.stages import OnConversation, OnHistory, OnPrompt, OnPromptAndBody
from harmony_conformance.runner.judge_run import judge_all
from harmony_conformance.runner.run import Options, make_plan, run
from harmony_conformance.selftest.prompt_evidence import (
    DefectEvidence,
    compute_evidence,
    disagreements,
    evidence_markdown,
    prompt_counts,
    read_evidence,
    without_prompt_ids,
)
from harmony_conformance.selftest.selftest import failing_checks, read_switches, run_reference

OF_RESPONSES = {defect.id for defect in responses.DEFECTS}


def document(name):
    return json.loads((golden.root() / f"{name}.json").read_text("utf-8"))


EVIDENCE = document("evidence")
SHOWN = read_evidence(EVIDENCE)
ROWS = {row["id"]: row for row in document("defects")["defects"]}
OF_THE_PROMPT = (OnHistory, OnConversation, OnPrompt, OnPromptAndBody)


def changes(defect):
    return defect.change if isinstance(defect.change, tuple) else (defect.change,)


def test_the_published_page_is_the_present_one(capsys):
    parser = ArgumentParser()
    configure_checks(parser)
    assert command.execute(parser.parse_args(["--format", "evidence"])) == 0
    assert (Path(__file__).parents[2] / "EVIDENCE.md").read_text("utf-8") == capsys.readouterr().out


def test_the_file_is_canonical():
    written = (golden.root() / "evidence.json").read_text("utf-8")
    assert written == json.dumps(EVIDENCE, indent=2, ensure_ascii=False) + "\n"


def test_every_defect_of_the_prompt_has_a_row():
    rows = (ROWS[ROWS[name].get("same_as", name)].get("switch", []) for name in EVIDENCE["rendering"])
    catalogued = [[switch for switch in switches if switch not in OF_RESPONSES] for switches in rows]
    assert [switches for switches in catalogued if switches and not set(switches) & set(SHOWN)] == []
    own = {defect.id for defect in DEFECTS.values() if any(isinstance(one, OF_THE_PROMPT) for one in changes(defect))}
    assert own - OF_RESPONSES - set(SHOWN) == set()
    assert set(SHOWN) - set(DEFECTS) == set()


@pytest.mark.parametrize("switch", SHOWN)
def test_a_row_names_checks_that_are_there_for_it_or_says_why_counts_do_not(switch):
    row = SHOWN[switch]
    named = read_switches()[switch].caught_by
    assert set(row.checks_by_counts) <= set(row.checks_by_ids) <= named
    assert {check.id for check in CHECKS} >= set(row.checks_by_ids)
    assert row.checks_by_ids != ()
    assert bool(row.checks_by_counts) != bool(row.no_count_reason)
    assert not (row.no_count_reason.startswith("zero vector: ") and row.changes_counts)


def test_the_page_has_a_line_for_each_catalogued_defect():
    page = evidence_markdown(EVIDENCE, document("defects"))
    assert [name for name in EVIDENCE["rendering"] if f"\n| {name} | " not in page] == []


@pytest.fixture(scope="module")
def plan():
    whole = make_plan(Options())
    named = ("prompt_accounting", "effort", "results")
    return replace(whole, scenarios=tuple(one for one in whole.scenarios if one.name in named))


@pytest.fixture(scope="module")
def right(plan):
    return prompt_counts(run_reference((), plan).series)


def test_ids_taken_away_are_ids_not_asked_for(plan):
    target = parse_target("reference:defect=tools-not-rendered")
    asked = run_reference(("tools-not-rendered",), plan)
    not_asked = asyncio.run(
        run(target, Options(extra_body={"return_token_ids": False}), plan, lambda _: None, lambda _: None)
    )
    hidden = [without_prompt_ids(one) for one in asked.series]
    assert {x.prompt.level for one in asked.series for x in one.exchanges.values()} == {PromptLevel.IDS}
    assert {x.prompt.level for one in hidden for x in one.exchanges.values()} == {PromptLevel.ACCOUNTING}
    assert prompt_counts(hidden) == prompt_counts(asked.series)

    def of_prompts(results):
        families = ("prompt", "accounting", "hierarchy", "tools", "multi_turn", "reasoning")
        return {
            (one.check, one.scenario)
            for one in results
            if one.outcome is Outcome.FAIL and one.check.partition(".")[0] in families
        }

    assert of_prompts(judge_all(hidden, plan)) == of_prompts(not_asked.results) != set()


@pytest.mark.parametrize(
    ("switch", "by_counts", "changes_counts"),
    [
        ("tools-not-rendered", ("accounting.counts_show_no_known_mistake",), True),
        ("effort-ignored", (), False),
        ("results-named-after-last-call", (), True),
    ],
)
def test_what_shows_a_defect_is_computed(switch, by_counts, changes_counts, plan, right):
    outcome = run_reference((switch,), plan)
    failed = failing_checks(outcome.results)
    shown = compute_evidence(outcome.series, plan, failed, read_switches()[switch].caught_by, right)
    assert shown.checks_by_ids != ()
    assert (shown.checks_by_counts, shown.changes_counts) == (by_counts, changes_counts)


ROW = DefectEvidence(checks_by_ids=("a.b", "c.d"), checks_by_counts=("c.d",), changes_counts=True)


@pytest.mark.parametrize(
    ("computed", "said"),
    [
        (ROW, []),
        (replace(ROW, checks_by_ids=("a.b", "c.d", "e.f")), []),
        (replace(ROW, checks_by_counts=()), ["golden/evidence.json expects failures by counts of c.d, got no check"]),
        (replace(ROW, checks_by_ids=("c.d",)), ["golden/evidence.json expects failures by ids of a.b, c.d, got c.d"]),
        (replace(ROW, changes_counts=False), ["golden/evidence.json expects changes_counts True, got False"]),
    ],
)
def test_what_no_longer_holds_is_named(computed, said):
    assert list(disagreements("x", ROW, computed)) == [f"x: {words}" for words in said]
