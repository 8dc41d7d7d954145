"""Runs the checks during a stream, and decides whether their verdicts are final. No stream costs more than a few readings of itself."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.judge.check import Finding
from harmony_conformance.transport.messages import Chunk
from harmony_proxy.policy.repair_interface import Caller, call_here, caller_for
from harmony_proxy.repair.answer.check_verdicts import choice_of, find_failures
from harmony_proxy.repair.answer.other_clients import texts_of
from harmony_proxy.repair.answer.strict_leaks import find_text_leaks, may_become_leak
from harmony_proxy.repair.request_facts import share_request, with_last_request
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent

PROBES = (" x", "`", '"', "\n```\n", "\n~~~\n", "\u201d ", "' ")
"""Texts that may follow. A verdict that is the same after each of them is final."""

SIGNS = re.compile(
    rb"[<&\\]|assistant|analysis|commentary|final|\[DONE\]|\"name\"|generated_text"
    rb"|\"(?:finish_reason|done)\"\s*:\s*[\"t]|response\.(?![\w.]{0,60}\.delta\")"
)
"""Bytes of an event that may begin, continue or end a leak. An event without them is not judged, if none waits for a verdict."""

CALL_PREFIX = "call/"
"""Prefix of a call's index in the name of its arguments among the texts of a choice."""

_FREE = 256 * 1024
_READINGS = 4
"""Limit of characters that are read for verdicts, per byte of the stream. The text of a stream is much shorter than its bytes."""


_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


class Emission(Protocol):
    """The emitted part of a stream: as joined events, and as raw bytes if the complete stream is judged at its end."""

    @property
    def raw(self) -> Sequence[bytes]:
        """Return the emitted bytes."""
        ...

    def events(self) -> Iterator[JsonObject]:
        """Yield events with the same content."""
        ...


class StreamJudge:
    """Judges one stream. Counts the characters that were read for verdicts. The exchange is that of the stream, without its body."""

    def __init__(
        self, x: Exchange, *, is_lines: bool, blocked: Collection[str] = (), call_apart: Caller = call_here
    ) -> None:
        self._x, self._is_lines, self._blocked, self._call_apart = x, is_lines, blocked, call_apart
        self._has_large_request = caller_for(x, call_apart) is not call_here
        self._read = 0

    @property
    def api(self) -> str:
        """Return the name of the API."""
        return self._x.api

    def frame_event(self, value: JsonObject) -> bytes:
        """Return the bytes of an event in the format of the stream."""
        data = dumps(value).encode("utf-8", "backslashreplace")
        return data + b"\n" if self._is_lines else b"data: " + data + b"\n\n"

    def may_read_again(self, size: int) -> bool:
        """Return True if a stream of `size` bytes may be read once more."""
        return self._read <= _FREE + _READINGS * size

    def find_failures(
        self, emission: Emission, buffered: Iterable[RawEvent], checks: Collection[str], more: bytes = b""
    ) -> Mapping[str, tuple[Finding, ...]]:
        """Return the checks that fail on the answer so far, followed by `more`, with their findings."""
        return self.failures_of(self.exchange(emission, buffered, more), checks)

    def exchange(self, emission: Emission, buffered: Iterable[RawEvent], more: bytes = b"") -> Exchange:
        """Return the exchange with the answer so far, followed by `more`."""
        data = b"".join((*map(self.frame_event, emission.events()), *(piece.raw for piece in buffered), more))
        self._read += len(data)
        return self.with_body(data)

    def failing_checks(self, x: Exchange, checks: Collection[str]) -> frozenset[str]:
        """Return the ids of the checks that fail on an exchange."""
        return frozenset(self._call(find_failures, x, checks))

    def failing_checks_of_stream(
        self, emission: Emission, buffered: Iterable[RawEvent], checks: Collection[str]
    ) -> Collection[str]:
        """Return the ids of the checks that fail on the complete answer, in its original framing."""
        data = b"".join((*emission.raw, *(piece.raw for piece in buffered)))
        return self.failures_of(self.with_body(data), checks).keys()

    def failures_of(self, x: Exchange, checks: Collection[str]) -> Mapping[str, tuple[Finding, ...]]:
        """Return the checks that fail on an exchange, with their findings."""
        blocked = [check for check in self._blocked if check in checks]
        return self._call(find_failures, x, checks, blocked)

    def failures_of_text(self, text: str, checks: Collection[str]) -> frozenset[str]:
        """Return the checks that fail on a text that is no part of the answer, and that may continue."""
        return self._call(failing_checks_of_text, self._x, checks, text)

    def may_become_leak(self, x: Exchange) -> bool:
        """Return True if more text may turn an excused text into a leak that is blocked."""
        return self._call(may_become_leak, x, self._blocked)

    def filter_final(
        self,
        findings: Mapping[str, tuple[Finding, ...]],
        emission: Emission,
        buffered: Iterable[RawEvent],
        probes: Iterable[JsonObject],
    ) -> Mapping[str, tuple[Finding, ...]]:
        """Return the findings of those choices that fail in the same way after each of the probe events."""
        buffered, failing = tuple(buffered), _by_choice(findings)
        final = set(failing)
        for event in probes:
            failing_then = (
                _by_choice(self.find_failures(emission, buffered, findings, self.frame_event(event))) if final else {}
            )
            final = {choice for choice in final if failing_then.get(choice) == failing[choice]}
        final_findings = {
            check: tuple(one for one in all_ if choice_of(one) in final) for check, all_ in findings.items()
        }
        return {check: one for check, one in final_findings.items() if one}

    def with_body(self, data: bytes) -> Exchange:
        """Return the exchange with this body of the answer."""
        if self._x.response is None:
            return self._x
        x = replace(self._x, response=replace(self._x.response, chunks=(Chunk(arrival_time=0.0, data=data),)))
        if not self._has_large_request:
            share_request(self._x, x)
        return x

    def _call(
        self,
        function: Callable[Concatenate[Exchange, _Arguments], _Value],
        x: Exchange,
        /,
        *args: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Value:
        call = caller_for(x, self._call_apart)
        return (
            function(x, *args, **named) if call is call_here else call(with_last_request, function, x, *args, **named)
        )


def failing_checks_of_text(x: Exchange, checks: Collection[str], text: str) -> frozenset[str]:
    """Return the checks that find a leak in a text that may continue: a single marker at its end is no leak."""
    return frozenset(check for check in checks if any(find_text_leaks(x, check, texts_of(text), is_error=True)))


def delta_of(member: str, fragment: str) -> JsonObject:
    """Return a delta that continues a text."""
    if member.startswith(CALL_PREFIX):
        return {"tool_calls": [{"index": int(member.removeprefix(CALL_PREFIX)), "function": {"arguments": fragment}}]}
    return {member: fragment}


def _by_choice(found: Mapping[str, Iterable[Finding]]) -> dict[int, set[str]]:
    """Return the ids of the failing checks by choice."""
    failing = defaultdict[int, set[str]](set)
    for check, findings in found.items():
        for finding in findings:
            failing[choice_of(finding)].add(check)
    return failing
