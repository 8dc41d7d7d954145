"""`golden/messages_depth.json`: each check that judges Chat Completions judges Messages, or the table says why it does not."""

import json
import runpy
from functools import cache
from pathlib import Path

import pytest

from harmony_conformance.apis.registry import CHAT_COMPLETIONS, MESSAGES
from harmony_conformance.checks import CHECKS
from harmony_conformance.cli.main import main
from harmony_conformance.golden import data as golden
from harmony_conformance.json_value import loads
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.selection import select_plan
from harmony_conformance.selftest.selftest import failing_checks, read_checks_of_logs, run_reference

TOOL = runpy.run_path(str(Path(__file__).parents[3] / "tools" / "write_messages_depth.py"))
ROWS = json.loads((golden.root() / "messages_depth.json").read_text("utf-8"))["checks"]
CAUGHT = sorted(
    {(row["defect"], row["scenario"], check.startswith("apis.")) for check, row in ROWS.items() if "defect" in row}
)
OF_LOGS = [check for check, row in ROWS.items() if "logs" in row]
IDS = {check.id for check in CHECKS}


@cache
def plan_of(scenario, apis):
    plan = select_plan(apis, (), ())
    return Plan(scenarios=tuple(one for one in plan.scenarios if one.name == scenario), checks=plan.checks)


@cache
def failing(scenario, *defects, compares_apis):
    apis = (CHAT_COMPLETIONS.name, MESSAGES.name) if compares_apis else (MESSAGES.name,)
    return failing_checks(run_reference(defects, plan_of(scenario, apis), apis).results)


def test_the_page_is_up_to_date():
    assert TOOL["PAGE"].read_text("utf-8") == TOOL["page_text"](), "run `python tools/write_messages_depth.py`"


def test_each_check_has_one_row():
    assert set(ROWS) == {check.id for check in CHECKS if check.family not in TOOL["OTHER_APIS"]}
    kinds = [[kind for kind in ("defect", "why", "logs") if row.get(kind)] for row in ROWS.values()]
    assert [len(kind) for kind in kinds] == [1] * len(ROWS)
    assert {name for row in ROWS.values() for name in row.get("instead", ())} <= IDS


def test_each_judged_check_has_examples_that_pass_and_fail():
    shown = {row.check: (row.passing, row.failing) for row in TOOL["rows"]()}
    assert [check for check, row in ROWS.items() if "why" not in row and 0 in shown[check]] == []


HALVES = [pytest.param(*row, marks=[pytest.mark.slow] if n % 2 else []) for n, row in enumerate(CAUGHT)]


@pytest.mark.parametrize(("defect", "scenario", "compares_apis"), HALVES)
def test_a_defect_is_caught_over_messages(defect, scenario, compares_apis):
    expected = {
        check
        for check, row in ROWS.items()
        if (row.get("defect"), row.get("scenario"), check.startswith("apis.")) == (defect, scenario, compares_apis)
    }
    assert expected <= failing(scenario, defect, compares_apis=compares_apis)
    assert failing(scenario, compares_apis=compares_apis) == set()


def test_only_checks_that_no_server_can_fail_have_no_defect():
    assert set(OF_LOGS) <= read_checks_of_logs().keys()


@pytest.mark.parametrize("check", OF_LOGS)
@pytest.mark.parametrize("outcome", [Outcome.PASS, Outcome.FAIL])
def test_a_check_of_logs_judges_a_log_of_messages(tmp_path, check, outcome):
    exchanges = [
        x
        for example in golden.examples()
        if (example.check, example.outcome) == (check, outcome)
        for x in example.series.exchanges.values()
        if x.api == MESSAGES.name
    ]
    lines = [{"request": x.request.json, "response": x.response.json, "path": x.request.path} for x in exchanges]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    main(["audit", str(tmp_path / "log.jsonl"), "--out", str(tmp_path / "out")])
    rows = map(loads, (tmp_path / "out" / "audit.jsonl").read_text("utf-8").splitlines())
    (counts,) = [row["counts"] for row in rows if row.get("check") == check and "counts" in row]
    assert counts[outcome.value] == sum(counts.values()) == len(exchanges) > 0
