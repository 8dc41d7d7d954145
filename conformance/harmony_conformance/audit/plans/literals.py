r"""Short literals: each record with a needle has some, and most records have none.

A line with a sure literal is searched for needles. So is a line with the trigger of a rule, if it has each set of one of the rule's alternatives.
Each needle implies a sure literal, or the trigger of a rule and an alternative.
`conformance/tests/audit/test_literals.py` proves this for each needle, by automata.

The search takes the leftmost literal, the longest one there, and continues behind it. So no literal hides the beginning of another one, but for one
case: a quote that ends a string begins none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_ROLE: Final = "assistant"
_COMMENTARY: Final = "commentary"
_SECOND: Final = ("final", "analysis", _COMMENTARY, "json", "code")
_LONG: Final = 5

Literals = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Literals that are no reason for a search alone. Most lines with a trigger have no alternative: each is some sets of literals."""

    trigger: Literals
    alternatives: tuple[tuple[Literals, ...], ...]


def _cut(*pieces: str) -> Literals:
    """Return these pieces, each at the end of a string."""
    return tuple(f"{piece}{end}" for piece in dict.fromkeys(pieces) for end in ('"', "\\"))


def _starts(word: str, first: int, last: int) -> Literals:
    """Return the pieces of a word up to a cut, from `first` to `last` letters."""
    return _cut(*(f'"{word[:size]}' for size in range(first, last + 1)))


def _rests(word: str, first: int) -> Iterator[str]:
    """Yield the beginnings of the pieces behind a first cut of a word, which follows at least `first` letters."""
    for begin in range(first, len(word)):
        yield from (
            f'"{word[begin : begin + 3]}',
            *_cut(*(f'"{word[begin:end]}' for end in range(begin + 1, begin + 3))),
        )


def _pieces(word: str, place: int) -> Iterator[str]:
    """Yield the short pieces between two cuts that have a letter of a word."""
    for begin in range(1, place + 1):
        yield from (f'"{word[begin:end]}' for end in range(place + 1, min(begin + _LONG, len(word))))


def _long_pieces(word: str, last: int) -> Iterator[str]:
    """Yield the long pieces behind a cut that precedes a letter from the second to the given one."""
    yield from (f'"{word[begin : begin + _LONG]}' for begin in range(1, last + 1))


def _first_word(word: str, ends: Literals) -> tuple[tuple[Literals, ...], ...]:
    """Return the alternatives for a word at the beginning of a text, in front of `to=`. `ends`: its last piece, if all pieces are short."""
    return (
        ((f'"{word}', *_long_pieces(word, len(word) - _LONG)),),
        (_starts(word, _LONG, len(word) - 1), tuple(_rests(word, _LONG))),
        (_starts(word, 1, _LONG - 1), (*_pieces(word, _LONG - 1), f'"{word[_LONG - 1 :]}'), ends),
    )


_TO: Final = ("to=", '"o=', '"=')
RULES: Final = (
    # `<` in front of a cut, and a bar behind it
    Rule(trigger=('<"', r"<\""), alternatives=((('"|', r'"\\"', r'"\\\\'),),)),
    # `to=`, and `analysis` or `commentary` at the beginning of a text
    Rule(
        trigger=("o=", '"='),
        alternatives=(
            *_first_word("analysis", ('"ysis', '"sis', '"is', '"s')),
            *_first_word(_COMMENTARY, ('"tary', '"ary', '"ry', '"y')),
        ),
    ),
    # `assistant` in front of a cut, and what follows it
    Rule(
        trigger=(f'{_ROLE}"', rf"{_ROLE}\""),
        alternatives=(
            (tuple(f'"{word}' for word in _SECOND),),
            *((_starts(word, 1, len(word) - 1), tuple(_rests(word, 1))) for word in _SECOND),
            (_TO, (_COMMENTARY, *_rests(_COMMENTARY, 1))),
            (('"`', '"~'), ("mentar", '"entar', '"ntar', '"tary', '"ary', '"ry', '"y')),
        ),
    ),
    # a piece of `assistant` with its last but one letter, and another one
    Rule(
        trigger=('"ssistan', '"sistan', '"istan', '"stan', '"tan', '"ant', '"nt', *_cut('"an', '"n')),
        alternatives=(
            (
                (
                    *_cut(*(_ROLE[:end] for end in range(_LONG, len(_ROLE) - 1))),
                    *dict.fromkeys(piece for word in _SECOND for piece in _long_pieces(_ROLE + word, len(_ROLE) - 1)),
                    *_cut(*_pieces(_ROLE, 4)),
                ),
            ),
        ),
    ),
)
FOLLOWERS: Final = (
    *("a", "c", "f", "j", "`", "~", " c", ' "', " \\"),
    *(f"\\{letter}" for letter in map(chr, range(256)) if letter != '"'),
    *map(chr, (*range(0x09, 0x0E), *range(0x1C, 0x20), 0xC2, 0xE1, 0xE2, 0xE3)),  # other white space
)
"""The literal `assistant` is sure in front of one of them."""
INNOCENT: Final = (
    *('role": "assistant"', 'role":"assistant"', r"role\": \"assistant\"", r"role\":\"assistant\""),
    *("assistant.", "assistant,", "assistants", "assistant'"),
)
"""The search passes over `assistant` in these texts."""
SURE: Final = (
    *("<|", r"<\|", r"<\&", r"<\\", '&"', "&\\", "&v", "&#", "&a", "&l", "amp;", "lt;", "60;", "3c;", "3C;"),
    *("u002", "u003", "u004", "u005", "u006", "u007"),  # letters, quotes and signs in escapes
    *_cut(r"\u", r"\u0", "u00", '"u'),
    '"u0',
    *_cut("assistan"),
    *("oken_ids", "output_ids", '"token', '"base64'),
)
"""A line with one of them is searched."""

is_followed = re.compile(f"{_ROLE}(?:{'|'.join(map(re.escape, FOLLOWERS))})".encode("latin-1")).match
"""The match if `assistant` at a place of a block is sure."""

__all__ = ["FOLLOWERS", "INNOCENT", "RULES", "SURE", "Literals", "Rule", "is_followed"]
