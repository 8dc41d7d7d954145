"""A text that is told again: twice in one, or piece by piece until the limit."""

from __future__ import annotations

import re

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import said

_LONG_ENOUGH = 24  # characters of a text that nobody writes twice by chance
_LETTERS = 12  # of them letters: rulers, tables and zeros repeat rightly
_OFTEN = 12
_PIECES = range(12, 401)
_AGAIN = re.compile(
    r"\b(?:repeat|again|twice|times|copies|copy|echo|duplicate|loop|over and over|verse|chorus|song|lyrics|poem|mantra)\b",
    re.IGNORECASE,
)


def doubled(content: str) -> str | None:
    """The half of a text that is the same text twice, blanks between the halves left out; None where it is not."""
    text = content.strip()
    for middle in range(len(text) // 2 - 1, len(text) // 2 + 3):
        first, second = text[: max(0, middle)].strip(), text[max(0, middle) :].strip()
        if first == second and _tells(first, _LONG_ENOUGH):
            return first
    return None


def looping(content: str) -> str | None:
    """The piece that a text ends in repeating, twelve times and more; None where it does not."""
    pieces = (content[-length:] for length in _PIECES)
    return next((piece for piece in pieces if content.endswith(piece * _OFTEN) and _tells(piece, 0)), None)


def asks_again(x: Exchange, text: str) -> bool:
    """Whether the request holds the text, or asks for something to be told again."""
    return any(text.strip()[:_LONG_ENOUGH] in told or _AGAIN.search(told) for told in said(x))


def _tells(text: str, least: int) -> bool:
    letters = [letter for letter in text if letter.isalpha()]
    return len(text) >= least and len(letters) >= _LETTERS // 2 and len(set(letters)) >= _LETTERS // 3
