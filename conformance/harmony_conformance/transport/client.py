"""The HTTP client: sends one request, keeps what comes back chunk by chunk with its times, and turns every way of failing into a `Failure`.

A key goes to the target's host only: redirects are never followed, and a proxy gets no more than it forwards. A key, or a header that holds a
credential, is masked before anything is recorded, should the server echo it.

httpx carries the requests. Its stream gives each chunk of HTTP by itself, as it arrives, and what arrived before a fault in the same packet.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar

import httpx

from harmony_conformance.transport.content_coding import ACCEPTED, ContentDecodingError, Decoder, decoder
from harmony_conformance.transport.http_transport import (
    STREAM_RESET,
    Network,
    failure_of,
    open_transport,
    trailing_data,
)
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response
from harmony_conformance.transport.redaction import Mask, cookie_secrets, secrets
from harmony_conformance.transport.sse import EventDecoder

BODY_LIMIT = 10 * 1024 * 1024  # escaped as JSON it is still a line that the readers of recordings take
_SWITCHED, _PROXY_AUTHENTICATION, _TOO_MANY, _UNAVAILABLE = 101, 407, 429, 503
_WAITS = 3
_LONGEST_WAIT, _UNREADABLE_WAIT = 60.0, 1.0  # seconds
_PATIENCE = _WAITS * _LONGEST_WAIT
_WHOLE_EXCHANGE = 10  # times the timeout
_NOT_KEPT = frozenset({"set-cookie", "authorization"})
_SENDING = frozenset({"POST", "PUT", "PATCH"})
_LENGTH = "content-length"
_USUAL_HEADERS: Mapping[str, str] = MappingProxyType(
    {"Accept-Encoding": ACCEPTED, "Connection": "keep-alive", "user-agent": "harmony-conformance"}
)
_OF_REQUESTS: Mapping[str, str] = MappingProxyType(
    {"content-type": "application/json", "accept": "application/json, text/event-stream"}
)
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """How to connect. `timeout` is the longest silence between bytes, in seconds; `key` is never stored elsewhere."""

    base: str
    key: str | None = None
    headers: Mapping[str, str]
    timeout: float = 60.0
    body_limit: int = BODY_LIMIT
    network: Network = field(default_factory=Network)


@dataclass(frozen=True, kw_only=True)
class SendResult:
    """What came of a request: a response, or a failure, or both where a body broke off; and the waits that a busy server asked for."""

    response: Response | None = None
    failure: Failure | None = None
    retry_waits: tuple[float, ...] = ()


SendRequest = Callable[[Request], Awaitable[SendResult]]
"""Sends a request, and says what came of it."""


@dataclass(frozen=True, kw_only=True)
class Wait:
    """A wait that a busy server asked for, in seconds: `asked` is None where its Retry-After can not be read; `place` counts from 1."""

    requested_seconds: float | None
    seconds: float
    attempt: int

    def __str__(self) -> str:
        """One line."""
        asks = (
            "the server is busy"
            if self.requested_seconds is None
            else f"the server asks to wait {self.requested_seconds:.0f} s"
        )
        return f"{asks}; waiting {self.seconds:.0f} s, {self.attempt} of {_WAITS}"


def ignore_wait(wait: Wait) -> None:
    """For those who do not want to be told of waits."""


class _Trace:
    """State of the connection of one request, by the events of httpx."""

    def __init__(self) -> None:
        self.is_new = False
        self.last = ""

    async def __call__(self, event: str, _: object) -> None:
        """Take an event."""
        self.last = event
        self.is_new = self.is_new or ".connect_" in event


class Client:
    """What is sent to one endpoint; an asynchronous context manager."""

    def __init__(self, settings: ConnectionSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """`transport`: carries the requests, where that is no network.

        Raises:
            UsageError: a file of certificates is unreadable.
        """
        self._settings = settings
        self._secrets = (*secrets(settings.key, settings.headers), *settings.network.secrets)
        self._mask = Mask(self._secrets)
        authorization = {"authorization": f"Bearer {settings.key}"} if settings.key else {}
        self._headers = _together(_USUAL_HEADERS, settings.headers, authorization, _OF_REQUESTS)
        self._transport = transport or open_transport(settings.base, settings.network)
        self._urls: dict[str, httpx.URL] = {}
        self._timeouts = dict.fromkeys(("connect", "read", "write"), settings.timeout)

    async def __aenter__(self) -> Self:
        """The client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def send(
        self, request: Request, waiting: Callable[[Wait], None] = ignore_wait, leave_after: int | None = None
    ) -> SendResult:
        """Send a request; wait and repeat where the server says 429 or 503 with Retry-After, at most three times. `waiting` is told of each wait.

        Where it asks for more than three of the longest waits, as one whose limit is of a day does, none would help, and none is made.

        A 429 that is left is a limit of the client's use, and a failure of its own kind, also where the server does not say how long to wait.

        `leave_after`: the number of events of a stream after which the connection is closed, whatever is still to come.
        """
        waited: list[float] = []
        while True:
            sent = await self._once(request, leave_after)
            wait = _wait(sent.response, len(waited) + 1)
            if wait is None:
                return replace(sent, retry_waits=tuple(waited), failure=sent.failure or _limited(sent.response))
            is_hopeless = _is_hopeless(wait)
            if len(waited) == _WAITS or is_hopeless:
                so_far = f"HTTP {sent.response.status if sent.response else 0} after {len(waited)} waits"
                detail = (
                    f"{so_far}, and the server asks to wait longer than {_PATIENCE:.0f} s" if is_hopeless else so_far
                )
                return replace(
                    sent, retry_waits=tuple(waited), failure=Failure(kind=FailureKind.RATE_LIMITED, detail=detail)
                )
            waited.append(wait.seconds)
            waiting(wait)
            await _pause(wait.seconds)

    async def _once(self, request: Request, leave_after: int | None) -> SendResult:
        """What came of the request on one connection; on another where one that had been kept open turns out to be closed.

        A server may close a connection after any answer, llama.cpp does so without a word, and only the next request finds out. Where that request
        is itself the cause, it meets the same on a new connection.
        """
        while True:
            chunks: list[Chunk] = []
            heads: list[_Head] = []
            trace = _Trace()
            try:
                async with asyncio.timeout(self._settings.timeout * _WHOLE_EXCHANGE):
                    failure = await self._receive(request, chunks, heads, leave_after, trace)
            except TimeoutError:
                most = self._settings.timeout * _WHOLE_EXCHANGE
                failure = Failure(kind=FailureKind.TIMEOUT, detail=f"the answer was not complete after {most:g} s")
            except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, ssl.SSLError) as error:
                # those of host names and of TLS come through httpx as they are
                failure = failure_of(
                    error, self._settings.network, self._settings.timeout, trace.last, has_begun=bool(heads)
                )
                if failure.kind is FailureKind.RESET and not trace.is_new and STREAM_RESET not in failure.detail:
                    continue
            except ContentDecodingError as problem:
                failure = Failure(kind=FailureKind.MALFORMED_HTTP, detail=str(problem))
            return self._sent(heads, chunks, failure)

    async def _receive(
        self, request: Request, chunks: list[Chunk], heads: list[_Head], leave_after: int | None, trace: _Trace
    ) -> Failure | None:
        """Send the request and record what arrives, also where that breaks off.

        Raises:
            httpx.HTTPError: it did.
            BadCoding: the body is not in the content coding that its headers name.
        """
        transport, network = self._transport, self._settings.network
        if leave_after is not None and network.http2:
            # httpx does not reset a stream of HTTP/2: only the end of its connection shows the server that the client left
            transport = open_transport(self._settings.base, network)
        size = events = 0
        limit = self._settings.body_limit
        counting = EventDecoder()
        start = now()
        async with AsyncExitStack() as opened:
            if transport is not self._transport:
                opened.push_async_callback(transport.aclose)
            response = await transport.handle_async_request(self._httpx_request(request, trace))
            opened.push_async_callback(response.aclose)
            if response.status_code == _PROXY_AUTHENTICATION and network.proxy is not None:
                raise httpx.ProxyError(f"{_PROXY_AUTHENTICATION} {response.reason_phrase}")
            if response.status_code == _SWITCHED:
                raise httpx.RemoteProtocolError("the server switched protocols, which nothing asked for")
            head = _Head(status=response.status_code, headers=_told(response.headers.raw))
            heads.append(head)
            coding = decoder(head.headers.get("content-encoding", ""))
            async for data in _decoded(response, coding, limit):
                size += len(data)
                if size > limit:
                    return Failure(kind=FailureKind.TOO_LARGE, detail=f"the body is larger than {limit} bytes")
                if data:
                    chunks.append(Chunk(at=now() - start, data=data))
                events += len(counting.feed(data)) if leave_after is not None else 0
                if leave_after is not None and events >= leave_after:
                    return Failure(kind=FailureKind.CLIENT_LEFT, detail=f"the client left after {leave_after} events")
            if trailing_data(response):
                await response.extensions["network_stream"].aclose()
        return None

    def _httpx_request(self, request: Request, trace: _Trace) -> httpx.Request:
        """Return the request as httpx sends it. The URL of a path is read once: requests have many bodies and few paths."""
        if request.path not in self._urls:
            path = request.path.partition("#")[0].lstrip("/")
            self._urls[request.path] = httpx.URL(f"{self._settings.base.rstrip('/')}/{path}")
        return httpx.Request(
            request.method,
            self._urls[request.path],
            headers=self._headers_of(request),
            content=request.body,
            extensions={"timeout": self._timeouts, "trace": trace},
        )

    def _headers_of(self, request: Request) -> list[tuple[bytes, bytes]]:
        """The headers of a request as they cross the wire; a method that sends something says how much, also where that is nothing.

        Raises:
            httpx.LocalProtocolError: a header gives another length than that of the body.
        """
        headers = _together(self._headers, request.headers) if request.headers else self._headers
        length = str(len(request.body))
        given = next((value for name, value in headers.items() if name.lower() == _LENGTH), None)
        if given not in (None, length):
            raise httpx.LocalProtocolError(f"invalid {_LENGTH}: expected {length}, got {given}")
        if given is None and (request.body or request.method in _SENDING):
            headers = {**headers, "Content-Length": length}
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]

    def _sent(self, heads: list[_Head], chunks: list[Chunk], failure: Failure | None) -> SendResult:
        """What came, without secrets."""
        if failure is not None:
            failure = replace(failure, detail=self._mask.text(failure.detail))
        if not heads:
            return SendResult(failure=failure)
        (head,) = heads
        cookies = cookie_secrets(head.headers.items())
        mask = Mask((*self._secrets, *cookies)) if cookies else self._mask
        kept = {mask.text(name): mask.text(value) for name, value in head.headers.items() if name not in _NOT_KEPT}
        response = Response(status=head.status, headers=kept, chunks=mask.chunks(chunks))
        return SendResult(response=response, failure=failure)


