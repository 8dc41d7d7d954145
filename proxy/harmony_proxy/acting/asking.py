"""When the checks are asked in the middle of a stream, and whether what they say is final. Bounded: no stream costs more than a few readings of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from harmony_conformance.check import Finding
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.wire import Chunk
from harmony_proxy.acting.dialect import Dialect
from harmony_proxy.acting.events import Piece
from harmony_proxy.acting.history import History
from harmony_proxy.acting.verdicts import fails

PROBES = (" x", "`", '"', "\n```\n", "\n~~~\n", "\u201d ", "' ")
"""What may follow: a verdict that holds whichever does is final."""

CALL = "call/"
"""Before the index of a call, where its arguments are named as a text of a choice."""

_FREE = 256 * 1024
_READINGS = 4
"""For verdicts, so many characters are read as the stream has bytes, times this: its text is much shorter than they are."""


class Asking:
    """State: how many characters were read for verdicts. The exchange is the one of the stream, without its body."""

    def __init__(self, x: Exchange, dialect: Dialect | None, *, is_lines: bool) -> None:
        self._x, self._dialect, self._is_lines = x, dialect, is_lines
        self._read = 0

    def framed(self, value: JsonObject) -> bytes:
        """An event of the stream."""
        data = dumps(value).encode("utf-8", "backslashreplace")
        return data + b"\n" if self._is_lines else b"data: " + data + b"\n\n"

    def may_ask(self, size: int) -> bool:
        """Whether there is a reading left for a stream of so many bytes."""
        return self._read <= _FREE + _READINGS * size

    def fails(
        self, went: History, held: Iterable[Piece], checks: Collection[str], more: bytes = b""
    ) -> Mapping[str, tuple[Finding, ...]]:
        """Which of these checks fail on the answer as far as it is there, and on `more`."""
        data = b"".join((*map(self.framed, went.events()), *(piece.raw for piece in held), more))
        self._read += len(data)
        return fails(self._with(data), checks)

    def fails_whole(self, went: History, held: Iterable[Piece], checks: Collection[str]) -> Collection[str]:
        """Which of these checks fail on the answer, which is complete, as it was framed."""
        return fails(self._with(b"".join((*went.raw, *(piece.raw for piece in held)))), checks).keys()

    def is_final(
        self, found: Collection[str], went: History, held: Iterable[Piece], places: Iterable[tuple[int, str]]
    ) -> bool:
        """Whether these checks fail whatever text follows in one of these places."""
        if self._dialect is None:
            return False
        held = tuple(held)
        for choice, member in places:
            for probe in PROBES:
                event = self.framed(self._dialect.delta(choice, _delta_of(member, probe), ()))
                if set(self.fails(went, held, found, event)) != set(found):
                    return False
        return True

    def _with(self, data: bytes) -> Exchange:
        if self._x.response is None:
            return self._x
        return replace(self._x, response=replace(self._x.response, chunks=(Chunk(at=0.0, data=data),)))


def _delta_of(member: str, said: str) -> JsonObject:
    if member.startswith(CALL):
        return {"tool_calls": [{"index": int(member.removeprefix(CALL)), "function": {"arguments": said}}]}
    return {member: said}
