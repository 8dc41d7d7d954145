"""Texts of servers and models as a reader can take them: control characters spelled out, long ones cut, two that differ set side by side."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

LIMIT = 4000
"""Characters of one text that are shown; all of it stands in report.jsonl."""
COMMAND_LIMIT = 10_000
"""Of a command line: cut, it is of no use."""
LINE_LIMIT = 600
_AROUND = 160
_TELLING = 8
_SHORT = 400
_ALIKE = 0.6


class StretchKind(StrEnum):
    """What a piece of a text is: as it is on both sides, what differs, or our word on what was left out."""

    SAME = "same"
    DIFFERS = "differs"
    LEFT_OUT = "left out"


@dataclass(frozen=True)
class TextStretch:
    """A stretch of a text; of what was left out, how much."""

    part: StretchKind
    text: str


Pieces = tuple[TextStretch, ...]


def visible(value: str, *, keep: str = "\n") -> str:
    """The text with control, format and bidirectional characters, odd blanks and lone surrogates spelled out as in a Python string."""
    if value.isprintable():  # nearly always, and told at once
        return value
    return "".join(char if char in keep or char.isprintable() else spelled(char) for char in value)


def spelled(char: str) -> str:
    """A character that can not be seen, as its escape."""
    return char.encode("unicode_escape").decode("ascii")


def line(value: str) -> str:
    """The text on one line, of bearable length."""
    return plain(cut(value, LINE_LIMIT), keep="")


def cut(value: str, limit: int = LIMIT) -> Pieces:
    """A text, or its beginning and end where it is long."""
    return tuple(_cut(StretchKind.SAME, value, limit))


def contrast(expected: str, actual: str, limit: int = LIMIT) -> tuple[Pieces, Pieces]:
    """Two texts with what differs marked, where they are alike enough for that to help; of long equal stretches, what stands next to a difference."""
    if max(len(expected), len(actual)) <= _SHORT and (compared := _compared(expected, actual)):
        return compared
    before = _common(expected, actual)
    rest = (expected[before:], actual[before:])
    after = _common(rest[0][::-1], rest[1][::-1])
    if before + after < _TELLING:
        return cut(expected, limit), cut(actual, limit)
    return _contrasted(expected, before, after, limit), _contrasted(actual, before, after, limit)


def plain(pieces: Iterable[TextStretch], *, keep: str = "\n") -> str:
    """The pieces as text."""
    return "".join(
        f"[… {piece.text} left out …]" if piece.part is StretchKind.LEFT_OUT else visible(piece.text, keep=keep)
        for piece in pieces
    )


def _compared(expected: str, actual: str) -> tuple[Pieces, Pieces] | None:
    """Two short texts, difference by difference; None where they have little in common."""
    matcher = SequenceMatcher(None, expected, actual, autojunk=False)
    if matcher.ratio() < _ALIKE:
        return None
    steps = [
        (StretchKind.SAME if step == "equal" else StretchKind.DIFFERS, a, b, c, d)
        for step, a, b, c, d in matcher.get_opcodes()
    ]
    wanted = tuple(TextStretch(part, expected[a:b]) for part, a, b, _, _ in steps if a < b)
    return wanted, tuple(TextStretch(part, actual[c:d]) for part, _, _, c, d in steps if c < d)


def _common(one: str, other: str) -> int:
    """With how many equal characters both begin."""
    return next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def _contrasted(value: str, before: int, after: int, limit: int) -> Pieces:
    end = len(value) - after
    opening, differing, closing = value[:before], value[before:end], value[end:]
    pieces: list[TextStretch] = []
    if len(opening) > 2 * _AROUND:
        pieces += [_left_out(len(opening) - _AROUND), TextStretch(StretchKind.SAME, opening[-_AROUND:])]
    else:
        pieces.append(TextStretch(StretchKind.SAME, opening))
    pieces += _cut(StretchKind.DIFFERS, differing, limit)
    if len(closing) > 2 * _AROUND:
        pieces += [TextStretch(StretchKind.SAME, closing[:_AROUND]), _left_out(len(closing) - _AROUND)]
    else:
        pieces.append(TextStretch(StretchKind.SAME, closing))
    return tuple(piece for piece in pieces if piece.text)


def _cut(part: StretchKind, value: str, limit: int) -> list[TextStretch]:
    if len(value) <= limit:
        return [TextStretch(part, value)] if value else []
    head = limit * 3 // 4
    tail = limit - head
    return [TextStretch(part, value[:head]), _left_out(len(value) - limit), TextStretch(part, value[-tail:])]


def _left_out(count: int) -> TextStretch:
    return TextStretch(StretchKind.LEFT_OUT, f"{count:,} character{'' if count == 1 else 's'}")
