"""What was done about which check, as it is found out."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

from harmony_proxy.policy.actions import Actions


class ActionNotes:
    """State: how often each check was repaired, and why those were left that could not be."""

    def __init__(self) -> None:
        self.repaired: dict[str, int] = {}
        self.left: dict[str, str] = {}

    def count(self, checks: Iterable[str]) -> None:
        """These were repaired once more."""
        for check in checks:
            self.repaired[check] = self.repaired.get(check, 0) + 1

    def leave(self, checks: Iterable[str], reason: str) -> None:
        """These fail, and stay; the first reason is kept."""
        for check in checks:
            self.left.setdefault(check, reason)

    def acted(self, blocked: tuple[str, ...]) -> Actions:
        """All of it, as it is now."""
        repaired, left = MappingProxyType(dict(self.repaired)), MappingProxyType(dict(self.left))
        return Actions(repaired=repaired, blocked=blocked, left=left)
