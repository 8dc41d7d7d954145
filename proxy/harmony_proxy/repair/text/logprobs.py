"""Log probabilities of a rewritten text: only entries of tokens that remain in it are retained, since the others would repeat the leak.

An entry is one token: its text or its bytes, since a character may take several tokens. If tokens cannot be identified, no entry is retained.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from harmony_conformance.json_value import Json, integer, items, text, value_at
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind

_BYTE = 256


@dataclass
class LogprobRewriter:
    """Selects the entries of a choice from the start of its repair.

    Attributes:
        pending: Bytes and entry of each token whose text was not emitted yet.
        position: Position of the last emitted text in these bytes.
        emitted_spans: Start and end of each emitted fragment of content in these bytes.
        is_lost: True if the entries can no longer be matched with the text. None is emitted then.
    """

    pending: list[tuple[bytes, Json]] = field(default_factory=list[tuple[bytes, Json]])
    position: int = 0
    emitted_spans: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    is_lost: bool = False

    def copy(self) -> LogprobRewriter:
        """Return a copy to roll back to."""
        return replace(self, pending=[*self.pending], emitted_spans=[*self.emitted_spans])

    def match_entries(self, entries: Iterable[Json], texts: Iterable[ParsedText]) -> list[Json]:
        """Add entries from the server, and return those that belong to the emitted texts."""
        for entry in () if self.is_lost else entries:
            token = token_bytes(entry)
            if token is None:
                self.is_lost = True
                break
            self.pending.append((token, entry))
        if self.is_lost or not self.pending:
            return []
        tokens = b"".join(token for token, _ in self.pending)
        for one in texts:
            data = one.text.encode("utf-8", "replace")
            start = tokens.find(data, self.position)
            if not data or (start < 0 and one.kind is not TextKind.CONTENT):
                continue
            if start < 0:
                self.is_lost = True
                return []
            self.position = start + len(data)
            if one.kind is TextKind.CONTENT:
                is_adjacent = bool(self.emitted_spans) and self.emitted_spans[-1][1] == start
                self.emitted_spans.append((self.emitted_spans.pop()[0] if is_adjacent else start, self.position))
        return self._take_emitted()

    def _take_emitted(self) -> list[Json]:
        """Remove the entries before the position, and return those whose bytes were all emitted as content."""
        selected: list[Json] = []
        start = done = 0
        for token, entry in self.pending:
            end = start + len(token)
            if end > self.position:
                break
            if any(first <= start and end <= stop for first, stop in self.emitted_spans):
                selected.append(entry)
            elif any(
                first < end and start < stop for first, stop in self.emitted_spans
            ):  # partly emitted: no clear assignment
                self.is_lost = True
                return selected
            start, done = end, done + 1
        del self.pending[:done]
        self.position -= start
        self.emitted_spans = [
            (max(first - start, 0), stop - start) for first, stop in self.emitted_spans if stop > start
        ]
        return selected


def entries_for_text(entries: Sequence[Json], content: str) -> list[Json]:
    """Return the entries that spell a text, selected from those of the longer original text; none if they do not match."""
    tokens = [token for entry in entries if (token := token_bytes(entry)) is not None]
    wanted = content.encode("utf-8", "replace")
    if len(tokens) < len(entries) or not wanted:
        return []
    start = b"".join(tokens).rfind(wanted)
    selected: list[Json] = []
    position = size = 0
    for token, entry in zip(tokens, entries, strict=True):
        if start <= position and position + len(token) <= start + len(wanted):
            selected.append(entry)
            size += len(token)
        position += len(token)
    return selected if start >= 0 and size == len(wanted) else []


def token_bytes(entry: Json) -> bytes | None:
    """Return the bytes of a token; None if the entry lacks them, or names the token by its number."""
    listed = [integer(byte) for byte in items(value_at(entry, "bytes"))]
    if listed:
        values = [byte for byte in listed if byte is not None and 0 <= byte < _BYTE]
        return bytes(values) if len(values) == len(listed) else None
    token = text(value_at(entry, "token"))
    return None if not token or "\ufffd" in token or token.startswith("token_id:") else token.encode("utf-8", "replace")
