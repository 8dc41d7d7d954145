"""Detection of lost access (revoked key, quota, payment) as opposed to a rejected request.

Both have the same HTTP statuses. The plain request that succeeded in discovery distinguishes them. If it is now rejected each time, the run stops, and
the rejected requests say nothing about the endpoint.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.runner.limits.run_limits import RunLimits
from harmony_conformance.transport.client import SendResult
from harmony_conformance.transport.messages import Failure, FailureKind, Request, Response
from harmony_conformance.transport.waits import has_excessive_retry_after, has_reached_wait_limit

_PAYMENT = 402
_ACCESS_STATUSES: Mapping[int, str] = {
    401: "the API key is now rejected (HTTP 401)",
    _PAYMENT: "payment is now required (HTTP 402)",
    403: "the API key is now rejected (HTTP 403)",
}
_PROBES = 5  # a server that rejects requests at random also rejects some of the plain ones
_UNPAID = Failure(kind=FailureKind.ACCESS_REFUSED, detail=f"this request requires payment (HTTP {_PAYMENT})")
INCOMPLETE_RUN_KINDS = frozenset({FailureKind.ACCESS_REFUSED, FailureKind.RUN_STOPPED, FailureKind.SERVER_GONE})
"""Failures that make a run incomplete and unsuccessful."""
LimitedSend = Callable[[Request], Awaitable[SendResult | None]]
"""Function that sends a request; it returns None if the limit of requests is reached."""


class Access:
    """State: the loss of access, once it is detected."""

    def __init__(self, plain: Mapping[str, Request], limits: RunLimits) -> None:
        """`plain`: a request that succeeded, by the name of its API. `limits`: those of the whole run, which also end it."""
        self._loss: Failure | None = None
        self._plain, self._limits = plain, limits
        self._one_by_one = asyncio.Lock()

    @property
    def access_loss(self) -> Failure | None:
        """The reason to send nothing more: access was lost or a limit of the run was reached."""
        return self._loss or self._limits.stop_reason

    def skipped_exchange(self, asked: Exchange) -> Exchange | None:
        """Return the placeholder of a request that is not sent; None if it is to be sent."""
        loss = self.access_loss
        if loss is None:
            return None
        # the loss of the server is one cause, with one reason for every request
        detail = loss.detail if loss.kind is FailureKind.SERVER_GONE else f"not sent: {loss.detail}"
        return replace(asked, failure=replace(loss, detail=detail))

    async def diagnose(self, x: Exchange, ask: LimitedSend) -> Exchange:
        """Return a doubtful exchange, with a failure if the client lost access."""
        if x.response is None:
            return x
        async with self._one_by_one:
            plain = self._plain.get(x.api)
            lost = self.access_loss
            if lost is None and plain is not None:
                lost = await self._probe(x.response, plain, ask)
        if x.failure is not None:  # a rate limit is already recorded
            return x
        if lost is not None:
            return replace(x, failure=lost)
        return replace(x, failure=_UNPAID) if x.response.status == _PAYMENT else x

    async def _probe(self, response: Response, plain: Request, ask: LimitedSend) -> Failure | None:
        """Return the loss of access that the plain request shows, or a failure if no request is left; None if it succeeds."""
        lost = None
        for _ in range(_PROBES):
            sent = await ask(plain)
            if sent is None:
                return lost or Failure(
                    kind=FailureKind.ACCESS_REFUSED,
                    detail=f"HTTP {response.status}; no request is left to check whether access was lost",
                )
            lost = _access_failure(sent)
            if lost is not None and has_reached_wait_limit(sent.retry_waits):
                break
            if sent.response is None or not _may_be_access(sent.response):
                return lost
        self._loss = lost
        return lost


def is_doubtful(x: Exchange) -> bool:
    """Return True if the server may have rejected the client instead of the request."""
    if x.response is None or "authorization" in x.request.headers:
        return False
    is_waited_out = (
        x.failure is not None and x.failure.kind is FailureKind.RATE_LIMITED and has_reached_wait_limit(x.retry_waits)
    )
    return is_waited_out or _may_be_access(x.response)


def early_stop_reason(series: Iterable[Series]) -> Failure | None:
    """Return the reason why requests of a run were not sent, None if all were sent."""
    failures = (x.failure for one in series for x in one.exchanges.values() if x.response is None)
    kinds = INCOMPLETE_RUN_KINDS | {FailureKind.RATE_LIMITED}
    return next((failure for failure in failures if failure is not None and failure.kind in kinds), None)


def _may_be_access(response: Response) -> bool:
    return response.status in _ACCESS_STATUSES or has_excessive_retry_after(response)


def _access_failure(sent: SendResult) -> Failure | None:
    if sent.failure is not None:
        return sent.failure if sent.failure.kind is FailureKind.RATE_LIMITED else None
    detail = _ACCESS_STATUSES.get(sent.response.status) if sent.response is not None else None
    return Failure(kind=FailureKind.ACCESS_REFUSED, detail=detail) if detail is not None else None
