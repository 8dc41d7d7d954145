r"""Short literals: each record with a needle has some, and most records have none.

A line with a sure literal is searched for needles. A line with literals of both sides of a pair is, too.
Each needle implies a sure literal, or for both sides of a pair a literal of that side or a sure one.
`conformance/tests/audit/test_literals.py` proves this for each needle, by automata.

The search takes the leftmost literal, the longest one there, and continues behind it. So no literal hides the beginning of another one, but for one
case: a quote that ends a string begins none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import chain

_MODULE = "ahocorasick_rs"
"""The library of the search, which is optional."""
_PART_BYTES = 256 * 1024
"""The searches read the same part of a block while it is in the cache."""
_Find = Callable[[memoryview], list[tuple[int, int, int]]]
_GROUPS, _MORE_GROUPS, _FEW = 8, 16, 32
_ENDS = ('"', "\\")


def _cut(*pieces: str) -> tuple[str, ...]:
    return tuple(f'"{piece}{end}' for piece in pieces for end in _ENDS)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Literals that are no reason for a search unless a line has one of each side. Most lines lack the second side."""

    first: tuple[str, ...]
    second: tuple[str, ...]


INNOCENT = (
    'role": "assistant"',
    'role":"assistant"',
    r"role\": \"assistant\"",
    r"role\":\"assistant\"",
    "assistant.",
    "assistant,",
    "assistants",
    "assistant'",
)
"""The search passes over the literal `assistant` in these texts."""
_TO = ("o=", '"=')
PAIRS = (
    # `<` in front of a cut, and a bar behind it
    Pair(first=('<"', r"<\""), second=('"|', r'"\\"', r'"\\\\')),
    # `to=`, and `analysis` or `commentary` at the beginning of a text
    Pair(
        first=_TO,
        second=(*_cut("a", "c", "co", "com"), '"ana', '"comm', '"nal', '"aly', '"lys', '"omm', '"mme', '"men', '"ent'),
    ),
    # `assistant` in front of a cut, and what follows it
    Pair(
        first=('assistant"', r"assistant\""),
        second=(
            *_cut("a", "c", "co", "com", "f", "fi", "fin", "j"),
            *('"ana', '"comm', '"js', '"cod', '"fina', "mentar", '"entar', '"tary', '"ary', '"ry', '"y', *_TO),
        ),
    ),
)
SURE = (
    *("<|", r"<\|", r"<\&", r"<\\", '&"', "&\\", "&v", "&#", "&a", "&l", "amp;", "lt;", "60;", "3c;", "3C;"),
    *("u002", "u003", "u004", "u005", "u006", "u007"),  # letters, quotes and signs in escapes
    *(f"{cut}{end}" for cut in (r"\u", r"\u0", "u00") for end in _ENDS),
    *('"u0', *_cut("u")),
    # `assistant`, and its piece with the last but one letter
    *("assistant", 'assistan"', "assistan\\", '"ssistan', '"sistan', '"istan', '"stan', '"tan', '"ant', '"nt'),
    *_cut("an", "n"),
    *("token_ids", "output_ids", '"token', '"base64'),
)
"""A line with one of them is searched."""


def _is_short(literal: str) -> bool:
    return len(literal) == 2 or literal[0] in "<\\"  # noqa: PLR2004


def _dealt(literals: Iterable[str]) -> tuple[str, ...]:
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


def _sets(literals: Iterable[str]) -> tuple[tuple[str, ...], ...]:
    """Divide literals into those of two letters and the longer ones: literals of similar length are faster together."""
    distinct = dict.fromkeys(literals)
    parts = ([literal for literal in distinct if _is_short(literal) is is_short] for is_short in (True, False))
    return tuple(_dealt(part) for part in parts if part)


SETS = _sets((*SURE, *INNOCENT, *chain.from_iterable(pair.first for pair in PAIRS)))
"""The literals that are searched in all lines, set by set."""
_OTHER_LETTERS = ("token_ids", "output_ids", "amp;", "u002", "u007", "lt;", "<|", "\\u\\", "&v")
"""Sure literals that are added to the second side of a pair. The library takes another way if few letters begin all literals."""
_SURE_KIND = len(PAIRS)


def kind_of(literal: str) -> int | None:
    """Return the number of the pair whose first side has a literal, that of all pairs if it is sure, or None."""
    if literal in SURE:
        return _SURE_KIND
    return next((kind for kind, pair in enumerate(PAIRS) if literal in pair.first), None)


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
    """Yield the lines with the given literals, unless the second side of their pairs is missing."""
    view = memoryview(block)
    begin = end = done = -1
    tried = 0
    seconds = _seconds()
    for place, kind in hits:
        if place <= done:
            continue
        if place > end:
            feed = block.find(b"\n", place)
            begin, end = block.rfind(b"\n", 0, place) + 1, len(block) if feed < 0 else feed
            tried = 0
        if kind == _SURE_KIND or not tried >> kind & 1:
            tried |= 1 << kind
            if kind == _SURE_KIND or _has_any(view[begin:end], seconds[kind]):
                yield begin, end
                done = end


def _has_any(line: memoryview, searches: Iterable[_Find]) -> bool:
    for find in searches:  # noqa: SIM110
        if find(line):
            return True
    return False


def _search(literals: Iterable[str]) -> _Find:
    """Return a function that finds the number, beginning and end of each literal."""
    library = import_module(_MODULE)
    automaton = library.BytesAhoCorasick(
        [literal.encode() for literal in literals], matchkind=library.MatchKind.LeftmostLongest
    )
    find: _Find = automaton.find_matches_as_indexes
    return find


@cache
def _searches() -> tuple[tuple[_Find, list[int | None]], ...]:
    return tuple((_search(literals), [kind_of(literal) for literal in literals]) for literals in SETS)


@cache
def _seconds() -> tuple[tuple[_Find, ...], ...]:
    return tuple(
        tuple(
            _search(literals) for literals in _sets((*pair.second, *_OTHER_LETTERS)) if set(pair.second) & set(literals)
        )
        for pair in PAIRS
    )
