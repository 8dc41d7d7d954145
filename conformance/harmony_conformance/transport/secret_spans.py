"""Find secrets in a body: as written, in another case, escaped, in base64, or split over the values of one field of a stream.

All positions are those of the body's bytes. Letters are compared without their case.
"""

from __future__ import annotations

import json
import re
from array import array
from base64 import b64encode
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
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
_TOKEN = re.compile(
    rb'"((?:[^"\\\r\n]++|\\[^\r\n])*+)"?|((?:\r\n|\n|\r(?!\n))(?=[\r\n]))|(?:\A|(?<=[\r\n]))(?:data:|(?:id|event|retry)?:[^\r\n]*+)'
    rb"|(:)|([0-9]++)|([{\[])|([}\]])|(,)"
)
"""A string of JSON, the end of an event, a field of an event, or another sign of JSON."""
_STRING, _BLANK, _COLON, _NUMBER, _OPENS, _CLOSES, _COMMA = range(1, 8)
_ASCII = 0x80
_MOST_NESTED = 3
"""The most escapes within each other that are undone."""
_LONGEST_TESTED = 64
"""The most bytes of a secret that the quick test reads."""
_MOST_GROUPS = 500_000
"""The most groups of values that may be joined, which bounds the memory."""
_MOST_WAITING = 10_000
"""The most values whose indexes are awaited."""
_MOST_LEVELS, _MOST_INDEXES = 64, 8
"""The deepest level of JSON, and the most indexes of a value, that separate values."""


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
        parts = b'"%b"' % b'"'.join({b"", *lowered.split(b'"')})
        for _ in range(_MOST_NESTED):
            parts = _unescape(parts)
        if not any(b'"' in word or _may_be_split(word, parts) for word in self._plain):
            return []
        groups = chain(_group_values(lowered), _group_nested_values(lowered))
        return [hit for group in groups for hit in self._find_escaped(lowered, group)]

    def _find_escaped(self, lowered: bytes, segments: Sequence[Span]) -> list[Hit]:
        """Return the occurrences in the joined segments, without their escapes: of JSON in JSON, of a URL in JSON."""
        texts = [b"".join(lowered[start:end] for start, end in segments)]
        while len(texts) <= _MOST_NESTED and (plain := _unescape(texts[-1])) != texts[-1]:
            texts.append(plain)
        found = [[span for word in self._words if word in text for span in _occurrences(text, word)] for text in texts]
        while found and not found[-1]:
            found.pop()
        starts = [0, *accumulate(end - start for start, end in segments)] if found else []
        del starts[len(segments) :]
        hits: list[Hit] = []
        levels: list[_Escapes] = []
        for place, spans in enumerate(found):
            levels += [_Escapes(texts[place - 1])] if place else []
            for level in reversed(levels):
                spans[:] = map(level.locate, spans)
            hits += (_split_span(span, segments, starts) for span in spans)
        return hits


class _Escapes:
    """The escapes in a text: they map a span of the unescaped text to a span of the text."""

    def __init__(self, text: bytes) -> None:
        self._starts, self._ends, self._places = array("q"), array("q"), array("q")
        removed = 0
        for match in _ESCAPE.finditer(text):
            if len(_character(match)) == 1:
                start, end = match.span()
                self._starts.append(start)
                self._ends.append(end)
                self._places.append(start - removed)
                removed += end - start - 1

    def locate(self, span: Span) -> Span:
        """Return where a span of the unescaped text is in the text."""
        return self._locate_byte(span[0])[0], self._locate_byte(span[1] - 1)[1]

    def _locate_byte(self, place: int) -> Span:
        last = bisect_right(self._places, place) - 1
        if last < 0:
            return place, place + 1
        if self._places[last] == place:
            return self._starts[last], self._ends[last]
        start = self._ends[last] + place - self._places[last] - 1
        return start, start + 1


def _split_span(span: Span, segments: Sequence[Span], starts: Sequence[int]) -> Hit:
    """Return the spans in the body of a span of the joined segments, which begin at `starts`."""
    spans: list[Span] = []
    for place in range(bisect_right(starts, span[0]) - 1, len(segments)):
        if starts[place] >= span[1]:
            break
        (start, end), offset = segments[place], segments[place][0] - starts[place]
        begin, stop = max(start, span[0] + offset), min(end, span[1] + offset)
        if begin < stop:
            spans.append((begin, stop))
    return tuple(spans)


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


