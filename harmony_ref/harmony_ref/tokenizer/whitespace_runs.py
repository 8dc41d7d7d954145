r"""Long white space, encoded apart from its text, because tiktoken panics where 999,999 such characters follow each other.

Its pattern takes a run of white space by `\s+(?!\S)`, which keeps one place on a stack of 1,000,000 for each character
(tiktoken 0.14, fancy-regex). Only runs without a line break come to that rule: what reaches to the last line break of a
run is taken by `\s*[\r\n]+`, which needs no stack. So a run of blanks, as it is called here, holds no line break
and is not followed by one. The rule makes it one piece, but for its last character, which it leaves to the text that
follows, if any does.

That piece is given to a second encoding, whose pattern takes any text whole. Both ends of it are ends of a piece in the
whole text as well, so the ids are those of the whole text.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Final

import tiktoken

from harmony_ref.tokenizer import vocabulary

LONGEST_RUN: Final = 100_000
"""Characters of a run that stays in its text; far below what tiktoken can take."""

BLANKS: Final = (
    "\t\x0b\x0c \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
"""Unicode White_Space but for CR and LF: what `\\s` takes and `[\\r\\n]` does not."""

_RUN: Final = re.compile(f"[{BLANKS}]*")
_LINE_BREAKS: Final = frozenset("\r\n")
_BYTES_OF_BLANKS: Final = bytes(sorted(set(BLANKS.encode())))


def encode_apart(
    text: str,
    encode: Callable[[str], list[int]],
    *,
    breaks_before: Callable[[str, int], bool] = lambda _text, _place: False,
    longest: int,
) -> list[int]:
    """The ids that `encode` gives for the text, though it is never given a long run of blanks.

    Args:
        text: any text.
        encode: the encoding by o200k_base's pattern.
        breaks_before: whether `encode` ends a text at this place and begins another, as it does at a special token.
        longest: a run of more characters than this is long; at least 2.
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
    """Where the runs of more than `longest` blanks begin and end; those before a line break are left out.

    Looks at few characters of a text that has none: a long run reaches over two places that are half its length apart.
    """
    stride = longest // 2
    done = 0
    for place in range(0, len(text), stride):
        if place < done:
            continue
        end = _end_of_run(text, place)
        if end - place < stride:
            continue
        before = text[done:place]
        start = place - (len(before) - len(before.rstrip(BLANKS)))
        done = end
        if end - start > longest and text[end : end + 1] not in _LINE_BREAKS:
            yield start, end


def _end_of_run(text: str, place: int) -> int:
    found = _RUN.match(text, place)
    return found.end() if found else place


@cache
def _blanks_only() -> tiktoken.Encoding:
    """Encodes any text of blanks as one piece.

    Merging a piece looks up nothing but parts of that piece, so the tokens made of other bytes are not missed.
    """
    return tiktoken.Encoding(
        "o200k_base of blanks",
        pat_str=r"[\s\S]+",
        mergeable_ranks={
            token: rank for token, rank in vocabulary.ranks().items() if not token.translate(None, _BYTES_OF_BLANKS)
        },
        special_tokens={},
    )
