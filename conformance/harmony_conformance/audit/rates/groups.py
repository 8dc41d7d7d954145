"""Groups of exchanges: those of one model, provider, route, engine, API, day or delivery, and how many of them failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from typing import Protocol, Self, TypeVar

from harmony_conformance.json_value import Json, JsonObject, integer, members, value_at

DIMENSIONS = ("day", "model", "provider", "route", "engine", "api", "delivery")
"""The names by which exchanges are grouped."""

MAX_GROUPS = 1024
"""Maximum groups of a dimension: the first ones by name, so that the order of the log makes no difference."""


@dataclass(frozen=True, kw_only=True)
class GroupTally:
    """Exchanges of one group, those with a failure, those with a failure of severity MUST, and the exchanges that each check failed for."""

    exchanges: int = 0
    failed: int = 0
    must: int = 0
    checks: Mapping[str, int] = field(default_factory=dict[str, int])

    def __add__(self, other: GroupTally) -> GroupTally:
        """Return the sum."""
        return GroupTally(
            exchanges=self.exchanges + other.exchanges,
            failed=self.failed + other.failed,
            must=self.must + other.must,
            checks=add_each(self.checks, other.checks),
        )


Groups = Mapping[str, Mapping[str, GroupTally]]
"""Tallies by dimension and name. The name of the unknown is empty."""


def add_groups(one: Groups, other: Groups) -> Groups:
    """Return the sum of the groups of two parts of a log."""
    if not one or not other:
        return one or other
    return {dimension: _first(add_each(one.get(dimension, {}), other.get(dimension, {}))) for dimension in DIMENSIONS}


class _Addable(Protocol):
    def __add__(self, other: Self, /) -> Self: ...


Key = TypeVar("Key")
Part = TypeVar("Part", bound=_Addable)


def add_each(one: Mapping[Key, Part], other: Mapping[Key, Part]) -> Mapping[Key, Part]:
    """Return the values of both; the sum of two with one key."""
    return {**one, **other, **{key: one[key] + other[key] for key in one.keys() & other.keys()}}


def _first(names: Mapping[str, GroupTally]) -> Mapping[str, GroupTally]:
    return names if len(names) <= MAX_GROUPS else {name: names[name] for name in nsmallest(MAX_GROUPS, names)}


class GroupCounter:
    """Groups of exchanges that are added one at a time. State: counts by the whole source of an exchange."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], tuple[Counter[str], Counter[str]]] = {}

    def add(self, source: Mapping[str, str], failed: Sequence[str], times: int = 1, *, must: bool = False) -> None:
        """Count an exchange, and the checks that failed for it, `must` if one is a MUST. `times`: the number of exchanges, if they have passed."""
        key = tuple([source.get(dimension, "") for dimension in DIMENSIONS])
        counts = self._counts.get(key)
        if counts is None:
            counts = self._counts[key] = Counter(), Counter()
        total, checks = counts
        total["exchanges"] += times
        if failed:
            total["failed"] += 1
            total["must"] += must
            checks.update(failed)

    def groups(self) -> Groups:
        """Return the groups of everything added so far."""
        found: dict[str, dict[str, GroupTally]] = {dimension: {} for dimension in DIMENSIONS}
        for key, (total, checks) in self._counts.items():
            one = GroupTally(
                exchanges=total["exchanges"], failed=total["failed"], must=total["must"], checks=dict(checks)
            )
            for dimension, name in zip(DIMENSIONS, key, strict=True):
                found[dimension][name] = found[dimension].get(name, GroupTally()) + one
        return {dimension: _first(names) for dimension, names in found.items()} if self._counts else {}


def groups_json(groups: Groups) -> JsonObject:
    """Return the JSON form of groups."""
    return {
        dimension: {name: [one.exchanges, one.failed, {**one.checks}, one.must] for name, one in names.items()}
        for dimension, names in groups.items()
    }


def read_groups(value: Json) -> Groups:
    """Read the JSON form of groups.

    Raises:
        ValueError: An earlier version wrote it, which did not count failures of severity MUST.
    """
    return {
        dimension: {name: _read_group(one) for name, one in members(names).items()}
        for dimension, names in members(value).items()
    }


def _read_group(value: Json) -> GroupTally:
    checks = {name: integer(count) or 0 for name, count in members(value_at(value, 2)).items()}
    exchanges, failed, must = (integer(value_at(value, place)) for place in (0, 1, 3))
    if must is None:
        raise ValueError("a group has no number of MUST failures: an earlier version wrote it")
    return GroupTally(exchanges=exchanges or 0, failed=failed or 0, must=must, checks=checks)