def _group_values(lowered: bytes) -> Iterator[list[Span]]:
    """Yield the values that a reader may join: by name; by name and indexes of the line; also by their position in the line."""
    by_key: dict[Hashable, list[Span]] = {}
    places: dict[tuple[tuple[bytes, bytes], ...], int] = {}
    line: list[tuple[bytes, Span]] = []
    indexes: list[tuple[bytes, bytes]] = []
    for match in _VALUE_OR_PLACE.finditer(lowered + b"\n"):
        if match[1] is not None:
            line.append((match[1], match.span(2)))
        elif match[3] is not None:
            indexes.append((match[3], match[4]))
        else:
            where, counts = places.setdefault(tuple(indexes), len(places)), dict[bytes, int]()
            for name, span in line:
                counts[name] = counts.get(name, 0) + 1
                for key in ((name,), (name, where), (name, where, counts[name]), (name, None, counts[name])):
                    _add(by_key, key, span)
            line, indexes = [], []
    yield from (group for group in by_key.values() if len(group) > 1)


def _add(by_key: dict[Hashable, list[Span]], key: Hashable, span: Span) -> None:
    if (group := by_key.get(key)) is not None:
        group.append(span)
    elif len(by_key) < _MOST_GROUPS:
        by_key[key] = [span]


@dataclass(slots=True, eq=False)
class _Level:
    """An object or a list of JSON. `path` numbers its names; of equal names in an object, the last counts."""

    parent: _Level | None
    path: int
    depth: int
    values: dict[bytes, Span] = field(default_factory=dict[bytes, Span])
    indexes: list[tuple[int, bytes, bytes]] = field(default_factory=list[tuple[int, bytes, bytes]])

    def open(self, path: int) -> _Level:
        """Return the level that begins here: this one beyond the deepest."""
        if self.depth < _MOST_LEVELS:
            return _Level(self, path, self.depth + 1)
        self.depth += 1
        return self

    def close(self) -> _Level:
        """Return the level after the end of one."""
        if self.depth <= _MOST_LEVELS:
            return self.parent or self
        self.depth -= 1
        return self


def _group_nested_values(lowered: bytes) -> Iterator[list[Span]]:
    """Yield the values that a reader of events may join: by name or path, and by the indexes of the objects around them."""
    by_key: dict[Hashable, list[Span]] = {}
    paths: dict[tuple[int, bytes], int] = {}
    level = top = _Level(None, -1, 0)
    levels: dict[_Level, None] = {}
    waiting = 0
    last, name = b"", None
    for match in _TOKEN.finditer(lowered):
        kind = match.lastindex
        if kind == _STRING and name is None:
            last = match[_STRING]
        elif kind in (_STRING, _NUMBER):
            if name is not None and name.endswith(b"index"):
                level.indexes += [(level.path, name, match[kind])] if len(level.indexes) < _MOST_INDEXES else []
            elif name is not None and kind == _STRING:
                level.values[name] = match.span(_STRING)
                levels[level] = None
                waiting += 1
            name = None
        elif kind == _COLON:
            name = _unescape(last)
        elif kind == _COMMA:
            name = None
        elif kind == _OPENS:
            path = paths.setdefault((level.path, name or b""), len(paths))
            level, name = level.open(path), None
        elif kind == _CLOSES:
            level, name = level.close(), None
        elif kind == _BLANK:
            level, name = top, None
            top.indexes.clear()
        if level is top or waiting > _MOST_WAITING:
            _add_levels(by_key, levels)
            levels, waiting = {}, 0
    _add_levels(by_key, levels)
    yield from (sorted(group) for group in by_key.values() if len(group) > 1)


def _add_levels(by_key: dict[Hashable, list[Span]], levels: Iterable[_Level]) -> None:
    for level in levels:
        indexes: list[tuple[int, bytes, bytes]] = []
        around: _Level | None = level
        while around is not None and len(indexes) < _MOST_INDEXES:
            indexes += around.indexes
            around = around.parent
        where = tuple(value for _, name, value in indexes if name == b"index")
        for name, span in level.values.items():
            for key in ((name,), (name, level.path), (name, level.path, where), *((name, one) for one in indexes)):
                _add(by_key, key, span)
            for index in indexes:
                _add(by_key, (name, level.path, index), span)
        level.values.clear()


def _may_be_split(word: bytes, parts: bytes) -> bool:
    """Return True if pieces of the word are between the quotation marks of `parts`, in any order: a quick test of its beginning."""
    if len(word) > _LONGEST_TESTED:
        word = word[:_LONGEST_TESTED]
        if word in parts:
            return True
    waiting = [end for end in range(1, len(word)) if word[:end] + b'"' in parts]
    reached = set(waiting)
    pieces = set(parts.split(b'"')) if waiting else set[bytes]()
    while waiting:
        start = waiting.pop()
        if b'"' + word[start:] in parts:
            return True
        following = {end for end in range(start + 1, len(word)) if word[start:end] in pieces} - reached
        reached |= following
        waiting += following
    return False
