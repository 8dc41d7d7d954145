"""Select the checks that apply, evaluating each condition once: a prefix tree of the checks' conditions.

Most checks do not apply to most exchanges, and many for the same reason: `when=(is_conversation, prompt_is_known, has_results)`.
One unmet condition rules out every check below it in the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

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

    @property
    def unmet(self) -> Mapping[int, AnyCondition]:
        """The places of the checks that do not apply if the condition does not hold, each with the condition."""
        return dict.fromkeys(self.rule_positions, self.condition)


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class ImpossibleNodes:
    """The places of the checks that cannot apply to subjects of one kind, each with the unmet condition."""

    unmet: Mapping[int, AnyCondition]


class _Step(NamedTuple):
    """A condition to evaluate, its node, and what follows if it holds: conditions that cannot hold, joined, and further steps."""

    condition: AnyCondition
    evaluate: Callable[[Any], bool]
    node: ConditionNode
    impossible: tuple[ImpossibleNodes, ...]
    further: tuple[_Step, ...]


UnmetNode = ConditionNode | ImpossibleNodes


@dataclass(frozen=True, kw_only=True, eq=False)
class ConditionIndex:
    """Checks in their order, and the roots of their conditions by subject: an exchange or a series."""

    rules: tuple[Check | Comparison, ...]
    roots: Mapping[type[Exchange | Series], tuple[ConditionNode, ...]]

    def unmet_nodes(self, subject: Exchange | Series, known: dict[object, bool]) -> tuple[UnmetNode, ...]:
        """Return the nodes whose condition does not hold.

        A condition that raises rules out no check, and adds the marker RAISED.
        `known` has the conditions that were evaluated on the same subject before. Those evaluated now are added.
        """
        kind = subject.api if isinstance(subject, Exchange) else len(subject.exchanges) > 1
        impossible, steps = _steps_for(self, kind)
        unmet: list[UnmetNode] = [*impossible]
        pending = [*steps]
        for condition, evaluate, node, below, further in pending:
            holds = known.get(condition)
            if holds is None:
                try:
                    holds = known[condition] = evaluate(subject)
                except BaseException as error:
                    if not is_error_of_check(error):
                        raise
                    known[CONDITION_RAISED] = True
                    continue
            if not holds:
                unmet.append(node)
            elif further or below:
                unmet += below
                pending += further
        return tuple(unmet)


_Steps = tuple[tuple[ImpossibleNodes, ...], tuple[_Step, ...]]


@lru_cache(maxsize=512)
def _steps_for(index: ConditionIndex, kind: str | bool) -> _Steps:
    """Return the conditions that cannot hold, and the steps of the others.

    `kind`: the API of an exchange; for a series, True if it has several exchanges.
    """
    return _steps(index.roots[Exchange if isinstance(kind, str) else Series], kind)


def _steps(nodes: Iterable[ConditionNode], kind: str | bool) -> _Steps:
    unmet: dict[int, AnyCondition] = {}
    steps: list[_Step] = []
    for node in nodes:
        condition = node.condition
        if (condition.apis is None or kind in condition.apis) and (kind or not condition.is_series_only):
            steps.append(_Step(condition, condition.holds, node, *_steps(node.children.values(), kind)))
        else:
            unmet |= node.unmet
    return ((ImpossibleNodes(unmet=unmet),) if unmet else ()), tuple(steps)


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
def unmet_rules(nodes: tuple[UnmetNode, ...]) -> Mapping[int, AnyCondition]:
    """Return the places of the checks below some unmet nodes, each with the unmet condition."""
    return {place: needed for node in nodes for place, needed in node.unmet.items()}
