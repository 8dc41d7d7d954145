"""Log probabilities of a text that is told anew: only tokens of what it is now stay, or what was taken out of it would still stand there.

An entry is one token: its text, or the bytes of it (a character may take several tokens). Where the tokens can not be told from each other, none stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from harmony_conformance.json_value import Json, at, items, number, text
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind

_BYTE = 256


@dataclass
class LogprobRewriter:
    """State, of a choice from where it is told anew: entries that wait for their text to be told, and where the text stands that was told last.

    `place` counts the bytes that wait up to there, `told` has the pieces of content among them that were told: from, to.
    """

    waiting: list[tuple[bytes, Json]] = field(default_factory=list[tuple[bytes, Json]])
    place: int = 0
    told: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_lost: bool = False

    def copy(self) -> LogprobRewriter:
        """The same, to go back to."""
        return replace(self, waiting=[*self.waiting], told=[*self.told])

    def due(self, entries: Iterable[Json], said: Iterable[ParsedText]) -> list[Json]:
        """The server tells more entries, and the client is told this; the entries that go with it."""
        if not self.is_lost:
            self._hear(entries)
        if self.is_lost or not self.waiting:
            return []
        spelled = b"".join(piece for piece, _ in self.waiting)
        for one in said:
            data = one.text.encode("utf-8", "replace")
            found = spelled.find(data, self.place)
            if not data or (found < 0 and one.kind is not TextKind.CONTENT):
                continue
            if found < 0:
                self.is_lost = True
                return []
            if one.kind is TextKind.CONTENT:
                self._add(found, found + len(data))
            self.place = found + len(data)
        return self._taken()

    def _hear(self, entries: Iterable[Json]) -> None:
        for entry in entries:
            piece = bytes_of(entry)
            if piece is None:
                self.is_lost = True
                return
            self.waiting.append((piece, entry))

    def _add(self, start: int, end: int) -> None:
        if self.told and self.told[-1][1] == start:
            start, _ = self.told.pop()
        self.told.append((start, end))

    def _taken(self) -> list[Json]:
        """The entries all of whose bytes were told as content. Those before the place are done with."""
        kept: list[Json] = []
        start = done = 0
        for piece, entry in self.waiting:
            end = start + len(piece)
            if end > self.place:
                break
            if any(begun <= start and end <= over for begun, over in self.told):
                kept.append(entry)
            elif any(begun < end and start < over for begun, over in self.told):  # of both: whose it is can not be said
                self.is_lost = True
                return kept
            start, done = end, done + 1
        del self.waiting[:done]
        self.place -= start
        self.told = [(max(begun - start, 0), over - start) for begun, over in self.told if over > start]
        return kept


def spelled_by(entries: Sequence[Json], content: str) -> list[Json]:
    """The entries that spell a text, out of those of all that it was cut from; none where no run of them does."""
    pieces = [bytes_of(entry) for entry in entries]
    known = [piece for piece in pieces if piece is not None]
    wanted = content.encode("utf-8", "replace")
    if len(known) < len(pieces) or not wanted:
        return []
    start = b"".join(known).rfind(wanted)
    kept: list[Json] = []
    place = size = 0
    for piece, entry in zip(known, entries, strict=True):
        if start <= place and place + len(piece) <= start + len(wanted):
            kept.append(entry)
            size += len(piece)
        place += len(piece)
    return kept if start >= 0 and size == len(wanted) else []


def bytes_of(entry: Json) -> bytes | None:
    """The bytes of a token, None where they are not told, or the token is named by its number."""
    listed = [number(byte) for byte in items(at(entry, "bytes"))]
    if listed:
        known = [byte for byte in listed if byte is not None and 0 <= byte < _BYTE]
        return bytes(known) if len(known) == len(listed) else None
    token = text(at(entry, "token"))
    return None if not token or "\ufffd" in token or token.startswith("token_id:") else token.encode("utf-8", "replace")
