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


def differing_tokens(ids: Sequence[int], other: Sequence[int]) -> RedactableText | None:
    """Return the differing tokens of one side, without the common prefix and suffix. None without any token.

    One token of the prefix remains if nothing else would be left of one side.
    """
    if not ids:
        return None
    begin = shared_length(ids, other)
    begin += _length_of_form(ids[begin : begin + _MOST_COMPARED], other[begin : begin + _MOST_COMPARED])
    end = shared_length(ids[begin:][::-1], other[begin:][::-1])
    if end in (len(ids) - begin, len(other) - begin):
        begin = max(0, begin - 1)
    stop = min(len(ids) - end, begin + _MOST_TOKENS)
    shown = ids[begin:stop]
    more = " …" if stop < len(ids) - end else ""
    return quote(f"{format_ids(shown)!r}{more}, tokens {', '.join(map(str, shown))}{more}")


def _length_of_form(ids: Sequence[int], other: Sequence[int]) -> int:
    """Return the number of tokens before the first difference in more than white space, else 0."""
    blocks = SequenceMatcher(None, ids, other, autojunk=False).get_opcodes()
    differing = (block for block in blocks if block[0] != "equal")
    places = (i for _, i, j, k, m in differing if decode(ids[i:j]).split() != decode(other[k:m]).split())
    return next(places, 0)


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
