"""What is told as a ratio or a difference of two contenders is measured with the two in turn, again and again: a minute between them is too long.

Measured one after the other once a round, the very same program differs from itself by more than what is looked for (mitmdump against mitmdump: the
median event by 2.1 times, on a machine with neighbours). So each group takes turns, back and forth, and the page tells the quartiles beside the median.
"""

from collections.abc import Callable

APART = "stream, 32, apart"
"""Streams that begin one after the other: none meets the rush in which all others are opened, which would decide the median event of a second."""

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("json, 32", ("app", "app+guard")),
    ("json, 32, 20 ms", ("app", "app+guard")),
    (APART, ("direct", "unguarded", "standalone")),
    (APART, ("mitmdump", "addon")),
)

Taken = dict[str, float]
Turns = dict[str, dict[str, dict[str, list[float]]]]
"""By measurement, contender and figure: one value for each turn."""


def in_turn(names: list[str], times: int, take: Callable[[str, str], Taken], say: Callable[[str], None]) -> Turns:
    """`take` measures a contender, the second, by a measurement, the first."""
    found: Turns = {}
    for what, group in GROUPS:
        if not set(group) <= set(names):
            continue
        for turn in range(times):
            say(f"in turn, {turn + 1} of {times}: {what}, {', '.join(group)}")
            for name in group if turn % 2 else group[::-1]:
                for figure, value in take(what, name).items():
                    found.setdefault(what, {}).setdefault(name, {}).setdefault(figure, []).append(round(value, 3))
    return found
