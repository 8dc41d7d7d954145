"""Ranges of versions of engines: `0.11.0`, `5.23.0.dev1` and `b7551` are numbers with something around them."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class VersionRange:
    """The versions between two that are known not to have a defect. An empty bound is open."""

    after: str = ""
    below: str = ""

    def __str__(self) -> str:
        """Return the range in words, empty for all versions."""
        bounds = (f"after {self.after}" if self.after else "", f"below {self.below}" if self.below else "")
        return ", ".join(filter(None, bounds))

    def contains(self, version: str) -> bool:
        """Return True if a version is in the range, or is unknown."""
        numbers = version_numbers(version)
        return not numbers or not (
            (self.after and numbers <= version_numbers(self.after))
            or (self.below and numbers >= version_numbers(self.below))
        )


ALL_VERSIONS = VersionRange()
"""A range without bounds."""


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers of a version without zeros at the end, empty if it has none."""
    found = _NUMBERS.search(version)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
