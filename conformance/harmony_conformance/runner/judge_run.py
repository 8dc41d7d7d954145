"""Judging of a run: every check on every scenario, over each API, and comparisons of the APIs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, CONVERSATION_APIS
from harmony_conformance.checks.rendering.renderer_fingerprint import Fingerprint, fingerprint
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.scripting import drop_unproven_stream_scripts, mark_unscripted
from harmony_conformance.evidence.dead_engine import mark_dead_engine
from harmony_conformance.evidence.exchange import API_SEPARATOR, Exchange, Series
from harmony_conformance.golden.scenario import Scenario, expand, model_requirement, skip_reason
from harmony_conformance.json_value import JsonObject
from harmony_conformance.judge.check import Check, Comparison, Outcome
from harmony_conformance.judge.conditions import is_chat
from harmony_conformance.judge.judge import NOT_ENOUGH_EVIDENCE, Result, judge_scenario_series
from harmony_conformance.judge.scenario_series import ScenarioSeries
from harmony_conformance.runner.features import count_features
from harmony_conformance.runtime.time_limit import JUDGING_SECONDS, TimeLimitError, time_limit

ScenarioKey: TypeAlias = tuple[str, str]
"""Name of a scenario and of its API."""
ScriptMethods: TypeAlias = Mapping[str, ScriptMethod]
"""Script method by API, for the APIs that an endpoint offers."""


_NO_SELECTION: Mapping[str, tuple[Check | Comparison, ...]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Scenarios to send and checks to judge them with. `selected_checks`: those of a scenario, by name, if it has not all `checks`."""

    scenarios: tuple[Scenario, ...]
    checks: tuple[Check | Comparison, ...]
    selected_checks: Mapping[str, tuple[Check | Comparison, ...]] = field(default_factory=lambda: _NO_SELECTION)

    def checks_of(self, scenario: str) -> tuple[Check | Comparison, ...]:
        """Return the checks that judge a scenario, given by name."""
        return self.selected_checks.get(scenario, self.checks)


_ABOUT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "responses": frozenset({"responses"}),
        "messages": frozenset({"messages"}),
        "completions": frozenset(api.name for api in APIS.values() if api.is_raw),
        "native": frozenset(api.name for api in APIS.values() if api.option_name in ("ollama", "tgi", "sglang")),
    }
)
"""APIs of a check family, for families that do not cover all APIs."""
API_COMPARISON_FAMILY = "apis"
"""Family of the checks that compare APIs."""


def covers_any_api(check: Check | Comparison, apis: Sequence[str]) -> bool:
    """Return True if a check covers one of these APIs, or compares several of them."""
    if check.family == API_COMPARISON_FAMILY:
        return len(CONVERSATION_APIS.intersection(apis)) > 1
    about = _ABOUT.get(check.family)
    return about is None or not about.isdisjoint(apis)


def can_apply_to_api(rule: Check | Comparison, api: str) -> bool:
    """Return True if a check may apply to one API alone: it covers the API and is not a comparison."""
    speaks_chat_alone = is_chat in rule.when and api != CHAT_COMPLETIONS.name
    return rule.family != API_COMPARISON_FAMILY and not speaks_chat_alone and covers_any_api(rule, (api,))


def can_judge_api(rule: Check | Comparison, api: str) -> bool:
    """Return True if a check may apply to one API, alone or compared with others."""
    return can_apply_to_api(rule, api) or (rule.family == API_COMPARISON_FAMILY and api in CONVERSATION_APIS)


def judge_all(
    series: Iterable[Series], plan: Plan, ways: ScriptMethods | None = None, limit: int | None = None
) -> Iterator[Result]:
    """Yield the results of every check on every scenario, in the order of the plan.

    An unsent scenario has results only for the checks that it exercises, and so has one whose judging takes too long.
    Scenarios of several APIs are judged again by the comparing checks.
    An API that the endpoint does not offer has no results. `ways`: script methods by API, None for a recording. `limit`: value of `--max-requests`
    if it prevented requests.
    """
    by_key: dict[ScenarioKey, list[Series]] = {}
    for one in mark_dead_engine(tuple(series)):
        by_key.setdefault((one.name, one.api), []).append(one)
    for scenario in plan.scenarios:
        yield from judge_scenario(scenario, by_key.get(scenario.key, ()), plan, ways, limit)
    yield from judge_api_comparisons(by_key, plan)


