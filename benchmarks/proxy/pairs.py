"""Ratios and differences of contenders: measured in turn, many times, or at the same time.

Measured once per round in sequence, a program differs from itself by more than the wanted difference. On a machine with neighbours, the median event
of mitmdump differs by 2.1 times. So each group alternates, and the page has quartiles besides the median. If the machine can run a whole group,
the same streams go through all of its members at the same time, event by event. Other load then affects all equally.
Their CPU time affects all equally too; it has separate figures.
"""

from collections.abc import Callable
from dataclasses import dataclass

APART = "stream, 32, apart"
"""Streams that begin one after the other. They miss the rush in which all others are opened, and their events do not come all at once."""

RUSH = "stream, 32, a rush"
"""Short ones, all begun at once, again and again: what is looked at is when the first byte comes."""
JUDGED_LATER = "json, 32, judged later"
SUSTAINED = "json, 32, sustained"
"""Long enough for what judges to see that there is traffic, and to give way to it: it looks every 50 ms."""
PAUSED = frozenset({JUDGED_LATER, RUSH})
"""The judge process is stopped until all answers are there: neither of the two costs is in the other. The streams of a rush are over before a process that begins
to judge what came before them has given way."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Contenders compared by a measurement. `together`: at the same time, else in turn; `often`: factor of the usual number of turns."""

    what: str
    names: tuple[str, ...]
    together: bool = False
    often: int = 1


GROUPS = (
    Group(what=JUDGED_LATER, names=("app", "app+guard"), often=2),
    Group(what=SUSTAINED, names=("app", "app+guard")),
    Group(what="json, 32, 20 ms", names=("app", "app+guard"), often=3),
    Group(what="stream, 1", names=("direct", "unguarded", "standalone"), together=True),
    Group(what=RUSH, names=("direct", "unguarded", "standalone"), often=5),
    Group(what=APART, names=("direct", "unguarded", "standalone"), together=True),
    Group(what=APART, names=("mitmdump", "addon")),
)

Taken = dict[str, dict[str, float]]
"""By contender and figure."""
Turns = dict[str, dict[str, dict[str, list[float]]]]
"""By measurement, contender and figure: one value for each turn."""


def in_turn(names: list[str], times: int, take: Callable[[str, list[str]], Taken], say: Callable[[str], None]) -> Turns:
    """Measure contenders in turn. `take` measures several contenders at the same time by a measurement."""
    found: Turns = {}
    for group in GROUPS:
        if not set(group.names) <= set(names):
            continue
        turns = times * group.often
        for turn in range(turns):
            how = "at the same time" if group.together else "in turn"
            say(f"{how}, {turn + 1} of {turns}: {group.what}, {', '.join(group.names)}")
            ordered = list(group.names if turn % 2 else group.names[::-1])
            for those in [ordered] if group.together else [[name] for name in ordered]:
                for name, figures in take(group.what, those).items():
                    for figure, value in figures.items():
                        found.setdefault(group.what, {}).setdefault(name, {}).setdefault(figure, []).append(
                            round(value, 3)
                        )
    return found
