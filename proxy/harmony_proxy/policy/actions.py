"""What was done to an answer: frozen values that the acting side makes, and the log tells; and what the guard needs of those who act."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Protocol

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.judge import Result
from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.policy.policy import Action, FailMode


@dataclass(frozen=True, kw_only=True)
class Actions:
    """What was done, by the ids of checks.

    Attributes:
        repaired: how often each was repaired.
        blocked: those for which the answer was blocked.
        left: those that were seen to fail and could not be repaired, each with the reason.
    """

    repaired: Mapping[str, int] = field(default_factory=lambda: MappingProxyType(dict[str, int]()))
    blocked: tuple[str, ...] = ()
    left: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(dict[str, str]()))

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.repaired or self.blocked or self.left)


NOTHING_DONE = Actions()


@dataclass(frozen=True, kw_only=True)
class RepairedAnswer:
    """What becomes of an answer in one piece. `body` is the new one, decoded, None where it stays as it is; `results` is what the checks said of it."""

    body: bytes | None = None
    actions: Actions = NOTHING_DONE
    results: tuple[Result, ...] = ()


class StreamRepair(Protocol):
    """One streamed answer that is acted on, as it arrives: decoded bytes of the body in, what goes to the client out."""

    def feed(self, data: bytes) -> list[bytes]:
        """More of it; the same bytes where nothing is to be done, none while they are held."""
        ...

    def close(self) -> list[bytes]:
        """The answer is complete: the rest."""
        ...

    def abort(self) -> list[bytes]:
        """It broke off: what was held, then an error in the words of the API."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it was blocked: nothing more goes to the client."""
        ...

    @property
    def actions(self) -> Actions:
        """What was done so far."""
        ...


class OpenStreamRepair(Protocol):
    """Begins to act on a stream."""

    def __call__(  # noqa: PLR0913 - all that a stream is acted on by
        self,
        request: Request,
        response: Response,
        api: str,
        actions: Mapping[str, Action],
        *,
        fallback: Action,
        request_id: str,
        limit: int,
        fail: FailMode,
    ) -> StreamRepair:
        """The response has a status and headers, and no body yet."""
        ...


class RepairAnswer(Protocol):
    """Acts on an answer in one piece."""

    def __call__(self, x: Exchange, actions: Mapping[str, Action], *, fallback: Action) -> RepairedAnswer:
        """What becomes of it."""
        ...


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """The two that act, and the ids of the checks that they can repair."""

    stream: OpenStreamRepair
    whole: RepairAnswer
    repairs: frozenset[str]
