"""Find the lines with a needle in a block of a log: all patterns at once by Hyperscan, or by RE2."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from harmony_conformance.audit.plans.needles import NEEDLES, TOGETHER

LIBRARIES = {"hyperscan": "hyperscan", "google-re2": "re2"}
"""The libraries that can find needles, and their modules. The first one that is installed is used."""

_TRIGGERS = tuple(pattern.encode() for pattern in (*NEEDLES, *(row[0] for row in TOGETHER)))
_ROWS = tuple(tuple(re.compile(pattern.encode()) for pattern in row) for row in TOGETHER)
_Matches = Iterable[tuple[int, int]]
"""The number of a trigger and the offset after its match, for each match."""


def installed_library() -> str:
    """Return the name of the library that finds the needles, empty if there is none."""
    return next((name for name, module in LIBRARIES.items() if find_spec(module) is not None), "")


def find_lines(block: bytes, library: str) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of each line with a needle, in their order. The end does not include the line feed."""
    hits: dict[int, set[int]] = {}
    begin = end = 0
    for trigger, offset in sorted(_matcher(library)(block), key=_OFFSET):
        if offset > end:
            begin = block.rfind(b"\n", 0, offset - 1) + 1
            end = block.find(b"\n", offset - 1)
            end = len(block) if end < 0 else end
        hits.setdefault(begin, set()).add(trigger)
    for begin, triggers in hits.items():
        end = block.find(b"\n", begin)
        end = len(block) if end < 0 else end
        if _has_needle(block, begin, end, triggers):
            yield begin, end


def _OFFSET(match: tuple[int, int]) -> int:
    return match[1]


def _has_needle(block: bytes, begin: int, end: int, triggers: set[int]) -> bool:
    """Return True if one of the triggers is a needle alone, or together with the other patterns of its row."""
    return any(
        trigger < len(NEEDLES)
        or all(pattern.search(block, begin, end) is not None for pattern in _ROWS[trigger - len(NEEDLES)][1:])
        for trigger in triggers
    )


@cache
def _matcher(library: str) -> Callable[[bytes], _Matches]:
    return _hyperscan() if library == "hyperscan" else _re2()


def _hyperscan() -> Callable[[bytes], _Matches]:
    hyperscan = import_module("hyperscan")
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    count = len(_TRIGGERS)
    database.compile(expressions=list(_TRIGGERS), ids=list(range(count)), elements=count, flags=[0] * count)

    def match(block: bytes) -> _Matches:
        found: list[tuple[int, int]] = []
        database.scan(block, match_event_handler=_append, context=found)
        return found

    return match


def _append(trigger: int, _begin: int, end: int, _flags: int, found: list[tuple[int, int]]) -> None:
    found.append((trigger, end))


def _re2() -> Callable[[bytes], _Matches]:
    """Return a matcher by RE2. It reports a line once, with the triggers that the line has."""
    re2 = import_module("re2")
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 * 1024 * 1024
    every = re2.compile(b"|".join(b"(?:" + pattern + b")" for pattern in _TRIGGERS), options)
    single = re2.Set.SearchSet(options)
    for pattern in _TRIGGERS:
        single.Add(pattern)
    single.Compile()

    def match(block: bytes) -> _Matches:
        offset = 0
        while (found := every.search(block, offset)) is not None:
            begin = block.rfind(b"\n", 0, found.start()) + 1
            end = block.find(b"\n", found.end() - 1)
            end = len(block) if end < 0 else end
            yield from ((trigger, end) for trigger in single.Match(block[begin:end]))
            offset = end

    return match
