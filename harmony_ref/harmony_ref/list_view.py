"""An immutable view of the first items of a growing list."""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Generic, TypeVar, cast, overload

T_co = TypeVar("T_co", covariant=True)


class Snapshot(Sequence[T_co], Generic[T_co]):
    """The first items of a list that is only ever appended to, so the snapshot never changes.

    It is made in constant time: reading a parser after every token takes linear time in total. It equals a list or
    tuple of the same items. A slice is a list; `list(snapshot)` is a mutable copy.
    """

    __slots__ = ("_items", "_length")
    __hash__ = None  # type: ignore[assignment]  # like the list it shows

    def __init__(self, items: Sequence[T_co]) -> None:
        self._items = items
        self._length = len(items)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> T_co: ...
    @overload
    def __getitem__(self, index: slice) -> list[T_co]: ...
    def __getitem__(self, index: int | slice) -> T_co | list[T_co]:
        if isinstance(index, slice):
            return [self._items[place] for place in range(*index.indices(self._length))]
        return self._items[range(self._length)[index]]

    def __iter__(self) -> Iterator[T_co]:
        return islice(self._items, self._length)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Snapshot):
            return list(self) == list(cast("Snapshot[object]", other))
        if isinstance(other, list | tuple):
            return list(self) == list(cast("Sequence[object]", other))
        return NotImplemented

    def __repr__(self) -> str:
        return repr(list(self))
