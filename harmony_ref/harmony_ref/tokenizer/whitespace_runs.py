r"""Separate encoding of long white space, because tiktoken panics on 999,999 consecutive white space characters.

Its pattern matches a run of white space by `\s+(?!\S)`, which needs one place per character on a stack of 1,000,000
(tiktoken 0.14, fancy-regex). Only runs without a line break reach that rule. White space up to the last line break of
a run is matched by `\s*[\r\n]+`, which needs no stack. So a run of blanks here holds no line break and does not
precede one. The rule makes it one piece, without its last character if text follows.

A second encoding, whose pattern matches any text whole, encodes that piece. Both ends of it are ends of a piece in the
whole text as well, so the ids are those of the whole text.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

import tiktoken

from harmony_ref.tokenizer import vocabulary

LONGEST_RUN: Final = 100_000
"""Characters of a run that stays in its text; far below tiktoken's limit."""

BLANKS: Final = (
    "\t\x0b\x0c \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
r"""Unicode White_Space without CR and LF: the characters of `\s` outside `[\r\n]`."""

_RUN: Final = re.compile(f"[{BLANKS}]*")
_LINE_BREAKS: Final = frozenset("\r\n")
_BYTES_OF_BLANKS: Final = bytes(sorted(set(BLANKS.encode())))


def encode_around_runs(
    text: str,
    encode: Callable[[str], list[int]],
    *,
    breaks_before: Callable[[str, int], bool] = lambda _text, _place: False,
    longest: int,
) -> list[int]:
    """Return the ids that `encode` gives for the text, without passing it a long run of blanks.

    Args:
        text: Any text.
        encode: The encoding by o200k_base's pattern.
        breaks_before: True if `encode` splits a text at this place, as at a special token.
        longest: The maximum length of a run passed to `encode`; at least 2.
    """
    runs = list(long_runs(text, longest=longest))
    if not runs:
        return encode(text)
    ids: list[int] = []
    done = 0
    for start, end in runs:
        whole = end == len(text) or breaks_before(text, end)
        last = end if whole else end - 1
        ids += encode(text[done:start])
        ids += _blanks_only().encode_ordinary(text[start:last])
        done = last
    ids += encode(text[done:])
    return ids


def long_runs(text: str, *, longest: int) -> Iterator[tuple[int, int]]:
    """Yield the start and end of runs of more than `longest` blanks, except those before a line break.

    Few characters of a text without such runs are read: a long run covers two places that are half its length apart.
    """
    stride = longest // 2
    done = 0
    for place in range(0, len(text), stride):
        if place < done:
            continue
        match = _RUN.match(text, place)
        end = match.end() if match else place
        if end - place < stride:
            continue
        before = text[done:place]
        start = place - (len(before) - len(before.rstrip(BLANKS)))
        done = end
        if end - start > longest and text[end : end + 1] not in _LINE_BREAKS:
            yield start, end


@cache
def _blanks_only() -> tiktoken.Encoding:
    """Return an encoding that takes any text of blanks as one piece.

    Merging a piece only looks up parts of that piece, so tokens made of other bytes are not needed.
    """
    return tiktoken.Encoding(
        "o200k_base of blanks",
        pat_str=r"[\s\S]+",
        mergeable_ranks={
            token: rank for token, rank in vocabulary.ranks().items() if not token.translate(None, _BYTES_OF_BLANKS)
        },
        special_tokens={},
    )
