"""Which of many rules apply, each condition asked once: a tree of the conditions that rules begin with.

Most rules step aside from most exchanges, and many for the same reason: `when=(is_conversation, prompt_is_known, has_results)`. Where one condition
does not hold, it settles every rule that asks it after the same conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.check import Check, Comparison, Condition

Unmet = Condition[Exchange] | Condition[Series]
RAISED = object()
"""Marks a subject on which a condition raised an exception."""


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ConditionNode:
    """A condition, the rules (by their places) that ask it after the same conditions, and what those of them ask next that have more."""

    asks: Unmet
    rules: list[int] = field(default_factory=list[int])
    next: dict[Unmet, ConditionNode] = field(default_factory=dict["Unmet", "ConditionNode"])


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionIndex:
    """Rules in their order, and the conditions that they begin with: of those about an exchange, and of those about a series."""

    rules: tuple[Check | Comparison, ...]
    first: Mapping[type[Exchange | Series], tuple[ConditionNode, ...]]

    def unmet_nodes(self, subject: Exchange | Series, known: dict[object, bool]) -> tuple[ConditionNode, ...]:
        """Return the branches whose condition does not hold. A condition that raises stops none, and adds `RAISED` to `known`.

        `known`: the conditions that were evaluated on the same subject before; those evaluated now are added.
        """
        where = subject.api if isinstance(subject, Exchange) else len(subject.exchanges) > 1
        aside, first = _ruled_out(self, where)
        stops, asked = [*aside], [*first]
        for branch in asked:
            condition = branch.asks
            holds = known.get(condition)
            if holds is None:
                try:
                    ask = condition.holds  # first: `condition.holds()` would look for a method
                    holds = known[condition] = ask(subject)  # type: ignore[arg-type]
                except Exception:  # noqa: BLE001 - it is raised again for each rule that asks it, and reported
                    known[RAISED] = True
                    continue
            if not holds:
                stops.append(branch)
            elif branch.next:
                asked += branch.next.values()
        return tuple(stops)


@lru_cache(maxsize=512)
def _ruled_out(agenda: ConditionIndex, where: str | bool) -> tuple[list[ConditionNode], list[ConditionNode]]:
    """Split the first conditions into those that can not hold and the others. `where`: an exchange's API; true for a series of several exchanges."""
    aside: list[ConditionNode] = []
    asked: list[ConditionNode] = []
    for branch in agenda.first[Exchange if isinstance(where, str) else Series]:
        apis = branch.asks.apis
        can_hold = (apis is None or where in apis) and (where or not branch.asks.is_series_only)
        (asked if can_hold else aside).append(branch)
    return aside, asked


@lru_cache(maxsize=512)
def build_index(rules: tuple[Check | Comparison, ...]) -> ConditionIndex:
    """Return the agenda of some rules."""
    first: dict[type[Exchange | Series], dict[Unmet, ConditionNode]] = {Exchange: {}, Series: {}}
    for place, rule in enumerate(rules):
        branches = first[rule.subject]
        for condition in rule.when:
            branch = branches.setdefault(condition, ConditionNode(asks=condition))
            branch.rules.append(place)
            branches = branch.next
    return ConditionIndex(rules=rules, first={kind: tuple(branches.values()) for kind, branches in first.items()})


@lru_cache(maxsize=2048)
def unmet_rules(stops: tuple[ConditionNode, ...]) -> Mapping[int, Unmet]:
    """Return the places of the rules that stop at one of these branches, each with the unmet condition."""
    return {place: branch.asks for branch in stops for place in branch.rules}
