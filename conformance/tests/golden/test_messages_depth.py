"""`golden/messages_depth.json`: each check that judges Chat Completions judges Messages, or the table says why it does not."""

import json
import runpy
from functools import cache
from pathlib import Path

import pytest

from harmony_conformance.apis.registry import MESSAGES
from harmony_conformance.checks import CHECKS
from harmony_conformance.golden import data as golden
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.selection import select_plan
from harmony_conformance.selftest.selftest import failing_checks, run_reference

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "write_messages_depth.py"))
ROWS = json.loads((golden.root() / "messages_depth.json").read_text("utf-8"))["checks"]
CAUGHT = sorted({(row["defect"], row["scenario"]) for row in ROWS.values() if "defect" in row})
IDS = {check.id for check in CHECKS}


@cache
def plan_of(scenario):
    plan = select_plan((MESSAGES.name,), (), ())
    return Plan(scenarios=tuple(one for one in plan.scenarios if one.name == scenario), checks=plan.checks)


@cache
def failing(scenario, *defects):
    return failing_checks(run_reference(defects, plan_of(scenario), (MESSAGES.name,)).results)


def test_the_page_is_up_to_date():
    assert TOOL["PAGE"].read_text("utf-8") == TOOL["page_text"](), "run `python tools/write_messages_depth.py`"


def test_each_check_has_one_row():
    assert set(ROWS) == {check.id for check in CHECKS if check.family not in TOOL["OTHER_APIS"]}
    kinds = [[kind for kind in ("defect", "why", "gap") if row.get(kind)] for row in ROWS.values()]
    assert [len(kind) for kind in kinds] == [1] * len(ROWS)
    assert {name for row in ROWS.values() for name in row.get("instead", ())} <= IDS


def test_each_judged_check_has_examples_that_pass_and_fail():
    shown = {row.check: (row.passing, row.failing) for row in TOOL["rows"]()}
    assert [check for check, row in ROWS.items() if "defect" in row and 0 in shown[check]] == []


@pytest.mark.parametrize(("defect", "scenario"), CAUGHT)
def test_a_defect_is_caught_over_messages(defect, scenario):
    expected = {check for check, row in ROWS.items() if (row.get("defect"), row.get("scenario")) == (defect, scenario)}
    assert expected <= failing(scenario, defect)
    assert failing(scenario) == set()
