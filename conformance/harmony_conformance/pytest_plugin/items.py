"""Items of a pytest session: one per check and scenario, named `tool_calls.name_is_declared[tool_call]`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pytest

from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.evidence.exchange import ALL_APIS
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.judge.check import Check, Comparison
from harmony_conformance.pytest_plugin.outcomes import ItemStatus
from harmony_conformance.runner.judge_run import API_COMPARISON_FAMILY, Plan, can_apply_to_api

MODULE = "harmony_conformance.conformance_test"


@dataclass(frozen=True, kw_only=True)
class ItemResult:
    """Outcome of an item, its text, and the properties of its report."""

    status: ItemStatus
    text: str
    properties: tuple[tuple[str, str], ...]


JudgeCallback = Callable[[Check | Comparison, Scenario], ItemResult]
ItemsCallback = Callable[[pytest.Collector], Iterator[pytest.Item]]


class ConformanceModule(pytest.File):
    """Collector in place of the module `conformance_test`."""

    plan: Plan
    judge: JudgeCallback
    add_items: ItemsCallback

    @classmethod
    def create(
        cls, parent: pytest.Collector, path: Path, plan: Plan, judge: JudgeCallback, add_items: ItemsCallback
    ) -> ConformanceModule:
        """Return the collector of a plan; `judge` is called when an item runs. `add_items` yields more items."""
        module: ConformanceModule = cls.from_parent(parent, path=path, nodeid=MODULE)  # pyright: ignore[reportUnknownMemberType]
        module.plan, module.judge, module.add_items = plan, judge, add_items
        return module

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item per check and scenario, then the others."""
        for rule in self.plan.checks:
            for scenario in self.plan.scenarios:
                if can_apply_to_api(rule, scenario.api) and rule in self.plan.checks_of(scenario.name):
                    yield ConformanceItem.create(self, rule, scenario, self.judge)
            if rule.family == API_COMPARISON_FAMILY:
                for scenario in _multi_api_scenarios(self.plan):
                    if rule in self.plan.checks_of(scenario.name):
                        yield ConformanceItem.create(self, rule, scenario, self.judge)
        yield from self.add_items(self)


def _multi_api_scenarios(plan: Plan) -> Iterator[Scenario]:
    """Yield one scenario for all APIs per scenario of several APIs, when its second API follows in the plan."""
    counts: Counter[str] = Counter()
    for scenario in plan.scenarios:
        counts[scenario.name] += 1
        if counts[scenario.name] == 2:  # noqa: PLR2004 - the second API
            yield replace(scenario, api=ALL_APIS)


def _label(scenario: Scenario) -> str:
    """Return the name of the scenario, with its API unless it is Chat Completions."""
    return scenario.name if scenario.api == CHAT_COMPLETIONS.name else "/".join(scenario.key)


class ConformanceItem(pytest.Item):
    """One check on one scenario. The setup judges, so that an internal error is an error and not a failure of the item."""

    rule: Check | Comparison
    scenario: Scenario
    judge: JudgeCallback
    item_result: ItemResult

    @classmethod
    def create(
        cls, parent: ConformanceModule, rule: Check | Comparison, scenario: Scenario, judge: JudgeCallback
    ) -> ConformanceItem:
        """Return the item of a check and a scenario."""
        item: ConformanceItem = cls.from_parent(parent, name=f"{rule.id}[{_label(scenario)}]")  # pyright: ignore[reportUnknownMemberType]
        item.rule, item.scenario, item.judge = rule, scenario, judge
        return item

    def setup(self) -> None:
        """Judge the scenario."""
        self.item_result = self.judge(self.rule, self.scenario)
        self.user_properties.extend(self.item_result.properties)
        if self.item_result.status is ItemStatus.ERROR:
            pytest.fail(self.item_result.text, pytrace=False)

    def runtest(self) -> None:
        """Fail, xfail or skip by the result."""
        match self.item_result.status:
            case ItemStatus.FAILED:
                pytest.fail(self.item_result.text, pytrace=False)
            case ItemStatus.XFAILED:
                pytest.xfail(self.item_result.text)
            case ItemStatus.SKIPPED:
                pytest.skip(self.item_result.text)
            case _:
                pass

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return a place with a line, which pytest needs for an item that a marker skips."""
        return self.path, 0, self.location[2]

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """Name of the module, as its path is meaningless to users, and the headline of a failure."""
        return MODULE, None, f"{self.rule.id} in {_label(self.scenario)}"