def judge_scenario(
    scenario: Scenario,
    series: Iterable[Series],
    plan: Plan,
    ways: ScriptMethods | None = None,
    limit: int | None = None,
) -> Iterator[Result]:
    """Yield the results of every check on one scenario over one API; nothing if the endpoint does not offer the API."""
    if ways is not None and scenario.api not in ways:
        return
    marked = mark_dead_engine([one for one in series if one.exchanges])
    sent = ScenarioSeries([mark_unscripted(one, (ways or {}).get(scenario.api)) for one in marked])
    rules = _rules_of_api(plan.checks_of(scenario.name), scenario.api)
    if not sent.series:
        rules = tuple(rule for rule in rules if rule.id in scenario.exercises)
    try:
        with time_limit(JUDGING_SECONDS):
            results = judge_scenario_series(sent, rules, scenario.exercises)
    except TimeLimitError as error:
        exercised = tuple(rule for rule in rules if rule.id in scenario.exercises)
        yield from (_unjudged_result(rule, scenario.name, scenario.api, error) for rule in exercised or rules)
        return
    for result in results:
        yield _explain_unsent(result, scenario, sent, ways, limit)


@lru_cache(maxsize=64)
def _rules_of_api(rules: tuple[Check | Comparison, ...], api: str) -> tuple[Check | Comparison, ...]:
    return tuple(rule for rule in rules if can_apply_to_api(rule, api))


def judge_api_comparisons(by_key: Mapping[ScenarioKey, Sequence[Series]], plan: Plan) -> Iterator[Result]:
    """Yield the results of the comparing checks on scenarios of several APIs."""
    may_compare = any(rule.family == API_COMPARISON_FAMILY for rule in plan.checks)
    for many in map(ScenarioSeries, join_apis(by_key) if may_compare else ()):
        comparing = [rule for rule in plan.checks_of(many.name) if rule.family == API_COMPARISON_FAMILY]
        try:
            with time_limit(JUDGING_SECONDS):
                results = judge_scenario_series(many, tuple(comparing))
        except TimeLimitError as error:
            results = [_unjudged_result(rule, many.name, many.api, error) for rule in comparing]
        yield from results


def _unjudged_result(rule: Check | Comparison, scenario: str, api: str, error: TimeLimitError) -> Result:
    return Result(rule.id, rule.severity, rule.clause, scenario, api, Outcome.ERROR, reason=str(error))


@dataclass(frozen=True, kw_only=True)
class Observations:
    """Facts of a run that no check judges: the renderer of its prompts, and the features of its answers."""

    renderer: Fingerprint | None
    features: JsonObject


def observe(series: Sequence[Series]) -> Observations:
    """Return the facts in the exchanges of a run that no check judges."""
    return Observations(renderer=fingerprint(series), features=count_features(series))


class RunJudge:
    """Judge of a run. This class judges at the end, after the last request."""

    def __init__(self, plan: Plan) -> None:
        """`plan`: scenarios and checks of the run."""
        self._whole_plan = plan

    def on_exchange(self, x: Exchange, line: bytes) -> None:
        """Receive an exchange and its recorded line."""

    def on_series(self, one: Series, ways: ScriptMethods) -> None:
        """Receive a series after its last request."""

    def count_failures(self) -> int | None:
        """Return the number of failed results so far, None if it is known only at the end."""
        return None

    async def results(self, series: Sequence[Series], ways: ScriptMethods, limit: int | None) -> tuple[Result, ...]:
        """Return all results in the order of the plan; call it after the last request. See `judge_all`."""
        return tuple(judge_all(series, self._whole_plan, ways, limit))

    def observations(self, series: Sequence[Series]) -> Observations:
        """Return the observations in these series; call it after `results`."""
        return observe(series)


