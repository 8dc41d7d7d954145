"""Readable excerpts of texts of servers and models: invisible characters escaped, long texts cut, differences marked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

from harmony_ref import decode_bytes, encode
from harmony_ref.explanation.nearest_rendering import shared_length

LIMIT = 4000
"""Maximum characters of a quoted text; report.jsonl has the whole text."""
COMMAND_LIMIT = 10_000
"""Maximum characters of a command line, which is useless when cut."""
LINE_LIMIT = 600
_CONTEXT = 160
_MIN_COMMON = 8
_SHORT = 400
_MIN_SIMILARITY = 0.6
_LONGEST_PROMPT = 100_000
_MOST_TOKENS = 1_000
_SPECIAL = re.compile(r"(<\|[a-z_]{1,20}\|>)")


class StretchKind(StrEnum):
    """Kind of a stretch: equal on both sides, different, or a note on omitted text."""

    SAME = "same"
    DIFFERS = "differs"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class TextStretch:
    """A stretch of a text, or the length of an omitted stretch."""

    kind: StretchKind
    text: str


Pieces = tuple[TextStretch, ...]


def visible(value: str, *, keep: str = "") -> str:
    """Return the text with characters that are not printable written as Python escapes, except those in `keep`."""
    if value.isprintable():  # the usual case
        return value
    return "".join(char if char in keep or char.isprintable() else escape_character(char) for char in value)


def escape_character(char: str) -> str:
    """Return a character as Python escape."""
    return char.encode("unicode_escape").decode("ascii")


def line(value: str) -> str:
    """Return the text on one line of at most `LINE_LIMIT` characters."""
    return plain(cut(value, LINE_LIMIT), keep="")


def cut(value: str, limit: int = LIMIT) -> Pieces:
    """Return the text, or its beginning and end if it has more than `limit` characters."""
    return tuple(_cut(StretchKind.SAME, value, limit))


def contrast(expected: str, actual: str, limit: int = LIMIT) -> tuple[Pieces, Pieces]:
    """Return two texts with differences marked, if they are similar enough. Long equal stretches are cut to their ends.

    Texts with special tokens are compared token by token.
    """
    if max(len(expected), len(actual)) <= _SHORT and (compared := _compare(expected, actual)):
        return compared
    if "<|" in expected and "<|" in actual and (compared := _compare_tokens(expected, actual, limit)):
        return compared
    before = shared_length(expected, actual)
    after = shared_length(expected[before:][::-1], actual[before:][::-1])
    if before + after < _MIN_COMMON:
        return cut(expected, limit), cut(actual, limit)
    return _mark_middle(expected, before, after, limit), _mark_middle(actual, before, after, limit)


def plain(pieces: Iterable[TextStretch], *, keep: str = "\n") -> str:
    """Return the pieces as text."""
    return "".join(
        f"[… {piece.text} left out …]" if piece.kind is StretchKind.LEFT_OUT else visible(piece.text, keep=keep)
        for piece in pieces
    )


def _compare(expected: str, actual: str) -> tuple[Pieces, Pieces] | None:
    """Return two short texts with each difference marked, None if they are not similar."""
    matcher = SequenceMatcher(None, expected, actual, autojunk=False)
    if matcher.ratio() < _MIN_SIMILARITY:
        return None
    steps = [
        (StretchKind.SAME if step == "equal" else StretchKind.DIFFERS, a, b, c, d)
        for step, a, b, c, d in matcher.get_opcodes()
    ]
    expected_pieces = tuple(TextStretch(part, expected[a:b]) for part, a, b, _, _ in steps if a < b)
    return expected_pieces, tuple(TextStretch(part, actual[c:d]) for part, _, _, c, d in steps if c < d)


def _compare_tokens(expected: str, actual: str, limit: int) -> tuple[Pieces, Pieces] | None:
    """Return two prompts with each differing token marked, None if they are too long or not similar."""
    if max(len(expected), len(actual)) > _LONGEST_PROMPT:
        return None
    left, right = _token_texts(expected), _token_texts(actual)
    if ("".join(left), "".join(right)) != (expected, actual):  # text that tokens cannot carry
        return None
    start = shared_length(left, right)
    end = shared_length(left[start:][::-1], right[start:][::-1])
    middles = left[start : len(left) - end], right[start : len(right) - end]
    if max(map(len, middles)) > _MOST_TOKENS:
        return None
    matcher = SequenceMatcher(None, *middles, autojunk=False)
    equal = sum(block.size for block in matcher.get_matching_blocks())
    if start + end + equal < _MIN_SIMILARITY * max(len(left), len(right)):
        return None
    steps = [
        ("equal", 0, start, 0, start),
        *((step, a + start, b + start, c + start, d + start) for step, a, b, c, d in matcher.get_opcodes()),
        ("equal", len(left) - end, len(left), len(right) - end, len(right)),
    ]
    before = [(step == "equal", "".join(left[a:b])) for step, a, b, _, _ in steps if a < b]
    after = [(step == "equal", "".join(right[c:d])) for step, _, _, c, d in steps if c < d]
    return _shortened(before, limit), _shortened(after, limit)


def _token_texts(value: str) -> tuple[str, ...]:
    """Return the text of each token. Tokens that split a character are joined."""
    texts: list[str] = []
    for place, part in enumerate(_SPECIAL.split(value)):
        if place % 2:
            texts.append(part)
            continue
        pending = b""
        for token in encode(part):
            pending += decode_bytes([token])
            try:
                texts.append(pending.decode())
            except UnicodeDecodeError:
                continue
            pending = b""
    return tuple(texts)


def _shortened(stretches: Sequence[tuple[bool, str]], limit: int) -> Pieces:
    """Return the stretches of one side, without the middle of each long equal one."""
    pieces: list[TextStretch] = []
    for is_equal, value in stretches:
        if not is_equal:
            pieces += _cut(StretchKind.DIFFERS, value, limit)
        elif len(value) <= 2 * _CONTEXT:
            pieces.append(TextStretch(StretchKind.SAME, value))
        else:
            ends = value[:_CONTEXT], value[-_CONTEXT:]
            pieces += [
                TextStretch(StretchKind.SAME, ends[0]),
                _left_out(len(value) - 2 * _CONTEXT),
                TextStretch(StretchKind.SAME, ends[1]),
            ]
    return tuple(pieces)


def _mark_middle(value: str, before: int, after: int, limit: int) -> Pieces:
    """Mark the text except the first `before` and the last `after` characters."""
    end = len(value) - after
    pieces = [TextStretch(StretchKind.SAME, value[:before])]
    if before > 2 * _CONTEXT:
        pieces = [_left_out(before - _CONTEXT), TextStretch(StretchKind.SAME, value[before - _CONTEXT : before])]
    pieces += _cut(StretchKind.DIFFERS, value[before:end], limit)
    if after > 2 * _CONTEXT:
        pieces += [TextStretch(StretchKind.SAME, value[end : end + _CONTEXT]), _left_out(after - _CONTEXT)]
    else:
        pieces.append(TextStretch(StretchKind.SAME, value[end:]))
    return tuple(piece for piece in pieces if piece.text)


def _cut(part: StretchKind, value: str, limit: int) -> list[TextStretch]:
    if len(value) <= limit:
        return [TextStretch(part, value)] if value else []
    head = limit * 3 // 4
    tail = limit - head
    return [TextStretch(part, value[:head]), _left_out(len(value) - limit), TextStretch(part, value[-tail:])]


def _left_out(count: int) -> TextStretch:
    return TextStretch(StretchKind.LEFT_OUT, f"{count:,} character{'' if count == 1 else 's'}")
