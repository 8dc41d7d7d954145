"""The HTTP client: sends one request, keeps what comes back chunk by chunk with its times, and turns every way of failing into a `Failure`.

A key goes to the target's host only: redirects are never followed. A key, or a header that holds a credential, is masked before anything is kept,
should the server echo it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar, cast

import httpx

from harmony_conformance.command import UsageError
from harmony_conformance.secret import Mask, secrets
from harmony_conformance.sse import EventDecoder
from harmony_conformance.wire import Chunk, Failure, FailureKind, Request, Response

BODY_LIMIT = 10 * 1024 * 1024  # escaped as JSON it is still a line that the readers of recordings take
_TOO_MANY, _UNAVAILABLE = 429, 503
_WAITS = 3
_LONGEST_WAIT, _UNREADABLE_WAIT = 60.0, 1.0  # seconds
_IDLE = 2.0  # seconds after which a connection is not used again; servers close theirs after 5 or more, and a request must not meet that
_WHOLE_EXCHANGE = 10  # times the timeout
CA_FILE, CA_DIR = "SSL_CERT_FILE", "SSL_CERT_DIR"
"""The variables that name the certificates to trust in place of the usual ones."""
_CERTIFICATE = "certificate verify failed"
_RIGHT_CERTIFICATE: Mapping[str, str] = MappingProxyType(
    {
        "Hostname mismatch": "use the name that the certificate was issued for",
        "IP address mismatch": "use the name that the certificate was issued for",
        "expired": "the server needs a certificate that is still valid",
    }
)
_NOT_KEPT = frozenset({"set-cookie", "authorization"})
Answer = TypeVar("Answer")


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


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A wait that a busy server asked for, in seconds: `asked` is None where its Retry-After can not be read; `place` counts from 1."""

    asked: float | None
    seconds: float
    place: int

    def __str__(self) -> str:
        """One line."""
        asks = "the server is busy" if self.asked is None else f"the server asks to wait {self.asked:.0f} s"
        return f"{asks}; waiting {self.seconds:.0f} s, {self.place} of {_WAITS}"


def unheard(wait: Wait) -> None:
    """For those who do not want to be told of waits."""


class _Connection:
    """What a request went out on, by what httpx tells while it sends."""

    _is_new = False
    was_kept = False
    """Whether it was open before the request."""

    async def hear(self, event: str, info: object) -> None:
        """Take an event."""
        del info
        self._is_new = self._is_new or event == "connection.connect_tcp.started"
        self.was_kept = self.was_kept or (not self._is_new and event.endswith(".send_request_headers.started"))


