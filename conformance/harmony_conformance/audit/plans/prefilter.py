"""Find the lines with a needle in a block of a log: all patterns at once by Hyperscan, or by RE2.

If a library for literals is installed, only the lines with literals are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from harmony_conformance.audit.plans import literal_search
from harmony_conformance.audit.plans.needles import NEEDLES, TOGETHER

LIBRARIES = {"hyperscan": "hyperscan", "google-re2": "re2"}
"""The libraries that can find needles, and their modules. The first one that is installed is used."""

_Hit = tuple[int, int]
"""The offset after a match, and the place of its pattern in `PATTERNS`."""
TRIGGERS = tuple(dict.fromkeys((*NEEDLES, *(row[0] for row in TOGETHER))))
PATTERNS = tuple(dict.fromkeys((*TRIGGERS, *(pattern for row in TOGETHER for pattern in row))))
_ROWS = tuple(frozenset(map(PATTERNS.index, row)) for row in TOGETHER)


@dataclass(frozen=True, kw_only=True)
class _Library:
    """Functions of a library.

    Attributes:
        hits: Yield the matches of the triggers in a block, at least one in each line that has any.
        present: Return the places of the patterns that a line has.
    """

    hits: Callable[[bytes], Iterable[_Hit]]
    present: Callable[[bytes], Iterable[int]]


def installed_library() -> str:
    """Return the name of the library that finds needles, empty if none is installed."""
    return next((name for name, module in LIBRARIES.items() if find_spec(module) is not None), "")


def find_lines(block: bytes, library: str) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of each line with a needle, in their order. The end does not include the line feed."""
    if not literal_search.is_installed():
        yield from find_lines_by_patterns(block, library)
        return
    for begin, end in literal_search.lines_with_literals(block):
        if any(find_lines_by_patterns(block[begin:end], library)):
            yield begin, end


def find_lines_by_patterns(block: bytes, library: str) -> Iterator[tuple[int, int]]:
    """Yield the same lines without a search for literals."""
    search = _LIBRARIES[library]()
    end = done = -1
    for offset, pattern in sorted(search.hits(block)):
        if offset <= done or (offset <= end and pattern >= len(NEEDLES)):
            continue
        begin, end = line_at(block, offset - 1)
        if pattern < len(NEEDLES) or _has_needle(frozenset(search.present(block[begin:end]))):
            yield begin, end
            done = end


def _has_needle(present: frozenset[int]) -> bool:
    return any(pattern < len(NEEDLES) for pattern in present) or any(map(present.issuperset, _ROWS))


def line_at(block: bytes, offset: int) -> tuple[int, int]:
    """Return beginning and end of the line at an offset of a block."""
    end = block.find(b"\n", offset)
    return block.rfind(b"\n", 0, offset) + 1, len(block) if end < 0 else end


@cache
def _hyperscan() -> _Library:
    hyperscan = import_module("hyperscan")

    def build(patterns: tuple[str, ...], flags: int) -> Callable[[bytes], list[_Hit]]:
        database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        expressions = [pattern.encode() for pattern in patterns]
        count = len(patterns)
        database.compile(expressions=expressions, ids=list(range(count)), elements=count, flags=[flags] * count)

        def match(text: bytes) -> list[_Hit]:
            found: list[_Hit] = []
            database.scan(text, match_event_handler=_append_hit, context=found)
            return found

        return match

    every = cache(lambda: build(PATTERNS, hyperscan.HS_FLAG_SINGLEMATCH))  # this takes longer than a small log
    return _Library(hits=build(TRIGGERS, 0), present=lambda line: [place for _, place in every()(line)])


def _append_hit(pattern: int, _begin: int, end: int, _flags: int, found: list[_Hit]) -> None:
    found.append((end, pattern))


@cache
def _re2() -> _Library:
    re2 = import_module("re2")
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 * 1024 * 1024
    any_trigger = re2.compile(b"|".join(b"(?:" + pattern.encode() + b")" for pattern in TRIGGERS), options)
    every = re2.Set.SearchSet(options)
    for pattern in PATTERNS:
        every.Add(pattern.encode())
    every.Compile()

    def hits(block: bytes) -> Iterator[_Hit]:
        offset = 0
        while (found := any_trigger.search(block, offset)) is not None:
            yield found.end(), len(PATTERNS)  # the pattern is not known
            _, offset = line_at(block, found.end() - 1)

    present: Callable[[bytes], list[int]] = every.Match
    return _Library(hits=hits, present=present)


_LIBRARIES: dict[str, Callable[[], _Library]] = {"hyperscan": _hyperscan, "google-re2": _re2}
