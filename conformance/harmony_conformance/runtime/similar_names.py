"""The name that was perhaps meant, for messages about one that nothing has."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def suggestion(word: str, names: Iterable[str]) -> str:
    """Return the question whether the most similar name was meant. Empty if none is similar."""
    similar = get_close_matches(word, [*names], n=1)
    return f"; did you mean {similar[0]}?" if similar else ""
