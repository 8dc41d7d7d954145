"""The record of repairs: which checks were repaired, and which were left unrepaired."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from harmony_proxy.policy.repair_interface import Actions


class ActionNotes:
    """Counts repairs per check, and stores the reason for each check that was not repaired."""

    def __init__(self) -> None:
        self.repair_counts: dict[str, int] = {}
        self.unrepaired_reasons: dict[str, str] = {}

    def count(self, checks: Iterable[str]) -> None:
        """Count one more repair of each of these checks."""
        for check in checks:
            self.repair_counts[check] = self.repair_counts.get(check, 0) + 1

    def record_unrepaired(self, checks: Iterable[str], reason: str) -> None:
        """Record that these checks still fail. The first reason of a check is retained."""
        for check in checks:
            self.unrepaired_reasons.setdefault(check, reason)

    def to_actions(self, blocked: tuple[str, ...]) -> Actions:
        """Return the current record, with these blocked checks."""
        return Actions(
            repair_counts=MappingProxyType(dict(self.repair_counts)),
            blocked_checks=blocked,
            unrepaired_reasons=MappingProxyType(dict(self.unrepaired_reasons)),
        )
