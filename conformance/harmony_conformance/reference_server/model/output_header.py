"""One message header as a model wrote it, well-formed or not.

A model that is off its track doubles a channel, names the recipient twice, forgets `<|start|>`, the role or
`<|message|>`, or splits a name with a blank. What it meant is read from the header's tokens: special tokens divide it,
words between them are a role, a channel, `to=…`, a content type.
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
    """What a header says.

    Attributes:
        role: `assistant` unless another one is written.
        recipient: the words behind the first `to=` that is no role's, None where there is none.
        complete: whether `<|message|>` ended it.
    """

    role: str = "assistant"
    channel: str | None = None
    recipient: str | None = None
    content_type: str | None = None
    complete: bool = True


@dataclass(frozen=True)
class _Segment:
    """The text that follows one divider; 0 stands for the beginning."""

    divider: int
    text: str


def read_header(ids: Sequence[int]) -> OutputHeader:
    """The header in the tokens before a `<|message|>`."""
    return _read(_segments(ids))


def read_headless(ids: Sequence[int]) -> tuple[OutputHeader, str]:
    """The header and the text in tokens that a stop token ended before any `<|message|>` came."""
    *before, last = _segments(ids)
    if last.divider not in _BODY_AFTER:
        return OutputHeader(complete=False), last.text
    found = _BODY_AFTER[last.divider].match(last.text)
    border = found.end() if found else 0
    header = _read([*before, _Segment(last.divider, last.text[:border])])
    return replace(header, complete=False), last.text[border:]


def may_become_a_header(ids: Sequence[int]) -> bool:
    """Whether the tokens, cut off here, may be the beginning of a header rather than text."""
    if any(token in _DIVIDERS for token in ids):
        return True
    words = _decoded(ids).split()
    return all(word.startswith("to=") or any(known.startswith(word) for known in _KNOWN_WORDS) for word in words)


def _decoded(ids: Sequence[int]) -> str:
    return tokens.decode([token for token in ids if not tokens.is_special(token)])


def _segments(ids: Sequence[int]) -> list[_Segment]:
    borders = [place for place, token in enumerate(ids) if token in _DIVIDERS]
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
            found, channel, words = _speaker(words)
            role = found or role
            channels += [channel] if channel else []
        named, kind = _recipients(words, typed=following.divider == tokens.CONSTRAIN)
        recipients += named
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
    """`commentaryto=f` as two words."""
    found = ((word, _GLUED.fullmatch(word)) for word in words)
    return [piece for word, glued in found for piece in ((glued[1], glued[2]) if glued else (word,))]


def _speaker(words: list[str]) -> tuple[str | None, str | None, list[str]]:
    """The role (None for the assistant), a channel written without its marker, and the words left."""
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
    """The names behind each `to=`, and the content type that stands last unless a `<|constrain|>` follows."""
    named: list[list[str]] = []
    spare: list[str] = []
    for word in words:
        if word.startswith("to="):
            named.append([word.removeprefix("to=")])
        elif named:
            named[-1].append(word)
        elif word.startswith("functions."):
            named.append([word])
        else:
            spare.append(word)
    kind = spare[-1] if spare else None
    if named and not typed and len(named[-1]) > 1:
        kind = named[-1].pop()
    bare = ((name[0], *(word for word in name[1:] if word not in _CONTENT_TYPES)) for name in named)
    return [" ".join(filter(None, words)) for words in bare], kind
