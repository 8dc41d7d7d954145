"""What is to be judged, and judging it: every check on every scenario, over each API that it went over, and the APIs with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import TypeAlias

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, CONVERSATIONS
from harmony_conformance.checks.rendering.renderer_fingerprint import Fingerprint, fingerprint
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.scripting import settled
from harmony_conformance.evidence.exchange import ACROSS, Exchange, Series
from harmony_conformance.golden.scenario import Scenario, expand, needed_model, why_not_sent
from harmony_conformance.judge.check import Check, Comparison, Outcome
from harmony_conformance.judge.conditions import is_chat
from harmony_conformance.judge.judge import NOT_SHOWN, Result, ScenarioSeries, judge, judge_case

Key: TypeAlias = tuple[str, str]
"""The name of a scenario, and of the API that it goes over."""
Ways: TypeAlias = Mapping[str, ScriptMethod]
"""How the model is scripted in each API that an endpoint offers."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be sent, and which checks will judge it."""

    scenarios: tuple[Scenario, ...]
    checks: tuple[Check | Comparison, ...]


_ABOUT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "responses": frozenset({"responses"}),
        "completions": frozenset(api.name for api in APIS.values() if api.is_raw),
        "native": frozenset(api.name for api in APIS.values() if api.option_name in ("ollama", "tgi", "sglang")),
    }
)
"""The APIs that a family is about, where it is not about all of them."""
COMPARES_APIS = "apis"
"""The family of the checks that look at several APIs at once."""


def is_about(check: Check | Comparison, apis: Sequence[str]) -> bool:
    """Whether a check is about one of these APIs, or compares several of them."""
    if check.family == COMPARES_APIS:
        return len(CONVERSATIONS.intersection(apis)) > 1
    about = _ABOUT.get(check.family)
    return about is None or not about.isdisjoint(apis)


def is_of(rule: Check | Comparison, api: str) -> bool:
    """Whether a check may apply to what went over an API alone: not one about the words of another API, nor one that compares them."""
    speaks_chat_alone = is_chat in rule.when and api != CHAT_COMPLETIONS.name
    return rule.family != COMPARES_APIS and not speaks_chat_alone and is_about(rule, (api,))


def judge_all(
    series: Iterable[Series], plan: Plan, ways: Ways | None = None, limit: int | None = None
) -> Iterator[Result]:
    """Results of every check on every scenario, in the plan's order; a scenario that was not sent has results for the checks it is made for.

    What was sent over several APIs is judged once more, all of them together, by the checks that compare them. What an endpoint does not offer is told of
    the endpoint as a whole, and not of every check.

    `ways`: how the endpoint's model was scripted in each API that it offers, None where that is not known, as of a recording. `limit`: the number of
    requests allowed, if that kept some from being sent.
    """
    by_key: dict[Key, list[Series]] = {}
    for one in series:
        by_key.setdefault((one.name, one.api), []).append(one)
    for scenario in plan.scenarios:
        yield from judge_scenario(scenario, by_key.get(scenario.key, ()), plan, ways, limit)
    yield from judge_across(by_key, plan)


def judge_scenario(
    scenario: Scenario, series: Iterable[Series], plan: Plan, ways: Ways | None = None, limit: int | None = None
) -> Iterator[Result]:
    """Results of every check on the series of one scenario over one API; none, where the endpoint does not offer that."""
    if ways is not None and scenario.api not in ways:
        return
    sent = ScenarioSeries([one for one in series if one.exchanges])
    rules = _of_api(plan.checks, scenario.api)
    if not sent.series:
        rules = tuple(rule for rule in rules if rule.id in scenario.exercises)
    for result in judge_case(sent, rules, scenario.exercises):
        yield _as_sent(result, scenario, sent, ways, limit)


@lru_cache(maxsize=64)
def _of_api(rules: tuple[Check | Comparison, ...], api: str) -> tuple[Check | Comparison, ...]:
    return tuple(rule for rule in rules if is_of(rule, api))


def judge_across(by_key: Mapping[Key, Sequence[Series]], plan: Plan) -> Iterator[Result]:
    """Results of the checks that compare APIs on what went over several."""
    comparing = [rule for rule in plan.checks if rule.family == COMPARES_APIS]
    for many in joined(by_key) if comparing else ():
        yield from judge(many, comparing)


