"""When the checks are asked in the middle of a stream, and whether what they say is final. Bounded: no stream costs more than a few readings of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.judge.check import Finding
from harmony_conformance.prompts import chat_request
from harmony_conformance.transport.messages import Chunk
from harmony_proxy.repair.answer.check_verdicts import choice_of, fails
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent

PROBES = (" x", "`", '"', "\n```\n", "\n~~~\n", "\u201d ", "' ")
"""What may follow: a verdict that holds whichever does is final."""

CALL = "call/"
"""Before the index of a call, where its arguments are named as a text of a choice."""

_FREE = 256 * 1024
_READINGS = 4
"""For verdicts, so many characters are read as the stream has bytes, times this: its text is much shorter than they are."""


class Emission(Protocol):
    """What went out of a stream: as events, as short as can be, and the bytes themselves, where the whole stream is judged at its end."""

    @property
    def raw(self) -> Sequence[bytes]:
        """The bytes."""
        ...

    def events(self) -> Iterator[JsonObject]:
        """Events that say the same."""
        ...


class StreamJudge:
    """State: how many characters were read for verdicts. The exchange is the one of the stream, without its body."""

    def __init__(self, x: Exchange, *, is_lines: bool) -> None:
        self._x, self._is_lines = x, is_lines
        self._read = 0

    def framed(self, value: JsonObject) -> bytes:
        """An event of the stream."""
        data = dumps(value).encode("utf-8", "backslashreplace")
        return data + b"\n" if self._is_lines else b"data: " + data + b"\n\n"

    def may_be_called(self, function: str) -> bool:
        """Whether the request leaves a function that it declares to the model."""
        return chat_request.may_be_called(self._x.chat_request, function)

    def may_ask(self, size: int) -> bool:
        """Whether there is a reading left for a stream of so many bytes."""
        return self._read <= _FREE + _READINGS * size

    def fails(
        self, went: Emission, held: Iterable[RawEvent], checks: Collection[str], more: bytes = b""
    ) -> Mapping[str, tuple[Finding, ...]]:
        """Which of these checks fail on the answer as far as it is there, and on `more`."""
        return fails(self.exchange(went, held, more), checks)

    def exchange(self, went: Emission, held: Iterable[RawEvent], more: bytes = b"") -> Exchange:
        """The answer as far as it is there, and `more`."""
        data = b"".join((*map(self.framed, went.events()), *(piece.raw for piece in held), more))
        self._read += len(data)
        return self.with_body(data)

    @staticmethod
    def failing(x: Exchange, checks: Collection[str]) -> frozenset[str]:
        """Which of these checks fail on an exchange."""
        return frozenset(fails(x, checks))

    def fails_whole(self, went: Emission, held: Iterable[RawEvent], checks: Collection[str]) -> Collection[str]:
        """Which of these checks fail on the answer, which is complete, as it was framed."""
        return fails(self.with_body(b"".join((*went.raw, *(piece.raw for piece in held)))), checks).keys()

    def final(
        self,
        found: Mapping[str, tuple[Finding, ...]],
        went: Emission,
        held: Iterable[RawEvent],
        probes: Iterable[JsonObject],
    ) -> Mapping[str, tuple[Finding, ...]]:
        """What was found in those choices that fail in the same way whichever of these events follows."""
        held, before = tuple(held), _by_choice(found)
        final = set(before)
        for event in probes:
            now = _by_choice(self.fails(went, held, found, self.framed(event))) if final else {}
            final = {choice for choice in final if now.get(choice) == before[choice]}
        stays = {check: tuple(one for one in told if choice_of(one) in final) for check, told in found.items()}
        return {check: told for check, told in stays.items() if told}

    def with_body(self, data: bytes) -> Exchange:
        """The exchange with this answer."""
        if self._x.response is None:
            return self._x
        return replace(self._x, response=replace(self._x.response, chunks=(Chunk(at=0.0, data=data),)))


def delta_of(member: str, said: str) -> JsonObject:
    """A delta with more of a text."""
    if member.startswith(CALL):
        return {"tool_calls": [{"index": int(member.removeprefix(CALL)), "function": {"arguments": said}}]}
    return {member: said}


def _by_choice(found: Mapping[str, Iterable[Finding]]) -> dict[int, set[str]]:
    """The checks that fail in each choice."""
    failing = defaultdict[int, set[str]](set)
    for check, findings in found.items():
        for finding in findings:
            failing[choice_of(finding)].add(check)
    return failing
