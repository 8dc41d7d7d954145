"""What is computed once: views of a value that stand outside of its class, and what many values have in common."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property  # noqa: PLC0414 - for others
else:

    class cached_property:  # noqa: N801 - it stands for the one of functools
        """That of functools, as it is from Python 3.12 on: the lock that it takes before costs more than most of what is computed."""

        def __init__(self, view: Callable[[Any], Any]) -> None:
            self._view = view
            self.__doc__ = view.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, value: Any, owner: type) -> Any:  # noqa: ANN401 - as in functools
            if value is None:
                return self
            told = value.__dict__[self._name] = self._view(value)
            return told


Value = TypeVar("Value")
View = TypeVar("View")
Short = TypeVar("Short", bound="str | tuple[int, ...]")


def cached_view(view: Callable[[Value], View]) -> Callable[[Value], View]:
    """A pure function of one frozen value that is asked for again and again. What it tells is kept as long as the value, and pickled with it."""
    name = f"{view.__module__}.{view.__qualname__}"

    @wraps(view)
    def kept(value: Value) -> View:
        known = vars(value)
        if name in known:
            told: View = known[name]
        else:
            told = known[name] = view(value)
        return told

    return kept


def bounded_cache(
    *, most: int, longest: int, most_long: int = 0
) -> Callable[[Callable[[Short], View]], Callable[[Short], View]]:
    """A pure function of a text, or of token ids, whose last `most` answers are remembered, and `most_long` of those to what is longer than `longest`.

    For what many exchanges have in common: prompts and answers of the same conversation over several APIs, schemas, system messages. Both bounds together
    keep its memory small, whatever a log holds.
    """

    def of(function: Callable[[Short], View]) -> Callable[[Short], View]:
        short: Callable[[Short], View] = lru_cache(maxsize=most)(function)
        long: Callable[[Short], View] = lru_cache(maxsize=most_long)(function) if most_long else function

        @wraps(function)
        def told(value: Short) -> View:
            return short(value) if len(value) <= longest else long(value)

        return told

    return of
