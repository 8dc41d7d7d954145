"""What was worked out once, remembered for as long as there is room."""

from typing import Final, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_MOST: Final = 4096


class Memo(dict[K, V]):
    """A dict that forgets everything when it is full: `remember` instead of `[key] = value`, otherwise as a dict.

    For values that are asked for per message, where `functools.lru_cache` cannot leave out the long ones.
    """

    __slots__ = ()

    def remember(self, key: K, value: V) -> V:
        """Keep a value, and return it."""
        if len(self) >= _MOST:
            self.clear()
        self[key] = value
        return value
