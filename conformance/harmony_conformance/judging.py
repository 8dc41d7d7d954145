"""What is to be judged, and judging it: every check on every scenario, over each API that it went over, and the APIs with each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from harmony_conformance.apis import APIS, CHAT_COMPLETIONS, CONVERSATIONS
from harmony_conformance.check import Check, Comparison, Outcome
from harmony_conformance.conditions import is_chat
from harmony_conformance.engines import ScriptBy
from harmony_conformance.exchange import ACROSS, Series
from harmony_conformance.judge import Case, Result, judge, judge_case
from harmony_conformance.scenario import Scenario, expand, needed_model, why_not_sent
from harmony_conformance.scripting import settled


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What will be sent, and which checks will judge it."""

    scenarios: tuple[Scenario, ...]
    checks: tuple[Check | Comparison, ...]


_ABOUT: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "responses": frozenset({"responses"}),
        "completions": frozenset(api.name for api in APIS.values() if api.is_raw),
        "native": frozenset(api.name for api in APIS.values() if api.word in ("ollama", "tgi", "sglang")),
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
    series: Iterable[Series], plan: Plan, ways: Mapping[str, ScriptBy] | None = None, limit: int | None = None
) -> Iterator[Result]:
    """Results of every check on every scenario, in the plan's order; a scenario that was not sent has results for the checks it is made for.

    What was sent over several APIs is judged once more, all of them together, by the checks that compare them. What an endpoint does not offer is told of
    the endpoint as a whole, and not of every check.

    `ways`: how the endpoint's model was scripted in each API that it offers, None where that is not known, as of a recording. `limit`: the number of
    requests allowed, if that kept some from being sent.
    """
    by_key: dict[tuple[str, str], list[Series]] = {}
    for one in series:
        by_key.setdefault((one.name, one.api), []).append(one)
    comparing = [rule for rule in plan.checks if rule.family == COMPARES_APIS]
    for scenario in plan.scenarios:
        sent = Case([one for one in by_key.get(scenario.key, []) if one.exchanges])
        if ways is not None and scenario.api not in ways:
            continue
        for rule in plan.checks:
            if is_of(rule, scenario.api) and (sent.series or rule.id in scenario.exercises):
                yield judge_pair(rule, scenario, sent, ways, limit)
    for many in joined(by_key) if comparing else ():
        yield from judge(many, comparing)


def joined(by_key: Mapping[tuple[str, str], Sequence[Series]]) -> Iterator[list[Series]]:
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
    sent: Case,
    ways: Mapping[str, ScriptBy] | None = None,
    limit: int | None = None,
) -> Result:
    """The result of one check on the series of one scenario, `sent`.

    Where none was sent, it is not applicable if the scenario makes no sense on that endpoint, else inconclusive, with the reason.
    """
    result = judge_case(rule, sent, exercised=rule.id in scenario.exercises)
    reached = f"--max-requests {limit} was reached"
    if sent.series:
        is_cut = limit is not None and any(len(one.exchanges) < len(tuple(expand(scenario))) for one in sent.series)
        is_open = result.outcome is Outcome.INCONCLUSIVE
        return replace(result, reason=f"not all of it was sent: {reached}") if is_cut and is_open else result
    result = replace(result, scenario=scenario.name, api=scenario.api)
    needed = _why_not_sent(scenario, ways)
    if needed is not None:
        return replace(result, outcome=Outcome.NOT_APPLICABLE, reason=needed)
    reason = "no request of the scenario was sent" if limit is None else f"not sent: {reached}"
    return replace(result, outcome=Outcome.INCONCLUSIVE, reason=reason)


def _why_not_sent(scenario: Scenario, ways: Mapping[str, ScriptBy] | None) -> str | None:
    if ways is None:
        return needed_model(scenario)
    way = ways.get(scenario.api)
    return why_not_sent(scenario, way) if way is not None else f"the endpoint does not offer the API {scenario.api}"


def in_order(series: Iterable[Series], scenarios: Iterable[Scenario]) -> tuple[Series, ...]:
    """Series that were read back, by try, with their steps in the order in which a scenario sends them."""
    places = {scenario.key: {step.name: place for place, step in enumerate(expand(scenario))} for scenario in scenarios}

    def ordered(one: Series) -> Series:
        place = places.get((one.name, one.api), {})
        steps = sorted(one.exchanges.items(), key=lambda named: place.get(named[0], len(place)))
        return settled(replace(one, exchanges=dict(steps)))

    def attempt(one: Series) -> int:
        return next((x.attempt for x in one.exchanges.values()), 0)

    return tuple(sorted((ordered(one) for one in series), key=attempt))
