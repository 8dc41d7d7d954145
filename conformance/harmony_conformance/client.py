"""The HTTP client: sends one request, keeps what comes back chunk by chunk with its times, and turns every way of failing into a `Failure`.

A key goes to the target's host only: redirects are never followed. A key, or a header that holds a credential, is masked before anything is kept,
should the server echo it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import Self

import httpx

from harmony_conformance.secret import Mask, secrets
from harmony_conformance.wire import Chunk, Failure, FailureKind, Request, Response

BODY_LIMIT = 10 * 1024 * 1024  # escaped as JSON it is still a line that the readers of recordings take
_TOO_MANY, _UNAVAILABLE = 429, 503
_WAITS = 3
_LONGEST_WAIT, _UNREADABLE_WAIT = 60.0, 1.0  # seconds
_IDLE = 2.0  # seconds after which a connection is not used again; servers close theirs after 5 or more, and a request must not meet that
_WHOLE_EXCHANGE = 10  # times the timeout
_NOT_KEPT = frozenset({"set-cookie", "authorization"})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to connect. `timeout` is the longest silence between bytes, in seconds; `key` is never stored elsewhere."""

    base: str
    key: str | None = None
    headers: Mapping[str, str]
    timeout: float = 60.0
    body_limit: int = BODY_LIMIT


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What came of a request: a response, or a failure, or both where a body broke off; and the waits that a busy server asked for."""

    response: Response | None = None
    failure: Failure | None = None
    waited: tuple[float, ...] = ()


class Client:
    """A connection pool to one endpoint; an asynchronous context manager."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._mask = Mask(secrets(settings.key, settings.headers))
        authorization = {"authorization": f"Bearer {settings.key}"} if settings.key else {}
        self._http = httpx.AsyncClient(
            base_url=settings.base,
            headers={"user-agent": "harmony-conformance", **settings.headers, **authorization},
            timeout=httpx.Timeout(settings.timeout, pool=None),
            follow_redirects=False,
            trust_env=False,
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE),
        )

    async def __aenter__(self) -> Self:
        """Open the pool."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def send(self, request: Request) -> Sent:
        """Send a request; wait and repeat where the server says 429 or 503 with Retry-After, at most three times."""
        waited: list[float] = []
        while True:
            sent = await self._once(request)
            wait = _wait(sent.response)
            if wait is None:
                return replace(sent, waited=tuple(waited))
            if len(waited) == _WAITS:
                detail = f"HTTP {sent.response.status if sent.response else 0} after {len(waited)} waits"
                return replace(
                    sent, waited=tuple(waited), failure=Failure(kind=FailureKind.RATE_LIMITED, detail=detail)
                )
            waited.append(wait)
            await _pause(wait)

    async def _once(self, request: Request) -> Sent:
        chunks: list[Chunk] = []
        head: list[tuple[int, dict[str, str]]] = []
        failure: Failure | None = None
        try:
            async with asyncio.timeout(self._settings.timeout * _WHOLE_EXCHANGE):
                failure = await self._receive(request, chunks, head)
        except TimeoutError:
            most = self._settings.timeout * _WHOLE_EXCHANGE
            failure = Failure(kind=FailureKind.TIMEOUT, detail=f"the answer was not complete after {most:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError) as error:
            failure = _failure(error, self._settings.timeout, begun=bool(head))
        if failure is not None:
            failure = replace(failure, detail=self._mask.text(failure.detail))
        if not head:
            return Sent(failure=failure)
        status, headers = head[0]
        masked = {self._mask.text(name): self._mask.text(value) for name, value in headers.items()}
        return Sent(response=Response(status=status, headers=masked, chunks=self._mask.chunks(chunks)), failure=failure)

    async def _receive(
        self, request: Request, chunks: list[Chunk], head: list[tuple[int, dict[str, str]]]
    ) -> Failure | None:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **request.headers,
        }
        size = 0
        start = time.monotonic()
        async with self._http.stream(
            request.method, request.path, content=request.body or None, headers=headers
        ) as response:
            head.append(
                (
                    response.status_code,
                    {name.lower(): value for name, value in response.headers.items() if name.lower() not in _NOT_KEPT},
                )
            )
            async for data in response.aiter_bytes():
                size += len(data)
                if size > self._settings.body_limit:
                    return Failure(
                        kind=FailureKind.TOO_LARGE, detail=f"the body is larger than {self._settings.body_limit} bytes"
                    )
                chunks.append(Chunk(at=time.monotonic() - start, data=data))
        return None


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _wait(response: Response | None) -> float | None:
    """The seconds a busy server asks to wait, None where it does not."""
    if response is None or response.status not in (_TOO_MANY, _UNAVAILABLE):
        return None
    asked = response.headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return min(float(asked), _LONGEST_WAIT)
    try:
        until = parsedate_to_datetime(asked).timestamp()
    except ValueError:
        return _UNREADABLE_WAIT if asked else None
    return min(max(until - time.time(), 0.0), _LONGEST_WAIT)


def _failure(error: Exception, timeout: float, *, begun: bool) -> Failure:
    detail = " ".join(str(error).split()) or type(error).__name__
    match error:
        case httpx.ConnectTimeout():
            return Failure(kind=FailureKind.NO_CONNECTION, detail=f"no connection within {timeout:g} s")
        case httpx.TimeoutException():
            return Failure(kind=FailureKind.TIMEOUT, detail=f"no byte arrived for {timeout:g} s")
        case httpx.ConnectError() | httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return Failure(kind=FailureKind.NO_CONNECTION, detail=detail)
        case httpx.RemoteProtocolError() if begun and "closed connection" in detail:
            return Failure(kind=FailureKind.CUT, detail=detail)
        case httpx.RemoteProtocolError() if "disconnected" in detail:
            return Failure(kind=FailureKind.RESET, detail=detail)
        case httpx.ReadError() | httpx.WriteError() | httpx.CloseError():
            return Failure(kind=FailureKind.CUT if begun else FailureKind.RESET, detail=detail)
        case _:
            return Failure(kind=FailureKind.MALFORMED_HTTP, detail=detail)
