r"""Encoding of long pieces: the same ids as tiktoken, in linear time, without its large allocations.

tiktoken splits a text into pieces by a pattern, and merges the bytes of each piece. A long run of letters, marks or
white space is one piece. For each byte of it, tiktoken 0.14 allocates 50 bytes. It aborts the process
if it cannot, and panics on 999,999 consecutive blanks.

1. `_regions` finds stretches without a `_BREAK`, a pair of characters that no piece contains. Other text is not read.
2. `_long_pieces` finds the pieces of a region. It applies the pattern of o200k_base to one letter per character class.
   The class of each character comes from tiktoken, because other Unicode tables differ.
3. `_merge` encodes a long piece in parts, and proves each join.

Proof of a join. Merging takes the pair of lowest rank, the leftmost of equals. Until a merge crosses the end of a
segment, the segment is merged as if it were alone. So if the ids T of a piece are correct, each two neighbours xy in T
are the ids of their own text. Conversely, let each two neighbours be that. The first merge that crosses a boundary x|y
would also cross it in the text of xy alone, which is a contradiction. So T is correct if and only if its parts are
correct and the two ids at each join are the ids of their text.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Final

import tiktoken

from harmony_ref.tokenizer import vocabulary
from harmony_ref.tokenizer.tiktoken_failures import EncodingError

LONGEST_PIECE: Final = 100_000
"""Characters of a piece that tiktoken encodes at once; also of a text that is not searched for long pieces."""

LONGEST_TEXT: Final = 100_000_000
"""Maximum characters of a text."""

BLANKS: Final = (
    "\t\x0b\x0c \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
r"""Unicode White_Space without CR and LF: the characters of `\s` outside `[\r\n]`."""

_BREAK: Final = re.compile(
    r"[!-~][ \t]|[0-9][!-/:-~]|[!-/:-~][0-9]|[A-Za-z][!-&(-/:-@\[-`{-~]|[\r\n][!-.0-~]"
    r"|[\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5\uac00-\ud7a3][\u3001\u3002\uff01\uff0c\uff1f]"
)

_SURROGATE: Final = re.compile("[\ud800-\udfff]")

_CLASSES: Final = {r"[\p{Lu}\p{Lt}]": "A", r"\p{Ll}": "a", r"[\p{Lm}\p{Lo}]": "\xaa", r"\p{M}": "\u0300", r"\p{N}": "1"}
"""The letter of each class. ASCII and U+017F, an s of a contraction, keep their own; blanks are tabs, others dashes."""

_PIECE: Final = re.compile(
    "[^\r\n0-9A-Za-z\u017f\xaa]?[A-Z\xaa\u0300]*[a-z\u017f\xaa\u0300]+(?:'(?i:s|t|re|ve|m|ll|d))?"
    "|[^\r\n0-9A-Za-z\u017f\xaa]?[A-Z\xaa\u0300]+[a-z\u017f\xaa\u0300]*(?:'(?i:s|t|re|ve|m|ll|d))?"
    "|(?P<digits>[0-9]+)"  # pieces of at most three digits
    "| ?[^\t\n\x0b\x0c\r 0-9A-Za-z\u017f\xaa]+[\r\n/]*"
    "|[\t\n\x0b\x0c\r ]*[\r\n]+"
    "|[\t\x0b\x0c ]+(?![^\t\n\x0b\x0c\r ])"
    "|[\t\x0b\x0c ]+"
)

_PARTS: Final = (1 << 14, 1 << 18, 1 << 22)
"""Characters of a part of a long piece; the next size is for pieces in which a join has no proof."""

_DROPPED: Final = (16, 64, 256)
"""Ids at the end of a part that are encoded again with the next one: other text after them could change them."""


def encode_in_pieces(text: str, encode: Callable[[str], list[int]], *, longest: int = LONGEST_PIECE) -> list[int]:
    """Return the ids that `encode`, the encoding of o200k_base, gives for the text, without passing it a long piece.

    Raises:
        EncodingError: the text is too long, or the ids of a long piece depend on text that is millions of characters away.
    """
    if len(text) > LONGEST_TEXT:
        raise _limit_error("text", f"at most {LONGEST_TEXT} characters", len(text))
    regions = list(_regions(text, longest // 2))
    if not regions:
        return encode(text)
    if not text.isascii() and _SURROGATE.search(text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # as tiktoken does
        regions = list(_regions(text, longest // 2))
    ids: list[int] = []
    done = 0
    for start, end in regions:
        for first, last in _long_pieces(text[start:end], longest):
            long_piece = text[start + first : start + last]
            ids += _encode_before(long_piece, text[done : start + first], encode)
            ids += _merge(long_piece)
            done = start + last
    return ids + encode(text[done:])


def _limit_error(subject: str, expected: str, length: int) -> EncodingError:
    reason = f"expected {expected}, got {length}"
    return EncodingError(reason, text=f"invalid {subject}: {reason}")


def has_long_piece(text: str, *, longest: int = LONGEST_PIECE) -> bool:
    """Return False if no piece of the text is long; True if one can be."""
    return any(True for _ in _regions(text, longest // 2))


def _encode_before(long_piece: str, text: str, encode: Callable[[str], list[int]]) -> list[int]:
    """Encode the text before a long piece. A blank before one that begins with none is a separate piece."""
    if text[-1:] in BLANKS and long_piece[0] not in BLANKS:
        return encode(text[:-1]) + encode(text[-1:])
    return encode(text)


def _regions(text: str, stride: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of the stretches that can hold a piece of two strides; both are ends of pieces."""
    last_break = place = 0
    while place < len(text):
        found = _BREAK.search(text, place, place + stride)
        if found is not None:
            last_break = found.start() + 1
            place += stride
            continue
        found = _BREAK.search(text, place)
        end = len(text) if found is None else found.start() + 1
        if end - last_break >= stride:
            yield last_break, end
        last_break = place = end


