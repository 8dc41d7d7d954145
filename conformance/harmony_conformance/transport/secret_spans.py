"""Find secrets in a body: as written, in another case, escaped, in base64, or split over the values of one field of a stream.

All positions are those of the body's bytes. Letters are compared without their case.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote

Span = tuple[int, int]
Hit = tuple[Span, ...]
"""The spans of one occurrence: one, or one per value that it is split over."""

_NEVER_ENCODED = re.compile(r"[\w.~-]+", re.ASCII)
_ESCAPE = re.compile(
    rb"\\+(?:u00|x)([2-7][0-9a-f])|%(?:25)*([2-7][0-9a-f])|&#x0*([2-7][0-9a-f]);|&#0*([1-9][0-9]{1,2});|\\+([\"/\\])"
)
"""An escaped ASCII character, in JSON also escaped twice, in a URL or in HTML. In lower case."""
_DECIMAL, _AS_WRITTEN = 4, 5
_SIGNS_OF_ESCAPES = ((b"\\", b"\\u00", True), (b"\\", b"\\x", True), (b"%", b"%", True), (b"&", b"&#", False))
"""The first byte of an escape, its prefix, and whether a digit from 2 to 7 follows. The search for one byte is by far the fastest."""
_SIGNS_OF_PARTS = (b"\ndata:", b"\n{", b"\r", b'"token', b"logprob")
"""Bytes of every body that has an answer in parts: events, lines of JSON, or tokens."""
_VALUE_OR_PLACE = re.compile(
    rb'"([^"\\]{1,64}+)"\s*+:\s*+"((?:[^"\\]++|\\.)*+)"|"(\w*index)"\s*+:\s*+([0-9]++)|(\n)', re.DOTALL
)
"""A member of a JSON object with a string, an index, or the end of a line."""
_ASCII = 0x80
_MOST_NESTED = 3
"""The most escapes within each other that are undone."""


def write_spellings(secret: str) -> Iterator[bytes]:
    """Yield the secret as it can be written: plain, in JSON, in a URL, and in base64 at any offset, in lower case."""
    plain = secret.encode("utf-8", "surrogatepass")
    yield plain.lower()
    if not _NEVER_ENCODED.fullmatch(secret):
        in_json = json.dumps(secret)[1:-1]
        others = (in_json, in_json.replace("/", "\\/"), json.dumps(secret, ensure_ascii=False)[1:-1])
        yield from (each.encode("utf-8", "surrogatepass").lower() for each in others)
        yield from (quote(plain, safe=safe).encode().lower() for safe in ("", "/"))
    for offset in range(3):  # as the end of `user:password`, whose length is unknown
        first, last = (offset * 8 + 5) // 6, (offset + len(plain)) * 8 // 6
        encoded = b64encode(bytes(offset) + plain)[first:last].lower()
        yield from {encoded, encoded.replace(b"+", b"-").replace(b"/", b"_")}


class SecretFinder:
    """Finds the secrets of one set."""

    def __init__(self, secrets: Iterable[str]) -> None:
        several = set(secrets)
        words = {spelling for secret in several for spelling in write_spellings(secret)}
        self._words = sorted(words, key=lambda word: (-len(word), word))
        plain = {secret.encode("utf-8", "surrogatepass").lower() for secret in several}
        self._plain = sorted(plain, key=lambda word: (-len(word), word))
        self._has_slash = any(b"/" in word for word in plain)

    @property
    def is_empty(self) -> bool:
        """True without secrets."""
        return not self._words

    def find(self, body: bytes) -> list[Hit]:
        """Return the occurrences in a body, each in one piece, plain or escaped."""
        lowered = body.lower()
        hits: list[Hit] = [(span,) for word in self._words if word in lowered for span in _occurrences(lowered, word)]
        if _has_escapes(lowered) or (self._has_slash and b"\\/" in lowered):
            hits += self._find_escaped(lowered, [(0, len(lowered))])
        return hits

    def find_split(self, body: bytes) -> list[Hit]:
        """Return the occurrences that are split over the values of equally named members, as the deltas of a stream."""
        lowered = body.lower()
        if not any(sign in lowered for sign in _SIGNS_OF_PARTS):
            return []
        parts = b'"'.join({b"", *lowered.split(b'"')}) + b'"'
        for _ in range(_MOST_NESTED):
            parts = _unescape(parts)
        if not any(b'"' in word or _may_be_split(word, parts) for word in self._plain):
            return []
        return [hit for group in _group_values(lowered) for hit in self._find_escaped(lowered, group)]

    def _find_escaped(self, lowered: bytes, segments: Sequence[Span]) -> list[Hit]:
        """Return the occurrences in the joined segments, without their escapes: of JSON in JSON, of a URL in JSON."""
        texts = [b"".join(lowered[start:end] for start, end in segments)]
        while len(texts) <= _MOST_NESTED and (plain := _unescape(texts[-1])) != texts[-1]:
            texts.append(plain)
        found = [[span for word in self._words if word in text for span in _occurrences(text, word)] for text in texts]
        if not any(found):
            return []
        places = [(at, at + 1) for start, end in segments for at in range(start, end)]
        hits: list[Hit] = []
        for text, spans in zip(texts, found, strict=True):
            hits += (_join_places(places[start:end]) for start, end in spans)
            places = _unescape_places(text, places)
        return hits


def _occurrences(text: bytes, word: bytes) -> Iterator[Span]:
    """Yield the occurrences of a word, except of a number within a longer one."""
    is_number = word.isdigit()
    start = text.find(word)
    while start >= 0:
        end = start + len(word)
        if not is_number or not (text[start - 1 : start].isdigit() or text[end : end + 1].isdigit()):
            yield start, end
        start = text.find(word, end)


def _has_escapes(lowered: bytes) -> bool:
    """Return True if an escape of an ASCII letter, digit or sign may be in the text."""
    return any(
        byte in lowered
        and prefix in lowered
        and (not has_digit or any(b"%b%d" % (prefix, digit) in lowered for digit in range(2, 8)))
        for byte, prefix, has_digit in _SIGNS_OF_ESCAPES
    )


def _unescape(lowered: bytes) -> bytes:
    return _ESCAPE.sub(_character, lowered) if b"\\" in lowered or b"%" in lowered or b"&#" in lowered else lowered


def _character(match: re.Match[bytes]) -> bytes:
    group = match.lastindex or 0
    digits = match[group]
    if group == _AS_WRITTEN:
        return digits
    code = int(digits, 10 if group == _DECIMAL else 16)
    return bytes([code]).lower() if code < _ASCII else match[0]


def _unescape_places(text: bytes, places: Sequence[Span]) -> list[Span]:
    """Return the place in the body of each byte of the unescaped text, given those of the text.

    No escape is split between segments: each value is whole JSON, and a split escape of a URL is not joined.
    """
    unescaped: list[Span] = []
    last = 0
    for match in _ESCAPE.finditer(text):
        start, end = match.span()
        unescaped += places[last:start]
        is_one = len(_character(match)) == 1
        unescaped += [(places[start][0], places[end - 1][1])] if is_one else places[start:end]
        last = end
    return [*unescaped, *places[last:]]


def _join_places(places: Sequence[Span]) -> Hit:
    joined: list[Span] = []
    for start, end in places:
        if joined and joined[-1][1] == start:
            joined[-1] = joined[-1][0], end
        else:
            joined.append((start, end))
    return tuple(joined)


def _group_values(lowered: bytes) -> Iterator[list[Span]]:
    """Yield the values that a reader may join: by name; by name and indexes of the line; also by their position in the line."""
    by_key: dict[tuple[object, ...], list[Span]] = {}
    line: list[tuple[bytes, Span]] = []
    indexes: list[tuple[bytes, bytes]] = []
    for match in _VALUE_OR_PLACE.finditer(lowered + b"\n"):
        if match[1] is not None:
            line.append((match[1], match.span(2)))
        elif match[3] is not None:
            indexes.append((match[3], match[4]))
        else:
            where, counts = tuple(indexes), dict[bytes, int]()
            for name, span in line:
                counts[name] = counts.get(name, 0) + 1
                for key in ((name,), (name, where), (name, where, counts[name]), (name, None, counts[name])):
                    by_key.setdefault(key, []).append(span)
            line, indexes = [], []
    for group in by_key.values():
        if len(group) > 1:
            yield group


def _may_be_split(word: bytes, parts: bytes) -> bool:
    """Return True if pieces of the word are between the quotation marks of `parts`, in any order: a quick test."""
    waiting = [end for end in range(1, len(word)) if word[:end] + b'"' in parts]
    reached = set(waiting)
    while waiting:
        start = waiting.pop()
        if b'"' + word[start:] in parts:
            return True
        following = {end for end in range(start + 1, len(word)) if b'"%b"' % word[start:end] in parts} - reached
        reached |= following
        waiting += following
    return False
