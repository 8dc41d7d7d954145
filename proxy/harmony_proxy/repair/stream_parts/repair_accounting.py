"""Final account of a stream: each repairable check that failed on the server's output is reported as repaired, or as left with a reason.

It is computed once per stream, on the joined text, so that single events cost nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from harmony_conformance.checks import CHECKS
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.rewriter import StreamRewriter
from harmony_proxy.repair.stream_parts.stream_judge import Emission, StreamJudge

FINISH_CHECK = "tool_calls.finish_reason_agrees"
ANOTHER = "another leak after one that was repaired"
TOO_LATE = "the leak was emitted before it was detectable"
UNDECLARED_NAME = "without header residue the name is not a declared function"
_BY_IDS = "only whole answers are rewritten from their token ids: the text of a stream was already emitted"
_REASONS: Mapping[str, str] = MappingProxyType(
    {
        FINISH_CHECK: "the correct finish reason is unknown",
        "tool_calls.name_is_declared": UNDECLARED_NAME,
        "channels.content_is_the_answer": _BY_IDS,
        "reasoning.reasoning_holds_no_answer": _BY_IDS,
        "responses.status_says_how_it_ended": "the answer does not show whether the token limit or the model ended it",
    }
)
_CAUSED_BY_REPAIR = "the check fails only since another failure was repaired"
_CONTENT_CHECKS = frozenset(
    rule.id for rule in CHECKS if rule.family in ("channels", "tool_calls", "reasoning", "structured")
)
"""Checks that a repair could cause to fail. They read the content, which the account retains, not the framing."""


class RepairAccount:
    """Compares the server's stream with the emitted one. Stores the server's stream from the first repair on."""

    def __init__(self, judge: StreamJudge, notes: ActionNotes, repairs: Collection[str]) -> None:
        self._judge, self._notes = judge, notes
        self._repairs = frozenset(repairs)
        self._server_stream: list[bytes] | None = None
        self._is_closed = False

    def snapshot(self, emission: Emission, buffered: Iterable[RawEvent]) -> list[bytes]:
        """Return the stream so far, to be passed to `start` after a successful repair."""
        return [*map(self._judge.frame_event, emission.events()), *(piece.raw for piece in buffered)]

    def start(self, before: list[bytes]) -> None:
        """Start to record the server's stream, at its first repair. `snapshot` is the stream up to there."""
        if self._server_stream is None:
            self._server_stream = before

    def record_event(self, piece: RawEvent) -> None:
        """Record an event of the server."""
        if self._server_stream is not None:
            self._server_stream.append(piece.raw)

    def close(self, handler: StreamRewriter) -> None:
        """Compare both streams at the end, and record what was repaired or left. A truncated stream is judged as it is."""
        if self._is_closed or not self._repairs:
            return
        self._is_closed = True
        checks = self._repairs | (_CONTENT_CHECKS if self._server_stream is not None else frozenset[str]())
        others = handler.unrewritten_events()
        failing_after = self._judge.failing_checks(
            self._judge.exchange(handler.emission, (), others + handler.ending()), checks
        )
        if self._server_stream is not None:
            failing_before = self._judge.failing_checks(
                self._judge.with_body(b"".join((*self._server_stream, others))), checks
            )
            fixed = (failing_before - failing_after) & self._repairs
            self._notes.count(fixed - self._notes.repair_counts.keys() - self._notes.unrepaired_reasons.keys())
            self._notes.record_unrepaired(sorted(failing_after - failing_before - self._repairs), _CAUSED_BY_REPAIR)
        for check in sorted(failing_after & self._repairs):
            self._notes.record_unrepaired(
                (check,), _REASONS.get(check, ANOTHER if self._notes.repair_counts else TOO_LATE)
            )
