"""A condition: a named predicate under which a check applies."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Generic, TypeVar

from harmony_conformance.evidence.exchange import Exchange, Series

Subject = TypeVar("Subject", Exchange, Series)


class UnmetReason(StrEnum):
    """Reasons why a condition does not hold.

    BEHAVIOUR: the exchange is about something else. EVIDENCE: the endpoint does not expose enough.
    LIMIT: the endpoint declares a limit.
    """

    BEHAVIOUR = "behaviour"
    EVIDENCE = "evidence"
    LIMIT = "limit"


@dataclass(frozen=True, eq=False)
class Condition(Generic[Subject]):
    """A named predicate. `description` completes "applies to …". Conditions are compared by identity, which is fast."""

    holds: Callable[[Subject], bool]
    description: str
    unmet_reason: UnmetReason
    is_series_only: bool = False
    """True if it needs several exchanges: on a series of one it does not hold and is not evaluated."""
    apis: frozenset[str] | None = None
    """The names of the APIs on which it may hold; on others it is not evaluated. None: all APIs."""


def condition(function: Callable[[Subject], bool]) -> Condition[Subject]:
    """Make a condition on the content of an exchange."""
    return Condition(function, _first_line(function), UnmetReason.BEHAVIOUR)


def evidence(function: Callable[[Subject], bool]) -> Condition[Subject]:
    """Make a condition on the evidence that the endpoint exposes. If it is unmet, the check is not applicable."""
    return Condition(function, _first_line(function), UnmetReason.EVIDENCE)


def within_limits(function: Callable[[Subject], bool]) -> Condition[Subject]:
    """Make a condition on the limits that the endpoint declares. If it is unmet, the check is not applicable."""
    return Condition(function, _first_line(function), UnmetReason.LIMIT)


def series_only(needed: Condition[Series]) -> Condition[Series]:
    """Make a condition that needs several exchanges, for example pairs of them."""
    return replace(needed, is_series_only=True)


def only_on(*apis: str) -> Callable[[Condition[Exchange]], Condition[Exchange]]:
    """Make a condition that holds on these APIs only."""
    return lambda needed: replace(needed, apis=frozenset(apis))


def _first_line(function: Callable[[Subject], bool]) -> str:
    return inspect.cleandoc(function.__doc__ or "").partition("\n")[0].rstrip(".")
