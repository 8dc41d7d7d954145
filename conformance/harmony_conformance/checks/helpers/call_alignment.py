"""Align the calls that the model made with those that arrived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from harmony_conformance.apis.json_equality import equal_json
from harmony_conformance.json_value import parse_object

_PAIR, _ALIKE, _EQUAL = 1, 2, 6  # two changed calls of one name are less than one equal call


class NamedCall(Protocol):
    """A call with a name and arguments."""

    @property
    def name(self) -> str:
        """The name of the function."""
        ...

    @property
    def arguments(self) -> str:
        """The text of the arguments."""
        ...


def is_same_call(one: NamedCall, other: NamedCall) -> bool:
    """Return True if two calls have the same name, and arguments that are equal as text or as JSON."""
    return one.name == other.name and has_same_arguments(one, other)


def has_same_arguments(one: NamedCall, other: NamedCall) -> bool:
    """Return True if the arguments of two calls are equal as text or as JSON."""
    return one.arguments == other.arguments or equal_json(one.arguments, other.arguments)


def align_calls(made: Sequence[NamedCall], arrived: Sequence[NamedCall]) -> list[tuple[int | None, int | None]]:
    """Return pairs of positions in both lists, in order. A call without a counterpart is paired with None.

    Equal calls are paired first, then those of the same name or the same arguments, then any others: such a call was changed.
    """
    best = Counter[tuple[int, int]]()  # the scores of the rests of both lists
    for here in reversed(range(len(made))):
        for there in reversed(range(len(arrived))):
            paired = best[here + 1, there + 1] + _score(made[here], arrived[there])
            best[here, there] = max(paired, best[here, there + 1], best[here + 1, there])
    pairs: list[tuple[int | None, int | None]] = []
    here = there = 0
    while here < len(made) and there < len(arrived):
        if best[here, there] == best[here + 1, there + 1] + _score(made[here], arrived[there]):
            pairs.append((here, there))
            here, there = here + 1, there + 1
        elif best[here, there] == best[here, there + 1]:
            pairs.append((None, there))
            there += 1
        else:
            pairs.append((here, None))
            here += 1
    lost, added = range(here, len(made)), range(there, len(arrived))
    return [*pairs, *((one, None) for one in lost), *((None, one) for one in added)]


def _score(one: NamedCall, other: NamedCall) -> int:
    if is_same_call(one, other):
        return _EQUAL
    return _ALIKE if one.name == other.name or has_same_arguments(one, other) else _PAIR


def is_completed(arguments: str, other: str) -> bool:
    """Return True if arguments are an empty text, and the other ones an empty object."""
    return not arguments.strip() and other.strip() != "" and parse_object(other) == {}


def differ_by_completion(arguments: str, other: str) -> bool:
    """Return True if one of two arguments is an empty text, and the other one an empty object."""
    return is_completed(arguments, other) or is_completed(other, arguments)
