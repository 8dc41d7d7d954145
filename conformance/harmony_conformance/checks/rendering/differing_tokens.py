"""The tokens in which two texts differ."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from difflib import SequenceMatcher

from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.redactable_text import RedactableText, quote
from harmony_ref import decode, encode
from harmony_ref.explanation.nearest_rendering import shared_length

_MOST_TOKENS = 8
_MOST_COMPARED = 1000


def differing_tokens(ids: Sequence[int], other: Sequence[int]) -> tuple[RedactableText | None, RedactableText | None]:
    """Return the differing tokens of both sides, without the common prefix and suffix. None for a side without any token.

    Both sides begin at the same place. One common token in front of it remains if nothing else would be left of one side.
    """
    begin = shared_length(ids, other)
    more = _lengths_of_form(ids[begin : begin + _MOST_COMPARED], other[begin : begin + _MOST_COMPARED])
    here, there = begin + more[0], begin + more[1]
    end = shared_length(ids[here:][::-1], other[there:][::-1])
    is_one_empty = end in (len(ids) - here, len(other) - there)
    if is_one_empty and here and there and ids[here - 1] == other[there - 1]:
        here, there = here - 1, there - 1
    return _shown(ids, here, end), _shown(other, there, end)


def _shown(ids: Sequence[int], begin: int, end: int) -> RedactableText | None:
    stop = min(len(ids) - end, begin + _MOST_TOKENS)
    shown = ids[begin:stop]
    if not shown:
        return None
    more = " …" if stop < len(ids) - end else ""
    return quote(f"{format_ids(shown)!r}{more}, tokens {', '.join(map(str, shown))}{more}")


def _lengths_of_form(ids: Sequence[int], other: Sequence[int]) -> tuple[int, int]:
    """Return the numbers of tokens of both sides before the first difference in more than white space, else 0 for both."""
    blocks = SequenceMatcher(None, ids, other, autojunk=False).get_opcodes()
    differing = (block for block in blocks if block[0] != "equal")
    places = ((i, k) for _, i, j, k, m in differing if decode(ids[i:j]).split() != decode(other[k:m]).split())
    return next(places, (0, 0))


def tokens_of_text(text: str, ids: Sequence[int]) -> Sequence[int]:
    """Return those of the ids that spell a text, or the text's own ids if the text is in none of them."""
    start = decode(ids).find(text)
    if start < 0 or not text:
        return encode(text)
    first = bisect_right(range(len(ids)), start, key=lambda count: len(decode(ids[:count]))) - 1
    stop = bisect_left(range(len(ids)), start + len(text), key=lambda count: len(decode(ids[:count])))
    while stop < len(ids) and text not in decode(ids[first:stop]):  # a character of several tokens
        stop += 1
    return ids[first:stop]
