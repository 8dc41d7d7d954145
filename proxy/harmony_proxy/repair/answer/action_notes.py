"""The record of repairs: which checks were repaired, and which were left unrepaired."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from harmony_proxy.policy.actions import Actions


class ActionNotes:
    """Counts repairs per check, and stores the reason for each check that was not repaired."""

    def __init__(self) -> None:
        self.repaired: dict[str, int] = {}
        self.left: dict[str, str] = {}

    def count(self, checks: Iterable[str]) -> None:
        """Count one more repair of each of these checks."""
        for check in checks:
            self.repaired[check] = self.repaired.get(check, 0) + 1

    def leave(self, checks: Iterable[str], reason: str) -> None:
        """Record that these checks still fail. The first reason of a check is retained."""
        for check in checks:
            self.left.setdefault(check, reason)

    def acted(self, blocked: tuple[str, ...]) -> Actions:
        """Return the current record, with these blocked checks."""
        return Actions(
            repaired=MappingProxyType(dict(self.repaired)), blocked=blocked, left=MappingProxyType(dict(self.left))
        )
