"""Detect repetition: a text that consists of the same text twice, or ends in a loop."""

from __future__ import annotations

import re
from collections import Counter

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import request_texts

_LEAST_LENGTH = 24  # shorter texts may repeat by chance
_LETTERS = 12  # rulers, tables and zeros may repeat
_REPETITIONS = 12
_PIECE_LENGTHS = range(12, 401)
_SENTENCE_END = re.compile(r"(?<=[.!?\u3002])\s*|\n+")
_SAME_SENTENCES, _LAST_SENTENCES = 10, 40
_TAIL = 20_000  # characters
_AGAIN = re.compile(
    r"\b(?:repeat|again|twice|times|copies|copy|echo|duplicate|loop|over and over|verse|chorus|song|lyrics|poem|mantra)\b",
    re.IGNORECASE,
)


def find_doubled_text(content: str) -> str | None:
    """Return the half of a text that is the same text twice, white space between them ignored. None otherwise."""
    text = content.strip()
    if text.find(text[:_LEAST_LENGTH], max(1, len(text) // 2 - 1)) < 0:
        return None  # the second half does not begin as the first one
    for middle in range(len(text) // 2 - 1, len(text) // 2 + 3):
        first, second = text[: max(0, middle)].strip(), text[max(0, middle) :].strip()
        if first == second and _is_significant(first, _LEAST_LENGTH):
            return first
    return None


def find_loop(content: str) -> str | None:
    """Return the piece that the end of a text repeats at least twelve times, or None."""
    pieces = (content[-length:] for length in _PIECE_LENGTHS)
    return next(
        (piece for piece in pieces if content.endswith(piece * _REPETITIONS) and _is_significant(piece, 0)), None
    )


def find_repeated_sentence(thought: str) -> str | None:
    """Return the sentence that the last sentences of a text contain at least ten times, or None."""
    sentences = [" ".join(one.split()) for one in _SENTENCE_END.split(thought[-_TAIL:])][-_LAST_SENTENCES:]
    counts = Counter(one for one in sentences if _is_significant(one, _LETTERS))
    return next((sentence for sentence, count in counts.items() if count >= _SAME_SENTENCES), None)


def is_repetition_requested(x: Exchange, text: str) -> bool:
    """Return True if the request contains the beginning of the text, or asks for a repetition."""
    return any(text.strip()[:_LEAST_LENGTH] in one or _AGAIN.search(one) for one in request_texts(x))


def _is_significant(text: str, least: int) -> bool:
    letters = [letter for letter in text if letter.isalpha()]
    return len(text) >= least and len(letters) >= _LETTERS // 2 and len(set(letters)) >= _LETTERS // 3
