"""Whether the client is still let in: a refusal of whoever asks (its key revoked, its money used up, a limit of a day) told from one of what is asked.

Both come by the same statuses. Which it is shows the plain request that was answered when the endpoint was looked at: where that is refused now too, and again
each time that it is asked, what was refused says nothing of the endpoint, and no more is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.transport.client import SendResult, asks_too_much, is_longest
from harmony_conformance.transport.messages import Failure, FailureKind, Request, Response

_PAYMENT = 402
_OF_THE_CLIENT: Mapping[int, str] = {
    401: "the key is refused from here on (HTTP 401)",
    _PAYMENT: "payment is required from here on (HTTP 402)",
    403: "the key is refused from here on (HTTP 403)",
}
_ASKED = 5  # a server that refuses now and then refuses the plain request too, now and then
_UNPAID = Failure(kind=FailureKind.ACCESS_REFUSED, detail=f"payment is required for it (HTTP {_PAYMENT})")
Ask = Callable[[Request], Awaitable[SendResult | None]]
"""Sends a request; None where no more may be sent."""


class Access:
    """State: why nothing more is to be sent, once that is known; `shut` is None until then."""

    def __init__(self, plain: Mapping[str, Request]) -> None:
        """`plain`: by the name of its API, a request that was answered."""
        self.shut: Failure | None = None
        self._plain = plain
        self._one_by_one = asyncio.Lock()

    def skipped_exchange(self, asked: Exchange) -> Exchange | None:
        """What stands for a request that is not sent any more; None where it is to be sent."""
        if self.shut is None:
            return None
        return replace(asked, failure=replace(self.shut, detail=f"not sent: {self.shut.detail}"))

    async def settled(self, x: Exchange, ask: Ask) -> Exchange:
        """The exchange, which is doubtful; where the client was refused and not the request, as one that the endpoint did not judge."""
        if x.response is None:
            return x
        async with self._one_by_one:
            plain = self._plain.get(x.api)
            refused = self.shut
            if refused is None and plain is not None:
                refused = await self._probe(x.response, plain, ask)
        if x.failure is not None:  # that it is limited is known
            return x
        if refused is not None:
            return replace(x, failure=refused)
        return replace(x, failure=_UNPAID) if x.response.status == _PAYMENT else x

    async def _probe(self, response: Response, plain: Request, ask: Ask) -> Failure | None:
        """Why the plain request is refused too, or that nobody knows whether it is; None where it is answered."""
        refused = None
        for _ in range(_ASKED):
            sent = await ask(plain)
            if sent is None:
                return refused or _untold(response)
            refused = _refused(sent)
            if refused is not None and is_longest(sent.retry_waits):
                break
            if sent.response is None or not _may_be_of_the_client(sent.response):
                return refused
        self.shut = refused
        return refused


def is_doubtful(x: Exchange) -> bool:
    """Whether it may be that the client was refused, and not what it asked."""
    if x.response is None or "authorization" in x.request.headers:
        return False
    is_waited_out = x.failure is not None and x.failure.kind is FailureKind.RATE_LIMITED and is_longest(x.retry_waits)
    return is_waited_out or _may_be_of_the_client(x.response)


def cut_short(series: Iterable[Series]) -> Failure | None:
    """Why some requests of a run were not sent any more, None where all were."""
    failures = (x.failure for one in series for x in one.exchanges.values() if x.response is None)
    kinds = (FailureKind.ACCESS_REFUSED, FailureKind.RATE_LIMITED)
    return next((failure for failure in failures if failure is not None and failure.kind in kinds), None)


def _may_be_of_the_client(response: Response) -> bool:
    return response.status in _OF_THE_CLIENT or asks_too_much(response)


def _untold(response: Response) -> Failure:
    """That no request was left to find out whom a refusal meant."""
    return Failure(
        kind=FailureKind.ACCESS_REFUSED,
        detail=f"HTTP {response.status}, and no request was left to see whether a plain one is refused too",
    )


def _refused(sent: SendResult) -> Failure | None:
    """Why a plain request is refused, where that is for whoever asks: for good, or for a while."""
    if sent.failure is not None:
        return sent.failure if sent.failure.kind is FailureKind.RATE_LIMITED else None
    told = _OF_THE_CLIENT.get(sent.response.status) if sent.response is not None else None
    return Failure(kind=FailureKind.ACCESS_REFUSED, detail=told) if told is not None else None
