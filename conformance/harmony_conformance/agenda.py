"""Which of many rules apply, each condition asked once: a tree of the conditions that rules begin with.

Most rules step aside from most exchanges, and many for the same reason: `when=(is_conversation, prompt_is_known, has_results)`. Where one condition
does not hold, it settles every rule that asks it after the same conditions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from harmony_conformance.check import Check, Comparison, Condition
from harmony_conformance.exchange import Exchange, Series

Unmet = Condition[Exchange] | Condition[Series]
RAISED = object()
"""Known of a subject on which a condition could not be evaluated."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Branch:
    """A condition, the rules (by their places) that ask it after the same conditions, and what those of them ask next that have more."""

    asks: Unmet
    rules: list[int] = field(default_factory=list[int])
    next: dict[Unmet, Branch] = field(default_factory=dict["Unmet", "Branch"])


@dataclass(frozen=True, kw_only=True, eq=False)
class Agenda:
    """Rules in their order, and the conditions that they begin with: of those about an exchange, and of those about a series."""

    rules: tuple[Check | Comparison, ...]
    on_exchanges: tuple[Branch, ...]
    on_several: tuple[Branch, ...]
    on_any_series: tuple[Branch, ...]

    def stops(self, subject: Exchange | Series, known: dict[object, bool]) -> tuple[Branch, ...]:
        """The branches at which rules stop, since the condition does not hold. A condition that raises stops none, and `known` has `RAISED` then.

        `known`: which conditions hold, of those that were evaluated on the same subject before; what is evaluated is added.
        """
        if isinstance(subject, Exchange):
            aside, asked = _on_api(self, subject.api)
            return (*aside, *_stops(asked, subject, known))
        if len(subject.exchanges) > 1:
            return tuple(_stops((*self.on_several, *self.on_any_series), subject, known))
        return (*self.on_several, *_stops(self.on_any_series, subject, known))


@lru_cache(maxsize=512)
def _on_api(rules: Agenda, api: str) -> tuple[tuple[Branch, ...], tuple[Branch, ...]]:
    """Of the conditions that rules about an exchange begin with: those that hold on other APIs alone, and those that have to be asked."""
    aside = tuple(
        branch for branch in rules.on_exchanges if branch.asks.apis is not None and api not in branch.asks.apis
    )
    return aside, tuple(branch for branch in rules.on_exchanges if branch not in aside)


def _stops(first: Iterable[Branch], subject: Exchange | Series, known: dict[object, bool]) -> list[Branch]:
    stops: list[Branch] = []
    asked = list(first)
    for branch in asked:
        condition = branch.asks
        holds = known.get(condition)
        if holds is None:
            try:
                ask = condition.holds  # first: `condition.holds()` would look for a method
                holds = known[condition] = ask(subject)  # type: ignore[arg-type]
            except Exception:  # noqa: BLE001 - it will be raised again for each rule that asks it, and reported
                known[RAISED] = True
                continue
        if not holds:
            stops.append(branch)
        elif branch.next:
            asked += branch.next.values()
    return stops


@lru_cache(maxsize=512)
def agenda_of(rules: tuple[Check | Comparison, ...]) -> Agenda:
    """The agenda of some rules."""
    first: dict[type[Exchange | Series], dict[Unmet, Branch]] = {Exchange: {}, Series: {}}
    for place, rule in enumerate(rules):
        branches = first[rule.subject]
        for condition in rule.when:
            branch = branches.setdefault(condition, Branch(asks=condition))
            branch.rules.append(place)
            branches = branch.next
    on_series = first[Series].values()
    return Agenda(
        rules=rules,
        on_exchanges=tuple(first[Exchange].values()),
        on_several=tuple(branch for branch in on_series if branch.asks.is_of_several),
        on_any_series=tuple(branch for branch in on_series if not branch.asks.is_of_several),
    )


@lru_cache(maxsize=2048)
def stopped(stops: tuple[Branch, ...]) -> frozenset[int]:
    """The rules that do not apply, by their places, where these are the branches at which rules stop."""
    return frozenset(place for branch in stops for place in branch.rules)


def settled(stops: Sequence[Sequence[Branch]]) -> dict[int, tuple[Unmet, ...]]:
    """The rules that apply to none of some subjects, by their places, and what each subject lacks. `stops`: those of each subject."""
    missing: dict[int, list[Unmet]] = {}
    for branches in stops:
        for branch in branches:
            for place in branch.rules:
                missing.setdefault(place, []).append(branch.asks)
    return {place: tuple(dict.fromkeys(lacking)) for place, lacking in missing.items() if len(lacking) == len(stops)}