class Client:
    """A connection pool to one endpoint; an asynchronous context manager."""

    def __init__(self, settings: Settings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport`: what carries requests, where that is no network."""
        self._settings = settings
        self._mask = Mask(secrets(settings.key, settings.headers))
        self._urls: dict[str, httpx.URL] = {}
        authorization = {"authorization": f"Bearer {settings.key}"} if settings.key else {}
        self._http = httpx.AsyncClient(
            base_url=settings.base,
            headers={"user-agent": "harmony-conformance", **settings.headers, **authorization},
            timeout=httpx.Timeout(settings.timeout, pool=None),
            follow_redirects=False,
            trust_env=False,  # no variable names a proxy
            verify=_trusted(settings.base) or True,
            transport=transport,
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

    async def send(
        self, request: Request, waiting: Callable[[Wait], None] = unheard, leave_after: int | None = None
    ) -> Sent:
        """Send a request; wait and repeat where the server says 429 or 503 with Retry-After, at most three times. `waiting` is told of each wait.

        `leave_after`: the number of events of a stream after which the connection is closed, whatever is still to come.
        """
        waited: list[float] = []
        while True:
            sent = await self._once(request, leave_after)
            wait = _wait(sent.response, len(waited) + 1)
            if wait is None:
                return replace(sent, waited=tuple(waited))
            if len(waited) == _WAITS:
                detail = f"HTTP {sent.response.status if sent.response else 0} after {len(waited)} waits"
                return replace(
                    sent, waited=tuple(waited), failure=Failure(kind=FailureKind.RATE_LIMITED, detail=detail)
                )
            waited.append(wait.seconds)
            waiting(wait)
            await _pause(wait.seconds)

    async def _once(self, request: Request, leave_after: int | None) -> Sent:
        """What came of the request on one connection; on another where one that had been kept open turns out to be closed.

        A server may close a connection after any answer, llama.cpp does so without a word, and only the next request finds out. Where that request
        is itself the cause, it meets the same on a new connection.
        """
        while True:
            connection = _Connection()
            sent = await self._on(connection, request, leave_after)
            if not connection.was_kept or sent.response is not None or not _met_a_close(sent.failure):
                return sent

    async def _on(self, connection: _Connection, request: Request, leave_after: int | None) -> Sent:
        chunks: list[Chunk] = []
        head: list[tuple[int, dict[str, str]]] = []
        failure: Failure | None = None
        try:
            async with asyncio.timeout(self._settings.timeout * _WHOLE_EXCHANGE):
                failure = await self._receive(request, chunks, head, leave_after, connection)
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

    def _url(self, path: str) -> httpx.URL:
        """The address of a path, put together once: requests have many bodies and few paths."""
        if path not in self._urls:
            self._urls[path] = self._http.build_request("GET", path).url
        return self._urls[path]

    async def _receive(
        self,
        request: Request,
        chunks: list[Chunk],
        head: list[tuple[int, dict[str, str]]],
        leave_after: int | None,
        connection: _Connection,
    ) -> Failure | None:
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            **request.headers,
        }
        size = events = 0
        decoder = EventDecoder()
        start = now()
        async with self._http.stream(
            request.method,
            self._url(request.path),
            content=request.body or None,
            headers=headers,
            extensions={"trace": connection.hear},
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
                chunks.append(Chunk(at=now() - start, data=data))
                events += len(decoder.feed(data)) if leave_after is not None else 0
                if leave_after is not None and events >= leave_after:
                    return Failure(kind=FailureKind.CLIENT_LEFT, detail=f"the client left after {leave_after} events")
        return None


def completed(work: Coroutine[object, object, Answer]) -> Answer:
    """What `work` answers, on a loop of its own.

    It is kept from `asyncio.run`, which before Python 3.13 spells out what its task has answered, to no end: for the results of a run, seconds.
    """
    answers: list[Answer] = []

    async def without_answer() -> None:
        answers.append(await work)

    asyncio.run(without_answer())
    return answers[0]


def now() -> float:
    """The time of the loop, in seconds: what waits are measured in."""
    return asyncio.get_running_loop().time()


def _met_a_close(failure: Failure | None) -> bool:
    return failure is not None and failure.kind is FailureKind.RESET


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


def _trusted(base: str) -> ssl.SSLContext | None:
    """What trusts the certificates that the environment names, None where it names none.

    Raises:
        UsageError: they can not be read.
    """
    file, folder = os.environ.get(CA_FILE) or None, os.environ.get(CA_DIR) or None
    if not base.startswith("https:") or (file is None and folder is None):
        return None
    try:
        return ssl.create_default_context(cafile=file, capath=folder)
    except OSError as problem:
        raise UsageError(f"{CA_FILE} {file}: {problem.strerror or problem}") from None


def _wait(response: Response | None, place: int) -> Wait | None:
    """The wait that a busy server asks for, None where it does not."""
    if response is None or response.status not in (_TOO_MANY, _UNAVAILABLE):
        return None
    asked = response.headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return Wait(asked=float(asked), seconds=min(float(asked), _LONGEST_WAIT), place=place)
    try:
        until = parsedate_to_datetime(asked).timestamp()
    except ValueError:
        return Wait(asked=None, seconds=_UNREADABLE_WAIT, place=place) if asked else None
    left = max(until - time.time(), 0.0)
    return Wait(asked=left, seconds=min(left, _LONGEST_WAIT), place=place)


def _failure(error: Exception, timeout: float, *, begun: bool) -> Failure:
    detail = " ".join(str(error).split()) or type(error).__name__
    match error:
        case httpx.ConnectTimeout():
            return Failure(kind=FailureKind.NO_CONNECTION, detail=f"no connection within {timeout:g} s")
        case httpx.TimeoutException():
            return Failure(kind=FailureKind.TIMEOUT, detail=f"no byte arrived for {timeout:g} s")
        case httpx.ConnectError() | httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return Failure(kind=FailureKind.NO_CONNECTION, detail=_no_connection(error, detail))
        case httpx.RemoteProtocolError() if begun and "closed connection" in detail:
            return Failure(kind=FailureKind.CUT, detail=detail)
        case httpx.RemoteProtocolError() if "disconnected" in detail:
            return Failure(kind=FailureKind.RESET, detail=detail)
        case httpx.ReadError() | httpx.WriteError() | httpx.CloseError():
            return Failure(kind=FailureKind.CUT if begun else FailureKind.RESET, detail=detail)
        case _:
            return Failure(kind=FailureKind.MALFORMED_HTTP, detail=detail)


def _no_connection(error: Exception, detail: str) -> str:
    """Why there is no connection, and what would be right where that is known."""
    causes = tuple(_causes(error))
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "no such host"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    if "WRONG_VERSION_NUMBER" in detail:
        return "this port speaks plain http: use http://"
    if _CERTIFICATE in detail:
        reason = detail[detail.index(_CERTIFICATE) :].partition(" (_ssl")[0]
        private = f"name the file of the authority that issued it by the variable {CA_FILE} (a folder: {CA_DIR})"
        right = next((right for said, right in _RIGHT_CERTIFICATE.items() if said in reason), private)
        return f"{reason}: {right}"
    return detail


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, what it was raised from, and the members of groups among them."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            group = cast("BaseExceptionGroup[BaseException]", error)
            for member in group.exceptions:
                yield from _causes(member)
        error = error.__cause__ or error.__context__
