"""Where a leak may stand in a text that grows: cheap, and no verdict. It says when the checks are to be asked, and what has to wait for them."""

from __future__ import annotations

import re
from itertools import product

MARKERS = ("start", "channel", "constrain", "message", "end", "return", "call", "endoftext")
OPENING = frozenset({"start", "channel", "constrain"})
TAGS = ("think", "thinking", "reasoning", "thought")
CHANNELS = ("final", "analysis", "commentary")

_LT, _GT, _BAR = r"(?:<|\\+u003[cC]|&(?:amp;)?lt;)", r"(?:>|\\+u003[eE]|&(?:amp;)?gt;)", r"(?:\||\\+u007[cC]|&vert;)"
MARKER = re.compile(rf"{_LT}{_BAR}(?P<marker>{'|'.join(MARKERS)}|reserved_\d{{6}}){_BAR}{_GT}")
"""A marker, spelled, or escaped for JSON or HTML."""

TAG = re.compile(rf"\s*<(?P<tag>{'|'.join(TAGS)})>")
"""What a text with a thought in tags begins with."""

_SEAM_WORDS = tuple(f"assistant{word}" for word in (*CHANNELS, "json", "code"))
SEAM = re.compile(rf"assistant\s?(?P<channel>{'|'.join(CHANNELS)})")
CALL_SEAM = re.compile(
    r"(?:assistant\s?)?(?:analysis|commentary)\s?to=(?P<recipient>[\w.-]+)(?:\s*(?:json|code))?\s*(?=\{)"
)
BEGINS_GLUED = re.compile(
    r"(?:analysis|commentary)(?=[\w\"'(\[{<*#`])|final(?=[A-Z\d\"'{\[(])|assistant(?=final|analysis|commentary)"
)
"""A text that begins like one whose special tokens were skipped."""

ENDS_A_TEXT = re.compile(r"[.!?\u2026\u3002\uff01\uff1f)}*`\]\"'\u201d]\Z")
"""What a text ends with that a seam is glued to."""

BARE_HEADER = re.compile(
    r"\s*(?:assistant)?\s?(?:analysis|commentary|final)?(?:\s*to=[\w.-]*)?(?:\s*(?:json|code))?\s*"
)
"""The words of a header that lost its first marker; also what may become such."""

_GROWING_HEADER = re.compile(
    r"(?:assistant\s?)?(?:(?:analysis|commentary|final)(?:\s?t(?:o(?:=[\w.-]{0,100}(?:\s+\w{0,8})?)?)?)?\s*)?"
)
_FORMS = (("<|", "|>"), ("\\u003c|", "|\\u003e"), ("&lt;|", "|&gt;"))
_SPELLED = tuple(f"{left}{name}{right}" for name, (left, right) in product((*MARKERS, "reserved_200000"), _FORMS))
_BEGINNINGS = frozenset(word[:length] for word in _SPELLED for length in range(1, len(word)))
"""What may become a marker. Of a reserved one the number is one of six digits, which all begin alike."""
_SEAM_BEGINNINGS = frozenset(word[:length] for word in _SEAM_WORDS for length in range(1, len(word) + 1))
_LONGEST = max(map(len, _SPELLED))
_LONGEST_SEAM = max(map(len, _SEAM_WORDS))
_FIRST = ("<", "\\", "&")
_DIGITS = re.compile(r"(?<=_)\d{1,6}")


_GOES_ON_AS_CALL = re.compile(r"assistant\s?(?:analysis|commentary)\s?(?:t|to|to=[\w.-]{0,100}\s*\w{0,8}\s*)?\Z")
SEAM_COMPLETE = re.compile(rf"assistant\s?(?:{'|'.join(CHANNELS)})(?=\S|\n)|assistant(?:json|code)(?=\{{)")
"""Words of a header with what follows them."""


def unfinished_call(text: str) -> int | None:
    """Where the end of a text begins the header of a call without its markers."""
    found = _GOES_ON_AS_CALL.search(text[-_LONGEST_CALL:])
    return found.start() + max(0, len(text) - _LONGEST_CALL) if found is not None else None


_LONGEST_CALL = 150


def unfinished_marker(text: str) -> int | None:
    """Where the end of a text begins a marker that is not complete yet."""
    tail = text[-_LONGEST:]
    for place, letter in enumerate(tail):
        if (
            letter in _FIRST
            and _DIGITS.sub(lambda digits: "200000"[: len(digits.group())], tail[place:]) in _BEGINNINGS
        ):
            return len(text) - len(tail) + place
    return None


def unfinished_seam(text: str, before: str) -> int | None:
    """Where the end of a text begins the words of a header, glued to what ends a text, and nothing follows yet. `before`: what stood before the text."""
    start = max(0, len(text) - _LONGEST_SEAM)
    place = text.find("a", start)
    while place >= 0:
        if text[place:] in _SEAM_BEGINNINGS and is_seam(text, before, place):
            return place
        place = text.find("a", place + 1)
    return None


def is_seam(text: str, before: str, place: int) -> bool:
    """Whether something may be glued to the text there."""
    return ENDS_A_TEXT.search((before + text[:place])[-1:]) is not None


def may_be_header(text: str) -> bool:
    """Whether a text may be, or become, the words of a header that lost its first marker."""
    begun = text.lstrip()
    return _GROWING_HEADER.fullmatch(begun) is not None or any(word.startswith(begun) for word in _FIRST_WORDS)


_FIRST_WORDS = (*_SEAM_WORDS, *CHANNELS, *(f"<{tag}>" for tag in TAGS))
