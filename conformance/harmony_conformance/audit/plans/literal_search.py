"""Find the lines of a block that have literals of needles, by ahocorasick-rs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain

from harmony_conformance.audit.plans.literals import INNOCENT, RULES, SURE, Literals, is_followed

_MODULE = "ahocorasick_rs"
"""The library of the search, which is optional."""
_PART_BYTES = 256 * 1024
"""The searches read the same part of a block while it is in the cache."""
_Find = Callable[[memoryview], list[tuple[int, int, int]]]
_Finds = tuple[_Find, ...]
_GROUPS, _MORE_GROUPS, _FEW, _FIRST_LETTERS = 8, 16, 32, 5
MOST_LITERALS = 64
"""The library is several times slower with more."""
_ROLE = "assistant"
_SURE, _FOLLOWED = len(RULES), len(RULES) + 1
"""Kinds of literals that are no trigger of a rule."""


def is_installed() -> bool:
    """Return True if the library is installed."""
    return find_spec(_MODULE) is not None


def lines_with_literals(block: bytes) -> Iterator[tuple[int, int]]:
    """Yield beginning and end of each line that can have a needle, in their order. The end does not include the line feed."""
    view = memoryview(block)
    begin = 0
    while begin < len(block):
        feed = block.rfind(b"\n", begin, begin + _PART_BYTES)
        feed = block.find(b"\n", begin + _PART_BYTES) if feed < 0 else feed
        end = len(block) if feed < 0 else feed + 1
        hits = sorted(
            (begin + place, kind)
            for find, kinds in _searches()
            for number, place, _ in find(view[begin:end])
            if (kind := kinds[number]) is not None
        )
        yield from _lines(block, hits)
        begin = end


def _lines(block: bytes, hits: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the lines with sure literals, and those with the trigger and an alternative of a rule."""
    begin = end = done = -1
    tried = 0
    for place, kind in hits:
        if place <= done or (kind == _FOLLOWED and not is_followed(block, place)):
            continue
        if place > end:
            feed = block.find(b"\n", place)
            begin, end = block.rfind(b"\n", 0, place) + 1, len(block) if feed < 0 else feed
            tried = 0
        if kind >= _SURE or not tried >> kind & 1:
            tried |= 1 << kind
            if kind >= _SURE or _has_alternative(memoryview(block)[begin:end], kind):
                yield begin, end
                done = end


def _has_alternative(line: memoryview, rule: int) -> bool:
    firsts, alternatives = _rules()[rule]
    return _has_any(line, firsts) and any(
        all(_has_any(line, finds) for finds in alternative) for alternative in alternatives
    )


def _has_any(line: memoryview, finds: _Finds) -> bool:
    for find in finds:  # noqa: SIM110 - a loop takes half the time of a generator
        if find(line):
            return True
    return False


def _is_short(literal: str) -> bool:
    return len(literal) == 2 or literal[0] in "<\\"  # noqa: PLR2004


def _dealt(literals: Iterable[str]) -> Literals:
    """Return literals in an order that gives few false candidates: the library compares them in groups, the n-th in group n modulo 8 or 16."""
    alike = sorted(literals, key=lambda literal: (literal[1:], literal))
    groups = _GROUPS if len(alike) <= _FEW else _MORE_GROUPS
    size, larger = divmod(len(alike), groups)
    begins = [group * size + min(group, larger) for group in range(groups + 1)]
    return tuple(
        alike[begins[group] + place]
        for place in range(size + 1)
        for group in range(groups)
        if begins[group] + place < begins[group + 1]
    )


def divide(literals: Iterable[str]) -> tuple[Literals, ...]:
    """Divide literals into those of two letters and the longer ones: literals of similar length are faster together."""
    distinct = dict.fromkeys(literals)
    parts = ([literal for literal in distinct if _is_short(literal) is is_short] for is_short in (True, False))
    return tuple(_dealt(part) for part in parts if part)


SETS = divide((*SURE, _ROLE, *INNOCENT, *chain.from_iterable(rule.trigger for rule in RULES)))
"""The literals that are searched in all lines, set by set."""


FIRST_SETS = tuple(
    tuple(dict.fromkeys(literal[:_FIRST_LETTERS] for alternative in rule.alternatives for literal in alternative[0]))
    for rule in RULES
)
"""The beginnings of literals that a line lacks if it has no alternative of a rule."""
OTHER_LETTERS = ("oken_ids", "output_ids", "amp;", "u002", "u007", "lt;", "<|", "\\u\\", "&v")
"""Sure literals that are added to each set of an alternative. The library takes a slower way if few letters begin all literals."""


def _kind_of(literal: str) -> int | None:
    if literal == _ROLE:
        return _FOLLOWED
    if literal in SURE:
        return _SURE
    return next((kind for kind, rule in enumerate(RULES) if literal in rule.trigger), None)


@cache
def _searches() -> tuple[tuple[_Find, list[int | None]], ...]:
    return tuple((_search(literals), list(map(_kind_of, literals))) for literals in SETS)


@cache
def _rules() -> tuple[tuple[_Finds, tuple[tuple[_Finds, ...], ...]], ...]:
    """Return for each rule the searches for its first literals, and those for each set of its alternatives."""
    return tuple(
        (_finds(firsts), tuple(tuple(map(_finds, alternative)) for alternative in rule.alternatives))
        for rule, firsts in zip(RULES, FIRST_SETS, strict=True)
    )


def _finds(literals: Literals) -> _Finds:
    return tuple(_search(part) for part in divide((*literals, *OTHER_LETTERS)) if set(part) & set(literals))


def _search(literals: Iterable[str]) -> _Find:
    """Return a function that finds the number, beginning and end of each literal."""
    library = import_module(_MODULE)
    automaton = library.BytesAhoCorasick(
        [literal.encode() for literal in literals], matchkind=library.MatchKind.LeftmostLongest
    )
    find: _Find = automaton.find_matches_as_indexes
    return find


__all__ = ["SETS", "divide", "is_installed", "lines_with_literals"]
