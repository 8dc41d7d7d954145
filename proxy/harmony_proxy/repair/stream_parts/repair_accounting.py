"""What became of a stream, found out at its end: each check that has a repair and fails on what the server said was repaired, or is left, with the reason.

Once for each stream, on its joined text: an event costs nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from harmony_conformance.checks import CHECKS
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.rewriter import StreamHandler
from harmony_proxy.repair.stream_parts.stream_judge import Emission, StreamJudge

FINISH = "tool_calls.finish_reason_agrees"
ANOTHER = "another leak behind one that was repaired"
TOO_LATE = "what leaks went out before it showed"
_BY_IDS = "what the emitted ids mean is told only where an answer is whole: of a stream the text has gone out"
_REASONS: Mapping[str, str] = MappingProxyType(
    {
        FINISH: "nobody can tell what the finish reason should be",
        "tool_calls.name_is_declared": "what was left of the name is no function that the request declares",
        "channels.content_is_the_answer": _BY_IDS,
        "reasoning.reasoning_holds_no_answer": _BY_IDS,
        "responses.status_says_how_it_ended": "nothing shows whether the limit cut the answer, or the model ended it",
    }
)
_ANEW = "it fails since another was repaired"
_MEANING = frozenset(rule.id for rule in CHECKS if rule.family in ("channels", "tool_calls", "reasoning", "structured"))
"""The checks that a repair could make fail. They look at what is said, which is all that is kept here, and not at how it was framed."""


class RepairAccount:
    """State: from the first repair on, the stream as the server went on with it, and whether it was closed."""

    def __init__(self, asking: StreamJudge, notes: ActionNotes, repairs: Collection[str]) -> None:
        self._asking, self._notes = asking, notes
        self._repairs = frozenset(repairs)
        self._theirs: list[bytes] | None = None
        self._is_closed = False

    def before(self, went: Emission, held: Iterable[RawEvent]) -> list[bytes]:
        """The stream as far as it is there, before something of it is told anew."""
        return [*map(self._asking.framed, went.events()), *(piece.raw for piece in held)]

    def begin(self, before: list[bytes]) -> None:
        """Something was told anew."""
        if self._theirs is None:
            self._theirs = before

    def came(self, piece: RawEvent) -> None:
        """One more event of the server's."""
        if self._theirs is not None:
            self._theirs.append(piece.raw)

    def close(self, told: StreamHandler) -> None:
        """The stream is over. Nothing of it is said to be whole that is not: what broke off is judged as far as it came."""
        if self._is_closed or not self._repairs:
            return
        self._is_closed = True
        asked = self._repairs | (_MEANING if self._theirs is not None else frozenset[str]())
        others = told.others()
        ours = self._asking.failing(self._asking.exchange(told.went, (), others + told.ending()), asked)
        if self._theirs is not None:
            theirs = self._asking.failing(self._asking.with_body(b"".join((*self._theirs, others))), asked)
            fixed = (theirs - ours) & self._repairs
            self._notes.count(fixed - self._notes.repaired.keys() - self._notes.left.keys())
            self._notes.leave(sorted(ours - theirs - self._repairs), _ANEW)
        for check in sorted(ours & self._repairs):
            late = ANOTHER if self._notes.repaired else TOO_LATE
            self._notes.leave((check,), _REASONS.get(check, late))