def _long_pieces(region: str, longest: int) -> Iterator[tuple[int, int]]:
    letters = region if region.isascii() else region.translate(_class_letters(region))
    letters = letters.translate(_CONTROLS)
    for piece in _PIECE.finditer(letters):
        if piece.end() - piece.start() > longest and piece["digits"] is None:
            yield piece.span()


_CONTROLS: Final[Mapping[int, str]] = dict.fromkeys([*range(9), *range(14, 32), 127], "-")


def _class_letters(region: str) -> dict[int, str]:
    """Return the class of each character beyond ASCII, as a translation table."""
    characters = "".join(sorted({character for character in set(region) if not character.isascii()} - {"\u017f"}))
    table = dict.fromkeys(map(ord, characters), "-")
    for pattern, letter in _CLASSES.items():
        reader = _class_reader(pattern)
        table.update(dict.fromkeys(map(ord, reader.decode(reader.encode_ordinary(characters))), letter))
    table.update(dict.fromkeys(map(ord, set(BLANKS).intersection(characters)), "\t"))
    return table


@cache
def _class_reader(pattern: str) -> tiktoken.Encoding:
    """Return an encoding that drops the characters that the pattern does not match."""
    single_bytes = {bytes([byte]): byte for byte in range(256)}
    return tiktoken.Encoding("class", pat_str=pattern, mergeable_ranks=single_bytes, special_tokens={})


@cache
def _one_piece() -> tiktoken.Encoding:
    """Return o200k_base with a pattern that takes any text as one piece."""
    return tiktoken.Encoding(
        "o200k_base in one piece", pat_str=r"[\s\S]+", mergeable_ranks=vocabulary.ranks(), special_tokens={}
    )


def _merge(piece: str) -> list[int]:
    """Return the ids of one piece, encoded in parts as small as the proof of each join allows."""
    for size in _PARTS:
        ids = _merge_parts(piece, size)
        if ids is not None:
            return ids
    raise _limit_error("run", f"ids that depend on at most {_PARTS[-1]} characters", len(piece))


def _merge_parts(piece: str, size: int) -> list[int] | None:
    """Return the ids of one piece; None if a join has no proof with parts of this size."""
    encode = _one_piece().encode_ordinary
    ids: list[int] = []
    start = 0
    part = encode(piece[:size])
    while start + size < len(piece):
        for dropped in _DROPPED:
            kept = _without_end(part, dropped)
            end = start + size - len(_text(part[len(kept) :]))
            following = encode(piece[end : end + size])
            if kept and _is_joined(kept, following):
                break
        else:
            return None
        ids += kept
        start, part = end, following
    return ids + part


def _without_end(part: list[int], dropped: int) -> list[int]:
    """Return the ids without at least the last `dropped`, so that they end at the end of a character."""
    count = max(len(part) - dropped, 0)
    while count and _continues_character(part[count]):
        count -= 1
    return part[:count]


def _is_joined(left: list[int], right: list[int]) -> bool:
    """Return True if the two ids at the join, with the rest of their characters, are the ids of their text."""
    first = len(left) - 1
    while _continues_character(left[first]):
        first -= 1
    end = 1
    while end < len(right) and _continues_character(right[end]):
        end += 1
    window = left[first:] + right[:end]
    return _one_piece().encode_ordinary(_text(window)) == window


def _continues_character(token: int) -> bool:
    return 0x80 <= _one_piece().decode_single_token_bytes(token)[0] < 0xC0  # noqa: PLR2004 - continuation bytes of UTF-8


def _text(ids: list[int]) -> str:
    return _one_piece().decode_bytes(ids).decode("utf-8")
