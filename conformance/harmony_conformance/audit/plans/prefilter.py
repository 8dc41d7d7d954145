"""Find the lines with a needle in a block of a log: all patterns at once by Hyperscan, or by RE2.

If a library for literals is installed, RE2 searches only the lines with literals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec

from harmony_conformance.audit.plans import literals
from harmony_conformance.audit.plans.needles import NEEDLES, TOGETHER

LIBRARIES = {"hyperscan": "hyperscan", "google-re2": "re2"}
"""The libraries that can find needles, and their modules. The first one that is installed is used."""

_Hit = tuple[int, int]
"""The offset after a match, and the place of its pattern in `_PATTERNS`."""
_TRIGGERS = tuple(dict.fromkeys((*NEEDLES, *(row[0] for row in TOGETHER))))
_PATTERNS = tuple(dict.fromkeys((*_TRIGGERS, *(pattern for row in TOGETHER for pattern in row))))
_PLACES = {pattern: place for place, pattern in enumerate(_PATTERNS)}
_ROWS = tuple(frozenset(map(_PLACES.__getitem__, row)) for row in TOGETHER)
_OTHERS = {
    _PLACES[trigger]: tuple(row[1:] for row in TOGETHER if row[0] == trigger)
    for trigger in dict.fromkeys(row[0] for row in TOGETHER)
}
"""The other patterns of each row of a trigger."""


@dataclass(frozen=True, kw_only=True)
class _Library:
    """Functions of a library.

    Attributes:
        is_fast: True if it searches for the triggers about as fast as another library searches for literals.
        hits: Yield the matches of the triggers in a block, at least one in each line that has any.
        has_needle: Return True if a line has a needle, or all patterns of a row whose trigger this is. The dictionary has the
            patterns that were searched in this line before, and whether it has them; those that are searched now are added.
    """

    is_fast: bool
    hits: Callable[[bytes], Iterable[_Hit]]
    has_needle: Callable[[bytes, int, dict[str, bool]], bool]


def installed_library() -> str:
    """Return the name of the library that finds needles, empty if none is installed."""
    return next((name for name, module in LIBRARIES.items() if find_spec(module) is not None), "")


def find_lines(block: bytes, library: str) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of each line with a needle, in their order. The end does not include the line feed."""
    if _LIBRARIES[library]().is_fast or not literals.is_installed():
        yield from find_lines_by_patterns(block, library)
        return
    for begin, end in literals.lines_with_literals(block):
        if any(find_lines_by_patterns(block[begin:end], library)):
            yield begin, end


def find_lines_by_patterns(block: bytes, library: str) -> Iterator[tuple[int, int]]:
    """Yield the same lines without a search for literals."""
    search = _LIBRARIES[library]()
    begin = end = done = -1
    line = b""
    tried: set[int] = set()
    known: dict[str, bool] = {}
    for offset, pattern in sorted(search.hits(block)):
        if offset <= done or (offset <= end and pattern in tried):
            continue
        if offset > end:
            begin, end = line_at(block, offset - 1)
            line = b""
            tried.clear()
            known.clear()
        tried.add(pattern)
        line = line or block[begin:end]
        if pattern < len(NEEDLES) or search.has_needle(line, pattern, known):
            yield begin, end
            done = end


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

    @cache
    def search(pattern: str) -> Callable[[bytes], list[_Hit]]:  # one by one: most lines lack the first of them
        return build((pattern,), hyperscan.HS_FLAG_SINGLEMATCH)

    def has(line: bytes, pattern: str, known: dict[str, bool]) -> bool:
        if pattern not in known:
            known[pattern] = bool(search(pattern)(line))
        return known[pattern]

    def has_row(line: bytes, trigger: int, known: dict[str, bool]) -> bool:
        return any(all(has(line, pattern, known) for pattern in row) for row in _OTHERS[trigger])

    return _Library(is_fast=True, hits=build(_TRIGGERS, 0), has_needle=has_row)


def _append_hit(pattern: int, _begin: int, end: int, _flags: int, found: list[_Hit]) -> None:
    found.append((end, pattern))


@cache
def _re2() -> _Library:
    re2 = import_module("re2")
    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    options.max_mem = 64 * 1024 * 1024
    any_trigger = re2.compile(b"|".join(b"(?:" + pattern.encode() + b")" for pattern in _TRIGGERS), options)
    every = re2.Set.SearchSet(options)
    for pattern in _PATTERNS:
        every.Add(pattern.encode())
    every.Compile()

    def hits(block: bytes) -> Iterator[_Hit]:
        offset = 0
        while (found := any_trigger.search(block, offset)) is not None:
            yield found.end(), len(_PATTERNS)  # the pattern is not known
            _, offset = line_at(block, found.end() - 1)

    def has_needle(line: bytes, _trigger: int, _known: dict[str, bool]) -> bool:
        present = frozenset(every.Match(line))
        return any(pattern < len(NEEDLES) for pattern in present) or any(map(present.issuperset, _ROWS))

    return _Library(is_fast=False, hits=hits, has_needle=has_needle)


_LIBRARIES: dict[str, Callable[[], _Library]] = {"hyperscan": _hyperscan, "google-re2": _re2}
