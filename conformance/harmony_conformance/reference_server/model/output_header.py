"""Parse one message header, well-formed or not.

A model can double a channel, name the recipient twice, omit `<|start|>`, the role or `<|message|>`, or split a name
with a space. The header is read from its tokens: special tokens divide it. The words between them are a role, a
channel, `to=…` or a content type.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from harmony_ref import tokens

CHANNELS = ("analysis", "commentary", "final")
_ROLES = frozenset({"user", "system", "developer", "tool"})
_CONTENT_TYPES = frozenset({"json", "code", "text", "python"})
_DIVIDERS = frozenset({tokens.START, tokens.CHANNEL, tokens.CONSTRAIN})
_LEAD = re.compile(r"(?:assistant)*(analysis|commentary|final)?")
_GLUED = re.compile(r"(analysis|commentary|final)(to=.*)")
_KNOWN_WORDS = ("assistant", *CHANNELS, "to=")

_BODY_AFTER = {
    tokens.START: re.compile(
        r"\s*(?:assistant)*(?:analysis|commentary|final)?(?:\s+to=\S+)?(?:\s+(?:json|code)\b)?\s?"
    ),
    tokens.CHANNEL: re.compile(r"\s*[^\s<]*(?:\s+to=\S+)?(?:\s+(?:json|code)\b)?\s?"),
    tokens.CONSTRAIN: re.compile(r"\s*[A-Za-z]*\s?"),
}


@dataclass(frozen=True, kw_only=True)
class OutputHeader:
    """Fields of a header.

    Attributes:
        role: `assistant` unless the header has another one.
        recipient: the words after the first `to=` that does not name a role; None without one.
        complete: True if `<|message|>` ended it.
    """

    role: str = "assistant"
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None
    complete: bool = True


@dataclass(frozen=True)
class _Segment:
    """The text after one divider token; divider 0 is the beginning."""

    divider: int
    text: str


def read_header(ids: Sequence[int]) -> OutputHeader:
    """Parse the tokens before a `<|message|>`."""
    return _read(_segments(ids))


def split_incomplete_header(ids: Sequence[int]) -> tuple[OutputHeader, str]:
    """Split tokens that a stop token ended before any `<|message|>` into header and text."""
    *before, last = _segments(ids)
    if last.divider not in _BODY_AFTER:
        return OutputHeader(complete=False), last.text
    match = _BODY_AFTER[last.divider].match(last.text)
    border = match.end() if match else 0
    header = _read([*before, _Segment(last.divider, last.text[:border])])
    return replace(header, complete=False), last.text[border:]


def may_become_a_header(ids: Sequence[int]) -> bool:
    """Return True if the tokens, truncated here, can be the beginning of a header rather than text."""
    if any(token in _DIVIDERS for token in ids):
        return True
    words = _decoded(ids).split()
    return all(word.startswith("to=") or any(known.startswith(word) for known in _KNOWN_WORDS) for word in words)


def _decoded(ids: Sequence[int]) -> str:
    return tokens.decode([token for token in ids if not tokens.is_special(token)])


def _segments(ids: Sequence[int]) -> list[_Segment]:
    borders = [index for index, token in enumerate(ids) if token in _DIVIDERS]
    parts = [ids[start:end] for start, end in pairwise([*borders, len(ids)])]
    beginning = ids[: borders[0]] if borders else ids
    return [_Segment(0, _decoded(beginning)), *(_Segment(part[0], _decoded(part[1:])) for part in parts)]


def _read(segments: Sequence[_Segment]) -> OutputHeader:
    role = "assistant"
    channels: list[str] = []
    recipients: list[str] = []
    types: list[str] = []
    for segment, following in zip(segments, [*segments[1:], _Segment(0, "")], strict=True):
        words = _unglued(segment.text.split())
        if segment.divider == tokens.CHANNEL:
            channels += words[:1]
            words = words[1:]
        elif segment.divider == tokens.CONSTRAIN:
            types += words[:1]
            words = words[1:]
        elif words:
            other_role, channel, words = _speaker(words)
            role = other_role or role
            channels += [channel] if channel else []
        names, kind = _recipients(words, typed=following.divider == tokens.CONSTRAIN)
        recipients += names
        types += [kind] if kind else []
    return OutputHeader(
        role=role,
        channel=next((channel for channel in channels if channel in CHANNELS), channels[0] if channels else None),
        recipient=next((name for name in recipients if name not in _ROLES | {"assistant", "all", ""}), recipients[0])
        if recipients
        else None,
        content_type=types[0] if types else None,
    )


def _unglued(words: list[str]) -> list[str]:
    """Split `commentaryto=f` into two words."""
    matches = ((word, _GLUED.fullmatch(word)) for word in words)
    return [piece for word, glued in matches for piece in ((glued[1], glued[2]) if glued else (word,))]


def _speaker(words: list[str]) -> tuple[str | None, str | None, list[str]]:
    """Return the role (None for the assistant), a channel without its marker, and the remaining words."""
    first = words[0]
    if lead := _LEAD.fullmatch(first):
        if lead[1] is None and len(words) > 1 and words[1] in CHANNELS:
            return None, words[1], words[2:]
        return None, lead[1], words[1:]
    if first.partition(":")[0] in _ROLES:
        return first.partition(":")[0], None, words[1:]
    if first.startswith("to="):
        return None, None, words
    is_result = first.startswith("functions.") or "to=assistant" in words
    return "tool" if is_result else None, None, words[1:]


def _recipients(words: Sequence[str], *, typed: bool) -> tuple[list[str], str | None]:
    """Return the name after each `to=`, and the content type, the last word unless a `<|constrain|>` follows."""
    names: list[list[str]] = []
    spare: list[str] = []
    for word in words:
        if word.startswith("to="):
            names.append([word.removeprefix("to=")])
        elif names:
            names[-1].append(word)
        elif word.startswith("functions."):
            names.append([word])
        else:
            spare.append(word)
    kind = spare[-1] if spare else None
    if names and not typed and len(names[-1]) > 1:
        kind = names[-1].pop()
    bare = ((name[0], *(word for word in name[1:] if word not in _CONTENT_TYPES)) for name in names)
    return [" ".join(filter(None, words)) for words in bare], kind
