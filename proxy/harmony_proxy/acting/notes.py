"""What was done about which check, as it is found out."""

from __future__ import annotations

from collections.abc import Iterable


class Notes:
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
