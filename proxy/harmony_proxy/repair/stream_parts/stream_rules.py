"""The rules of one stream: the checks that run during it, and what is done if one fails. Which of its choices have finished."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from harmony_conformance.runtime.caching import cached_property
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair.answer.repair_table import REPAIRS
from harmony_proxy.repair.stream_parts.rewriter import TextKey
from harmony_proxy.repair.stream_parts.text_tracker import Status

STREAM_CHECKS = frozenset(
    {
        "channels.no_marker_leak",
        "channels.no_channel_words",
        "channels.no_reasoning_in_content",
        "tool_calls.name_is_declared",
    }
)
"""Checks that run during the stream."""


@dataclass(frozen=True, kw_only=True)
class StreamRules:
    """The actions on a stream, without the observed checks."""

    actions: Mapping[str, Action]
    fallback: Action
    fails_closed: bool

    @cached_property
    def stream_checks(self) -> frozenset[str]:
        """The checks that run during the stream."""
        return STREAM_CHECKS & self.actions.keys()

    @cached_property
    def blocked_checks(self) -> frozenset[str]:
        """The checks that block."""
        return frozenset(check for check, action in self.actions.items() if action is Action.BLOCK)

    @cached_property
    def blockable_checks(self) -> frozenset[str]:
        """The checks that block, or may if a repair is impossible."""
        return frozenset(self.actions) if self.fallback is Action.BLOCK else self.blocked_checks

    @cached_property
    def repaired_checks(self) -> frozenset[str]:
        """The checks whose failures are repaired."""
        return frozenset(
            check for check, action in self.actions.items() if action is Action.REPAIR and check in REPAIRS
        )


@dataclass
class ChoiceProgress:
    """The choices of a stream, and those that have a finish reason."""

    begun: set[int] = field(default_factory=set[int])
    finished: set[int] = field(default_factory=set[int])

    def add(self, choice: int, *, is_finished: bool) -> None:
        """Record a part of a choice."""
        self.begun.add(choice)
        if is_finished:
            self.finished.add(choice)

    @property
    def is_complete(self) -> bool:
        """True if there are choices, and all have finished."""
        return bool(self.begun) and self.begun == self.finished

    def waiting(self, statuses: Mapping[TextKey, Status]) -> frozenset[int]:
        """Return the choices without a verdict: they stay buffered while another choice is rewritten."""
        choices = {status: {place[0] for place, one in statuses.items() if one is status} for status in Status}
        return frozenset(choices[Status.OPEN] - choices[Status.READY] - self.finished)
