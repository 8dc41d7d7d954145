"""Select the checks that apply, evaluating each condition once: a prefix tree of the checks' conditions.

Most checks do not apply to most exchanges, and many for the same reason: `when=(is_conversation, prompt_is_known, has_results)`.
One unmet condition rules out every check below it in the tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.check import Check, Comparison
from harmony_conformance.judge.condition import Condition

AnyCondition = Condition[Exchange] | Condition[Series]
CONDITION_RAISED = object()
"""Marks a subject on which a condition raised an exception."""


def is_error_of_check(error: BaseException) -> bool:
    """Return True for an exception, and for a panic of a library in Rust, whose class derives from `BaseException`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ConditionNode:
    """A condition, the places of all checks that evaluate it after the same conditions, and their further conditions."""

    condition: AnyCondition
    rule_positions: list[int] = field(default_factory=list[int])
    children: dict[AnyCondition, ConditionNode] = field(default_factory=dict["AnyCondition", "ConditionNode"])


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionIndex:
    """Checks in their order, and the roots of their conditions by subject: an exchange or a series."""

    rules: tuple[Check | Comparison, ...]
    roots: Mapping[type[Exchange | Series], tuple[ConditionNode, ...]]

    def unmet_nodes(self, subject: Exchange | Series, known: dict[object, bool]) -> tuple[ConditionNode, ...]:
        """Return the nodes whose condition does not hold.

        A condition that raises rules out no check, and adds the marker RAISED.
        `known` has the conditions that were evaluated on the same subject before. Those evaluated now are added.
        """
        kind = subject.api if isinstance(subject, Exchange) else len(subject.exchanges) > 1
        impossible, possible = _split_roots(self, kind)
        unmet, pending = [*impossible], [*possible]
        for node in pending:
            condition = node.condition
            holds = known.get(condition)
            if holds is None:
                try:
                    evaluate = condition.holds  # on its own line: `condition.holds()` would look for a method
                    holds = known[condition] = evaluate(subject)  # type: ignore[arg-type]
                except BaseException as error:
                    if not is_error_of_check(error):
                        raise
                    known[CONDITION_RAISED] = True
                    continue
            if not holds:
                unmet.append(node)
            elif node.children:
                pending += node.children.values()
        return tuple(unmet)


@lru_cache(maxsize=512)
def _split_roots(index: ConditionIndex, kind: str | bool) -> tuple[list[ConditionNode], list[ConditionNode]]:
    """Split the roots into those that cannot hold and the others.

    `kind`: the API of an exchange; for a series, True if it has several exchanges.
    """
    impossible: list[ConditionNode] = []
    possible: list[ConditionNode] = []
    for node in index.roots[Exchange if isinstance(kind, str) else Series]:
        apis = node.condition.apis
        can_hold = (apis is None or kind in apis) and (kind or not node.condition.is_series_only)
        (possible if can_hold else impossible).append(node)
    return impossible, possible


@lru_cache(maxsize=512)
def build_index(rules: tuple[Check | Comparison, ...]) -> ConditionIndex:
    """Return the index of the conditions of some checks."""
    roots: dict[type[Exchange | Series], dict[AnyCondition, ConditionNode]] = {Exchange: {}, Series: {}}
    for place, rule in enumerate(rules):
        nodes = roots[rule.subject]
        for condition in rule.when:
            node = nodes.setdefault(condition, ConditionNode(condition=condition))
            node.rule_positions.append(place)
            nodes = node.children
    return ConditionIndex(rules=rules, roots={kind: tuple(nodes.values()) for kind, nodes in roots.items()})


@lru_cache(maxsize=2048)
def unmet_rules(nodes: tuple[ConditionNode, ...]) -> Mapping[int, AnyCondition]:
    """Return the places of the checks below some unmet nodes, each with the unmet condition."""
    return {place: node.condition for node in nodes for place in node.rule_positions}
