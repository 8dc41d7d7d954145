"""Records of actions on a response, and the interface between the guard and the repair handlers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ParamSpec, Protocol, TypeVar

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.judge.judge import Result
from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.policy.policy import Action, FailMode

LARGE_BYTES = 256 * 1024
"""Size of an exchange from which on its response is examined in a thread, so that others do not wait for it."""
VERY_LARGE_BYTES = 1024 * 1024
"""Size from which on it is examined in another process: a pattern that runs in a thread stops all others until it ends."""

_Arguments = ParamSpec("_Arguments")
_Value = TypeVar("_Value")


@dataclass(frozen=True, kw_only=True)
class Actions:
    """Actions taken on one response, by check id."""

    repair_counts: Mapping[str, int] = field(default_factory=lambda: MappingProxyType(dict[str, int]()))
    blocked_checks: tuple[str, ...] = ()
    unrepaired_reasons: Mapping[str, str] = field(default_factory=lambda: MappingProxyType(dict[str, str]()))  # reasons

    def __bool__(self) -> bool:
        return bool(self.repair_counts or self.blocked_checks or self.unrepaired_reasons)


NO_ACTIONS = Actions()


@dataclass(frozen=True, kw_only=True)
class RepairedAnswer:
    """Result of repairing a non-streaming response."""

    body: bytes | None = None  # decoded; None: unchanged
    actions: Actions = NO_ACTIONS
    results: tuple[Result, ...] = ()
    unread_reason: str = ""  # the reason if the unchanged body cannot be read as the checks read it


class Caller(Protocol):
    """Calls a function, in this process or in another one."""

    def __call__(
        self, function: Callable[_Arguments, _Value], /, *args: _Arguments.args, **named: _Arguments.kwargs
    ) -> _Value:
        """Return the result of the function."""
        ...


def call_here(function: Callable[_Arguments, _Value], /, *args: _Arguments.args, **named: _Arguments.kwargs) -> _Value:
    """Call a function in this process."""
    return function(*args, **named)


def caller_for(x: Exchange, call_apart: Caller) -> Caller:
    """Return `call_apart` for an exchange with very large bodies, else `call_here`."""
    size = len(x.request.body) + sum(len(chunk.data) for chunk in (x.response.chunks if x.response is not None else ()))
    return call_apart if size >= VERY_LARGE_BYTES else call_here


class StreamRepair(Protocol):
    """Repair of one streamed response: decoded bytes of the server in, bytes for the client out."""

    def may_be_judged(self, data: bytes) -> bool:
        """Return True if these next bytes may make the checks run, which takes time on a long stream."""
        ...

    def feed(self, data: bytes) -> list[bytes]:
        """Return the bytes to send now: unchanged if nothing is to be repaired, none while they are buffered."""
        ...

    def close(self) -> list[bytes]:
        """Return the remaining bytes of a complete response."""
        ...

    def give_up(self, reason: str) -> list[bytes]:
        """Stop examining. Return the buffered bytes, after which all bytes pass, or block the rest, as the policy says."""
        ...

    def abort(self) -> list[bytes]:
        """Return the buffered bytes of a truncated response, then an error event in the format of the API."""
        ...

    @property
    def is_terminated(self) -> bool:
        """True if the response was blocked: nothing more may be sent to the client."""
        ...

    @property
    def actions(self) -> Actions:
        """The actions taken so far."""
        ...


class StreamRepairFactory(Protocol):
    """Factory of stream repairs."""

    def __call__(  # noqa: PLR0913 - the full context of a stream
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
        """Start to repair a response that has a status and headers, but no body yet."""
        ...


class AnswerRepairer(Protocol):
    """Repair of a non-streaming response."""

    def __call__(self, x: Exchange, actions: Mapping[str, Action], *, fallback: Action) -> RepairedAnswer:
        """Repair or block the response of this exchange."""
        ...


@dataclass(frozen=True, kw_only=True)
class Handlers:
    """The handlers of streaming and of non-streaming responses.

    Attributes:
        repairable_checks: Ids of the checks that they can repair.
        leak_checks: Ids of the checks that judge any text, also that of a body in no known form.
    """

    open_stream: StreamRepairFactory
    repair_answer: AnswerRepairer
    repairable_checks: frozenset[str]
    leak_checks: frozenset[str] = frozenset()