@dataclass(frozen=True, kw_only=True)
class _Head:
    status: int
    headers: Mapping[str, str]


async def _decoded(response: httpx.Response, coding: Decoder | None, limit: int) -> AsyncGenerator[bytes]:
    """Yield the body piece by piece as it arrives, decoded; a piece that decodes to more than `limit` ends there, and so does the body."""
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for piece in response.stream:
        if coding is None:
            yield piece
        else:
            yield _joined(coding.decode(piece), limit)
    if coding is not None:
        yield _joined(coding.end(), limit)


def _joined(parts: Iterable[bytes], limit: int) -> bytes:
    """Join parts up to the first that goes beyond the limit."""
    joined = bytearray()
    for part in parts:
        joined += part
        if len(joined) > limit:
            break
    return bytes(joined)


def _together(*some: Mapping[str, str]) -> dict[str, str]:
    """Headers, of each name the last."""
    last = {name.lower(): (name, value) for headers in some for name, value in headers.items()}
    return dict(last.values())


def _told(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers as text, those of one name joined. They should be ASCII; where they are not, they are UTF-8 if they can be, all of them."""
    told: dict[str, str] = {}
    try:
        b"\n".join(value for _, value in headers).decode()
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "iso-8859-1"
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("ascii").lower(), raw_value.decode(encoding)
        told[name] = f"{told[name]}, {value}" if name in told else value
    return told


def run_async(work: Coroutine[object, object, Value]) -> Value:
    """What `work` answers, on a loop of its own.

    It is kept from `asyncio.run`, which before Python 3.13 spells out what its task has answered, to no end: for the results of a run, seconds.
    """
    answers: list[Value] = []

    async def without_answer() -> None:
        answers.append(await work)

    asyncio.run(without_answer())
    return answers[0]


def now() -> float:
    """The time of the loop, in seconds: what waits are measured in."""
    return asyncio.get_running_loop().time()


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)


def asks_too_much(response: Response) -> bool:
    """Whether a busy server asks for a wait that nobody makes."""
    wait = _wait(response, 1)
    return wait is not None and _is_hopeless(wait)


def is_longest(waited: Iterable[float]) -> bool:
    """Whether waits are as long as any get."""
    return sum(waited) >= _PATIENCE


def _is_hopeless(wait: Wait) -> bool:
    return wait.requested_seconds is not None and wait.requested_seconds > _PATIENCE


def _limited(response: Response | None) -> Failure | None:
    """That the server refuses for the number of requests, without a word of how long."""
    if response is None or response.status != _TOO_MANY:
        return None
    return Failure(kind=FailureKind.RATE_LIMITED, detail=f"HTTP {_TOO_MANY} without Retry-After")


def _wait(response: Response | None, place: int) -> Wait | None:
    """The wait that a busy server asks for, None where it does not."""
    if response is None or response.status not in (_TOO_MANY, _UNAVAILABLE):
        return None
    asked = response.headers.get("retry-after", "").strip()
    if asked.isascii() and asked.isdigit():
        return Wait(requested_seconds=float(asked), seconds=min(float(asked), _LONGEST_WAIT), attempt=place)
    try:
        until = parsedate_to_datetime(asked).timestamp()
    except (ValueError, OverflowError):
        return Wait(requested_seconds=None, seconds=_UNREADABLE_WAIT, attempt=place) if asked else None
    left = max(until - time.time(), 0.0)
    return Wait(requested_seconds=left, seconds=min(left, _LONGEST_WAIT), attempt=place)