def join_apis(by_key: Mapping[ScenarioKey, Sequence[Series]]) -> Iterator[list[Series]]:
    """Yield, for each scenario of several APIs, one joined series per try, with steps named `step@api`."""
    for name in dict.fromkeys(name for name, _ in by_key):
        by_api = [tries for (other, api), tries in by_key.items() if other == name and api in CONVERSATION_APIS]
        if len(by_api) > 1:
            yield [
                Series(
                    name=name,
                    exchanges={
                        f"{step}{API_SEPARATOR}{one.api}": x for one in tries for step, x in one.exchanges.items()
                    },
                )
                for tries in zip(*by_api, strict=False)
            ]


def judge_pair(
    rule: Check | Comparison,
    scenario: Scenario,
    sent: ScenarioSeries,
    ways: ScriptMethods | None = None,
    limit: int | None = None,
) -> Result:
    """Return the result of one check on the series of one scenario, `sent`.

    Without a series, it is NOT_APPLICABLE if the endpoint cannot run the scenario, else INCONCLUSIVE with the reason.
    """
    return _explain_unsent(judge_scenario_series(sent, (rule,), scenario.exercises)[0], scenario, sent, ways, limit)


def _explain_unsent(
    result: Result, scenario: Scenario, sent: ScenarioSeries, ways: ScriptMethods | None, limit: int | None
) -> Result:
    reached = f"--max-requests {limit} was reached"
    if sent.series:
        is_cut = limit is not None and any(len(one.exchanges) < len(tuple(expand(scenario))) for one in sent.series)
        is_open = result.outcome is Outcome.INCONCLUSIVE
        return result._replace(reason=f"incomplete: {reached}") if is_cut and is_open else result
    result = result._replace(scenario=scenario.name, api=scenario.api)
    if ways is None:
        needed = model_requirement(scenario)
    elif scenario.api in ways:
        needed = skip_reason(scenario, ways[scenario.api])
    else:
        needed = f"the endpoint does not offer the API {scenario.api}"
    if needed is not None:
        return result._replace(outcome=Outcome.NOT_APPLICABLE, reason=needed)
    reason = "no request of the scenario was sent" if limit is None else f"not sent: {reached}"
    return result._replace(outcome=Outcome.INCONCLUSIVE, reason=reason)


def explain_incomplete_probes(
    results: Iterable[Result], sent_over: ScriptMethods, unknown: Mapping[str, str]
) -> Iterator[Result]:
    """Yield the results, with a corrected reason for APIs that could not be probed.

    `sent_over`: APIs that are known to be offered. `unknown`: reasons of incomplete probes, by API.
    """
    for result in results:
        why = unknown.get(result.api)
        if why is None:
            yield result
        elif result.api not in sent_over and result.outcome is Outcome.INCONCLUSIVE:
            yield result._replace(reason=f"the endpoint could not be probed for this API: {why}")
        elif result.outcome is Outcome.NOT_APPLICABLE and result.reason.startswith(NOT_ENOUGH_EVIDENCE):
            reason = f"the endpoint could not be probed completely: {why}"
            yield result._replace(outcome=Outcome.INCONCLUSIVE, reason=reason)
        else:
            yield result


def sort_series(series: Iterable[Series], scenarios: Iterable[Scenario]) -> tuple[Series, ...]:
    """Return recorded series by try, with their steps in the order of the scenario."""
    places = {scenario.key: {step.name: place for place, step in enumerate(expand(scenario))} for scenario in scenarios}

    def sort_steps(one: Series) -> Series:
        place = places.get((one.name, one.api), {})
        steps = sorted(one.exchanges.items(), key=lambda item: place.get(item[0], len(place)))
        return drop_unproven_stream_scripts(replace(one, exchanges=dict(steps)))

    return tuple(sorted(map(sort_steps, series), key=attempt_number))


def attempt_number(one: Series) -> int:
    """Return the number of a series among the tries of its scenario, from 0."""
    return next((x.attempt for x in one.exchanges.values()), 0)
