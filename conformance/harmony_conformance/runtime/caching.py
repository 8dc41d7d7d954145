"""Caches: derived values that are stored with their frozen value, and bounded caches for values that recur."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property  # noqa: PLC0414 - for others
else:

    class cached_property:  # noqa: N801 - replaces the one of functools
        """A backport of Python 3.12's `functools.cached_property`. The older one takes a lock, which costs more than most views."""

        def __init__(self, view: Callable[[Any], Any]) -> None:
            self._view = view
            self.__doc__ = view.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self._name = name

        def __get__(self, value: Any, owner: type) -> Any:  # noqa: ANN401 - as in functools
            if value is None:
                return self
            result = value.__dict__[self._name] = self._view(value)
            return result


Value = TypeVar("Value")
View = TypeVar("View")
Short = TypeVar("Short", bound="str | tuple[int, ...]")


def cached_view(view: Callable[[Value], View]) -> Callable[[Value], View]:
    """Decorate a pure function of one frozen value: store its result in the value, with which it is pickled."""
    name = f"{view.__module__}.{view.__qualname__}"

    @wraps(view)
    def cached(value: Value) -> View:
        attributes = vars(value)
        if name not in attributes:
            attributes[name] = view(value)
        result: View = attributes[name]
        return result

    return cached


def share_view(view: Callable[[Value], object], source: Value, target: Value) -> None:
    """Store the view of one value in another one that has the same view."""
    vars(target)[f"{view.__module__}.{view.__qualname__}"] = view(source)


_SHORT_ENTRIES = 256


def bounded_cache(
    *, max_length: int, max_long_entries: int = 0
) -> Callable[[Callable[[Short], View]], Callable[[Short], View]]:
    """Decorate a pure function of a text or of token ids with a cache of bounded memory.

    Use it for values that many exchanges share: schemas, system messages, prompts and answers of one conversation over several APIs.

    Args:
        max_length: The largest length of a short value, in characters or tokens. Results for 256 of them are cached.
        max_long_entries: The number of cached results for longer values.
    """

    def decorate(function: Callable[[Short], View]) -> Callable[[Short], View]:
        short: Callable[[Short], View] = lru_cache(maxsize=_SHORT_ENTRIES)(function)
        long: Callable[[Short], View] = lru_cache(maxsize=max_long_entries)(function) if max_long_entries else function

        @wraps(function)
        def cached(value: Short) -> View:
            return short(value) if len(value) <= max_length else long(value)

        return cached

    return decorate
