"""A list that is filled when it is first looked at."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

T = TypeVar("T")

_LOOKING: Final = (
    *("__getitem__", "__iter__", "__contains__", "__reversed__", "__repr__", "__reduce_ex__"),
    *("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    *("__add__", "__mul__", "__rmul__", "__iadd__", "__imul__", "__setitem__", "__delitem__"),
    *("append", "clear", "copy", "count", "extend", "index", "insert", "pop", "remove", "reverse", "sort"),
)
"""Whatever a list can be asked or told, but for its length."""


class LateList(list[T]):
    """The list `[made(item) for item in source]`, made in constant time as long as nobody looks at it.

    openai_harmony's parser returns new lists that may be changed; a caller who reads such a member after every token,
    for its length or for nothing, is not to pay for all that was read before.
    """

    __slots__ = ("_made", "_source")

    def __init__(self, source: Sequence[object], made: Callable[[Iterable[object]], Iterable[T]]) -> None:
        super().__init__()
        self._source: Sequence[object] | None = source
        self._made = made

    def __len__(self) -> int:
        return super().__len__() if self._source is None else len(self._source)

    def __radd__(self, other: list[T]) -> list[T]:
        # list + list would take the items from where they are not yet.
        return [*other, *self]

    def fill(self) -> None:
        """Put the items in, if they are not."""
        source, self._source = self._source, None
        if source is not None:
            super().extend(self._made(source))


def _after_filling(name: str) -> Callable[..., object]:
    method: Callable[..., object] = getattr(list, name)

    def look(*lists_and_others: object, **options: object) -> object:
        for value in lists_and_others:
            if isinstance(value, LateList):
                value.fill()
        return method(*lists_and_others, **options)

    look.__name__ = name
    look.__doc__ = method.__doc__
    return look


for _name in _LOOKING:
    setattr(LateList, _name, _after_filling(_name))
