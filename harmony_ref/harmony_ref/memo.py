"""A bounded cache."""

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_CAPACITY: Final = 4096


class Memo(dict[K, V]):
    """A dict that is cleared when it is full; add entries by `remember` instead of `[key] = value`.

    Used where `functools.lru_cache` does not fit, because it cannot leave out long values.
    """

    __slots__ = ()

    def remember(self, key: K, value: V) -> V:
        """Store a value, and return it."""
        if len(self) >= _CAPACITY:
            self.clear()
        self[key] = value
        return value
