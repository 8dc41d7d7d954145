"""Patterns of possible leaks in growing text. They are cheap and no verdict: they decide when the checks run, and which text has to wait."""

from __future__ import annotations

import re
from itertools import product

MARKERS = ("start", "channel", "constrain", "message", "end", "return", "call", "endoftext")
OPENING = frozenset({"start", "channel", "constrain"})
TAGS = ("think", "thinking", "reasoning", "thought")
CHANNELS = ("final", "analysis", "commentary")

_LT, _GT, _BAR = r"(?:<|\\+u003[cC]|&(?:amp;)?lt;)", r"(?:>|\\+u003[eE]|&(?:amp;)?gt;)", r"(?:\||\\+u007[cC]|&vert;)"
MARKER = re.compile(rf"{_LT}{_BAR}(?P<marker>{'|'.join(MARKERS)}|reserved_\d{{6}}){_BAR}{_GT}")
"""A marker, plain or escaped for JSON or HTML."""

TAG = re.compile(rf"\s*<(?P<tag>{'|'.join(TAGS)})>")
"""Start of a text that begins with reasoning in tags."""

_SEAM_WORDS = tuple(f"assistant{word}" for word in (*CHANNELS, "json", "code"))
SEAM = re.compile(rf"assistant\s?(?P<channel>{'|'.join(CHANNELS)})")
CALL_SEAM = re.compile(
    r"(?:assistant\s?)?(?:analysis|commentary)\s?to=(?P<recipient>[\w.-]+)(?:\s*(?:json|code))?\s*(?=\{)"
)
BEGINS_GLUED = re.compile(
    r"(?:analysis|commentary)(?=[\w\"'(\[{<*#`])|final(?=[A-Z\d\"'{\[(])|assistant(?=final|analysis|commentary)"
)
"""Start of a text whose special tokens were skipped."""

ENDS_A_TEXT = re.compile(r"(?:[.!?\u2026\u3002\uff01\uff1f)}*`\]\"'\u201d\n]|[.!?] )\Z")
"""End of a text that the words of a header may follow."""

BARE_HEADER = re.compile(
    r"\s*(?:assistant)?\s?(?:analysis|commentary|final)?(?:\s*to=[\w.-]*)?(?:\s*(?:json|code))?\s*"
)
"""The words of a header without its first marker, complete or growing."""

_GROWING_HEADER = re.compile(
    r"(?:assistant\s?)?(?:(?:analysis|commentary|final)(?:\s?t(?:o(?:=[\w.-]{0,100}(?:\s+\w{0,8})?)?)?)?\s*)?"
)
_FORMS = (("<|", "|>"), ("\\u003c|", "|\\u003e"), ("&lt;|", "|&gt;"))
_ALL_MARKERS = tuple(f"{left}{name}{right}" for name, (left, right) in product((*MARKERS, "reserved_200000"), _FORMS))
_BEGINNINGS = frozenset(word[:length] for word in _ALL_MARKERS for length in range(1, len(word)))
"""Beginnings of markers. The six digits of a reserved marker are normalised before the comparison."""
_SEAM_BEGINNINGS = frozenset(word[:length] for word in _SEAM_WORDS for length in range(1, len(word) + 1))
_LONGEST = max(map(len, _ALL_MARKERS))
_LONGEST_SEAM = max(map(len, _SEAM_WORDS))
_FIRST = ("<", "\\", "&")
_DIGITS = re.compile(r"(?<=_)\d{1,6}")


_GROWING_CALL = re.compile(r"assistant\s?(?:analysis|commentary)\s?(?:t|to|to=[\w.-]{0,100}\s*\w{0,8}\s*)?\Z")
_GROWING_START = re.compile(rf"assistant(?:{'|'.join(CHANNELS)})(?:[^\W\d_a-z][\w'\u2019]*,? ?|[-|#*]+ ?)\Z")
"""Words of a header with the first word or sign of the text after them. It may be part of a longer word or a name."""
SEAM_COMPLETE = re.compile(
    rf"assistant\s?(?:{'|'.join(CHANNELS)})(?=\S|\n)|assistant(?:json|code)(?=\{{)"
    r"|assistant(?:analysis|commentary)\s?to=[\w.-]+\s*(?=\S)"
)
"""Words of a header with the beginning of the text after them."""


_LONGEST_CALL = 150


def unfinished_call(text: str) -> int | None:
    """Return the start of an incomplete call header without markers at the end of a text, if any."""
    match = _GROWING_CALL.search(text[-_LONGEST_CALL:])
    return match.start() + max(0, len(text) - _LONGEST_CALL) if match is not None else None


def unfinished_marker(text: str) -> int | None:
    """Return the start of an incomplete marker at the end of a text, if any."""
    tail = text[-_LONGEST:]
    for position, letter in enumerate(tail):
        if (
            letter in _FIRST
            and _DIGITS.sub(lambda digits: "200000"[: len(digits.group())], tail[position:]) in _BEGINNINGS
        ):
            return len(text) - len(tail) + position
    return None


def unfinished_seam(text: str, before: str) -> int | None:
    """Return the start of header words that are glued to a text and end it, if any. `before`: the preceding text."""
    start = max(0, len(text) - _LONGEST_SEAM)
    position = text.find("a", start)
    while position >= 0:
        if text[position:] in _SEAM_BEGINNINGS and is_seam(text, before, position):
            return position
        position = text.find("a", position + 1)
    start = max(0, len(text) - _LONGEST_CALL)
    growing = _GROWING_START.search(text[start:])
    return start + growing.start() if growing is not None and is_seam(text, before, start + growing.start()) else None


def is_seam(text: str, before: str, position: int) -> bool:
    """Return True if header words at this position are glued to the end of a sentence."""
    return ENDS_A_TEXT.search((before + text[:position])[-2:]) is not None


def may_be_header(text: str) -> bool:
    """Return True if a text is, or may become, the words of a header without its first marker."""
    stripped = text.lstrip()
    return _GROWING_HEADER.fullmatch(stripped) is not None or any(word.startswith(stripped) for word in _FIRST_WORDS)


_FIRST_WORDS = (*_SEAM_WORDS, *CHANNELS, *(f"<{tag}>" for tag in TAGS))