class RunJudge:
    """Who judges a run: this one in the end, when all of it was sent."""

    def __init__(self, plan: Plan) -> None:
        """`plan`: what is to be sent, and judged by what."""
        self._all_of = plan

    def on_exchange(self, x: Exchange, line: bytes) -> None:
        """Take an exchange as it was recorded, `line`."""

    def on_series(self, one: Series, ways: Ways) -> None:
        """Take a series all of which was sent."""

    async def results(self, series: Sequence[Series], ways: Ways, limit: int | None) -> tuple[Result, ...]:
        """All results, in the order of the plan, once everything was sent. See `judge_all`."""
        return tuple(judge_all(series, self._all_of, ways, limit))

    def renderer(self, series: Sequence[Series]) -> Fingerprint | None:
        """Which renderer made the prompts, once there are results."""
        return fingerprint(series)


def joined(by_key: Mapping[Key, Sequence[Series]]) -> Iterator[list[Series]]:
    """For each scenario that went over several APIs, one series of all of them for each try, a step named `step@api`."""
    for name in dict.fromkeys(name for name, _ in by_key):
        told = [many for (other, api), many in by_key.items() if other == name and api in CONVERSATIONS]
        if len(told) > 1:
            yield [
                Series(
                    name=name,
                    exchanges={f"{step}{ACROSS}{one.api}": x for one in tries for step, x in one.exchanges.items()},
                )
                for tries in zip(*told, strict=False)
            ]


def judge_pair(
    rule: Check | Comparison,
    scenario: Scenario,
    sent: ScenarioSeries,
    ways: Ways | None = None,
    limit: int | None = None,
) -> Result:
    """The result of one check on the series of one scenario, `sent`.

    Where none was sent, it is not applicable if the scenario makes no sense on that endpoint, else inconclusive, with the reason.
    """
    return _as_sent(judge_case(sent, (rule,), scenario.exercises)[0], scenario, sent, ways, limit)


def _as_sent(result: Result, scenario: Scenario, sent: ScenarioSeries, ways: Ways | None, limit: int | None) -> Result:
    reached = f"--max-requests {limit} was reached"
    if sent.series:
        is_cut = limit is not None and any(len(one.exchanges) < len(tuple(expand(scenario))) for one in sent.series)
        is_open = result.outcome is Outcome.INCONCLUSIVE
        return result._replace(reason=f"not all of it was sent: {reached}") if is_cut and is_open else result
    result = result._replace(scenario=scenario.name, api=scenario.api)
    if ways is None:
        needed = needed_model(scenario)
    elif scenario.api in ways:
        needed = why_not_sent(scenario, ways[scenario.api])
    else:
        needed = f"the endpoint does not offer the API {scenario.api}"
    if needed is not None:
        return result._replace(outcome=Outcome.NOT_APPLICABLE, reason=needed)
    reason = "no request of the scenario was sent" if limit is None else f"not sent: {reached}"
    return result._replace(outcome=Outcome.INCONCLUSIVE, reason=reason)


def left_open(results: Iterable[Result], sent_over: Ways, unknown: Mapping[str, str]) -> Iterator[Result]:
    """Results, without a word of what an endpoint does not offer or show where that could not be found out: `unknown` says why, by API.

    `sent_over`: the APIs that are known to be offered.
    """
    for result in results:
        why = unknown.get(result.api)
        if why is None:
            yield result
        elif result.api not in sent_over and result.outcome is Outcome.INCONCLUSIVE:
            yield result._replace(reason=f"whether the endpoint offers this API could not be found out: {why}")
        elif result.outcome is Outcome.NOT_APPLICABLE and result.reason.startswith(NOT_SHOWN):
            reason = f"what the endpoint shows could not all be found out: {why}"
            yield result._replace(outcome=Outcome.INCONCLUSIVE, reason=reason)
        else:
            yield result


def in_order(series: Iterable[Series], scenarios: Iterable[Scenario]) -> tuple[Series, ...]:
    """Series that were read back, by try, with their steps in the order in which a scenario sends them."""
    places = {scenario.key: {step.name: place for place, step in enumerate(expand(scenario))} for scenario in scenarios}

    def ordered(one: Series) -> Series:
        place = places.get((one.name, one.api), {})
        steps = sorted(one.exchanges.items(), key=lambda named: place.get(named[0], len(place)))
        return settled(replace(one, exchanges=dict(steps)))

    return tuple(sorted((ordered(one) for one in series), key=attempt))


def attempt(one: Series) -> int:
    """Which of the tries of a scenario it is."""
    return next((x.attempt for x in one.exchanges.values()), 0)
