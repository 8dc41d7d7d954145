"""Counts with their nouns: `1 line`, `2 lines`."""

from __future__ import annotations


def number_of(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun. `plural`: the plural, if it is not the noun with an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {plural or f'{noun}s'}"
