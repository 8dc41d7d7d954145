"""Views of a value that stand outside of its class: computed once, and kept with it as its own cached properties are."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar

Value = TypeVar("Value")
View = TypeVar("View")


def once(view: Callable[[Value], View]) -> Callable[[Value], View]:
    """A pure function of one frozen value that is asked for again and again. What it tells is kept as long as the value, and pickled with it."""
    name = f"{view.__module__}.{view.__qualname__}"

    @wraps(view)
    def kept(value: Value) -> View:
        known = vars(value)
        if name not in known:
            known[name] = view(value)
        told: View = known[name]
        return told

    return kept
