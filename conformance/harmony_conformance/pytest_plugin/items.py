"""The items of a pytest session: one for each check and scenario, named `tool_calls.name_is_declared[tool_call]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import pytest

from harmony_conformance.apis.registry import CHAT_COMPLETIONS
from harmony_conformance.evidence.exchange import ALL_APIS
from harmony_conformance.golden.scenario import Scenario
from harmony_conformance.judge.check import Check, Comparison
from harmony_conformance.pytest_plugin.outcomes import Ending
from harmony_conformance.runner.judge_run import COMPARES_APIS, Plan, is_of

MODULE = "harmony_conformance.conformance_test"


@dataclass(frozen=True, kw_only=True)
class Told:
    """How an item ends, in which words, and the properties of its report."""

    ending: Ending
    text: str
    properties: tuple[tuple[str, str], ...]


Judge = Callable[[Check | Comparison, Scenario], Told]


class ConformanceModule(pytest.File):
    """Stands in the place of the module `conformance_test`."""

    plan: Plan
    judge: Judge

    @classmethod
    def of(cls, parent: pytest.Collector, path: Path, plan: Plan, judge: Judge) -> ConformanceModule:
        """The collector of a plan; `judge` is called when an item runs."""
        module: ConformanceModule = cls.from_parent(parent, path=path, nodeid=MODULE)  # pyright: ignore[reportUnknownMemberType]
        module.plan, module.judge = plan, judge
        return module

    def collect(self) -> Iterator[pytest.Item]:
        """Each check on each scenario."""
        for rule in self.plan.checks:
            for scenario in self.plan.scenarios:
                if is_of(rule, scenario.api):
                    yield ConformanceItem.of(self, rule, scenario, self.judge)
            if rule.family == COMPARES_APIS:
                for scenario in _over_several(self.plan):
                    yield ConformanceItem.of(self, rule, scenario, self.judge)


def _over_several(plan: Plan) -> Iterator[Scenario]:
    """The scenarios that go over several APIs, as what stands for all of them."""
    first: dict[str, Scenario] = {}
    told: set[str] = set()
    for scenario in plan.scenarios:
        if first.setdefault(scenario.name, scenario) is not scenario and scenario.name not in told:
            told.add(scenario.name)
            yield replace(scenario, api=ALL_APIS)


def _named(scenario: Scenario) -> str:
    """The scenario, with its API where that is another than Chat Completions."""
    return scenario.name if scenario.api == CHAT_COMPLETIONS.name else "/".join(scenario.key)


class ConformanceItem(pytest.Item):
    """One check on one scenario. Judged in the setup, so that an error of ours is an error of the item, and never a failure of the endpoint."""

    rule: Check | Comparison
    scenario: Scenario
    judge: Judge
    told: Told

    @classmethod
    def of(
        cls, parent: ConformanceModule, rule: Check | Comparison, scenario: Scenario, judge: Judge
    ) -> ConformanceItem:
        """The item of a check and a scenario."""
        item: ConformanceItem = cls.from_parent(parent, name=f"{rule.id}[{_named(scenario)}]")  # pyright: ignore[reportUnknownMemberType]
        item.rule, item.scenario, item.judge = rule, scenario, judge
        return item

    def setup(self) -> None:
        """Judge."""
        self.told = self.judge(self.rule, self.scenario)
        self.user_properties.extend(self.told.properties)
        if self.told.ending is Ending.ERROR:
            pytest.fail(self.told.text, pytrace=False)

    def runtest(self) -> None:
        """Say what was judged."""
        match self.told.ending:
            case Ending.FAILED:
                pytest.fail(self.told.text, pytrace=False)
            case Ending.SKIPPED:
                pytest.skip(self.told.text)
            case _:
                pass

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """The module by its name, since where it is installed says nothing, and the headline of a failure."""
        return MODULE, None, f"{self.rule.id} in {_named(self.scenario)}"
