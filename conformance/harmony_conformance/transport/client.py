"""The HTTP client: send a request, record the response's chunks with their times, and translate every error to a `Failure`.

A key is sent only to the target's host: redirects are never followed. Secrets that a server echoes are masked before anything is recorded.

The client uses transports of httpx, whose streams yield each HTTP chunk as it arrives, also if an error follows in the same packet.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self, TypeVar

import httpx

from harmony_conformance.runtime.plural import number_of
from harmony_conformance.transport.content_coding import (
    ACCEPT_ENCODING,
    BodyDecoder,
    ContentDecodingError,
    DecodedSizeError,
    UnsupportedCodingError,
)
from harmony_conformance.transport.http_transport import (
    STREAM_RESET,
    Network,
    failure_of,
    open_transport,
    trailing_data,
)
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response
from harmony_conformance.transport.redaction import Mask, cookie_secrets, header_secrets
from harmony_conformance.transport.sse import EventDecoder
from harmony_conformance.transport.waits import (
    MAX_TOTAL_WAIT,
    MOST_WAITS,
    NOTICE_INTERVAL,
    SLOW_SECONDS,
    TOO_MANY,
    Notice,
    SlowAnswer,
    ignore_wait,
    is_too_long,
    requested_wait,
)

MOST_CHUNKS = 1_000_000  # of a body: one of single bytes would need far more memory than its size
BODY_LIMIT = 10 * 1024 * 1024  # bytes: escaped as JSON it still fits the line limit of recordings
_LONGEST_DETAIL = 300  # characters
_SWITCHED, _PROXY_AUTHENTICATION = 101, 407
EXCHANGE_TIMEOUT_FACTOR = 10  # times the timeout
_SECRET_HEADERS = frozenset({"set-cookie", "authorization"})
_METHODS_WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
_LENGTH = "content-length"
_USUAL_HEADERS: Mapping[str, str] = {
    "Accept-Encoding": ACCEPT_ENCODING,
    "Connection": "keep-alive",
    "user-agent": "harmony-conformance",
}
_MEDIA_TYPES: Mapping[str, str] = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
Value = TypeVar("Value")


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """The settings of a connection. `headers` are sent with every request; the API key is never recorded.

    `timeout` is the longest time without a byte, in seconds. `body_limit` is the size of the largest response body, in bytes.
    """

    base_url: str
    api_key: str | None = None
    headers: Mapping[str, str]
    timeout: float = 60.0
    body_limit: int = BODY_LIMIT
    network: Network = field(default_factory=Network)
    secrets: tuple[str, ...] = ()  # more than those of key, headers and network


@dataclass(frozen=True, kw_only=True)
class SendResult:
    """The result of one request: a response, a failure, or both if the body is truncated.

    `retry_waits` are in seconds. `websocket` is the number of the WebSocket connection, None for HTTP and for a handshake that failed.
    """

    response: Response | None = None
    failure: Failure | None = None
    retry_waits: tuple[float, ...] = ()
    websocket: int | None = None


SendRequest = Callable[[Request], Awaitable[SendResult]]
"""An asynchronous function that sends a request."""


class _Trace:
    """The connection state of one request, from httpx's trace events."""

    def __init__(self) -> None:
        self.is_new = False
        self.last_event = ""

    async def __call__(self, event: str, _: object) -> None:
        self.last_event = event
        self.is_new = self.is_new or ".connect_" in event


class Client:
    """The HTTP client of one endpoint, an asynchronous context manager."""

    def __init__(self, settings: ConnectionSettings, transport: httpx.AsyncBaseTransport | None = None) -> None:
        """Create a client. `transport` replaces the network, for example for the reference server.

        Raises:
            UsageError: A certificate file is unreadable.
        """
        self._settings = settings
        words = (*header_secrets(settings.api_key, settings.headers), *settings.network.secrets, *settings.secrets)
        self._secrets = tuple(dict.fromkeys(words))
        self._mask = Mask(self._secrets)
        authorization = {"authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
        self._headers = _merge_headers(_USUAL_HEADERS, settings.headers, authorization, _MEDIA_TYPES)
        self._transport = transport or open_transport(settings.base_url, settings.network)
        self._urls: dict[str, httpx.URL] = {}
        self._next_notice = 0.0
        self._timeouts = dict.fromkeys(("connect", "read", "write"), settings.timeout)

    async def __aenter__(self) -> Self:
        """Return the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await self._transport.aclose()

    async def send(
        self, request: Request, on_wait: Callable[[Notice], None] = ignore_wait, leave_after: int | None = None
    ) -> SendResult:
        """Send a request. Retry a 429 or 503 with Retry-After at most three times, after waiting up to 60 s each.

        If the server asks for more than 180 s, as for a daily limit, the client does not wait at all.
        A final 429 is a failure of the kind RATE_LIMITED, also without Retry-After.

        Args:
            request: The request.
            on_wait: A callback for each wait, and for an answer that does not come for some seconds.
            leave_after: Close the connection after this number of stream events, or None.
        """
        waits: list[float] = []
        while True:
            with self._slow_answer_reported(request, on_wait):
                result = await self._send_once(request, leave_after)
            status, failure = result.response.status if result.response else 0, result.failure
            wait = requested_wait(result.response, len(waits) + 1)
            if wait is None:
                if failure is None and status == TOO_MANY:
                    failure = Failure(kind=FailureKind.RATE_LIMITED, detail=f"HTTP {status} without Retry-After")
                return replace(result, retry_waits=tuple(waits), failure=failure)
            is_hopeless = is_too_long(wait)
            if len(waits) == MOST_WAITS or is_hopeless:
                detail = f"HTTP {status} after {number_of(len(waits), 'wait')}"
                detail += f", and the server asks to wait longer than {MAX_TOTAL_WAIT:.0f} s" if is_hopeless else ""
                failure = Failure(kind=FailureKind.RATE_LIMITED, detail=detail)
                return replace(result, retry_waits=tuple(waits), failure=failure)
            waits.append(wait.seconds)
            on_wait(wait)
            await _pause(wait.seconds)

    @contextmanager
    def _slow_answer_reported(self, request: Request, on_wait: Callable[[Notice], None]) -> Generator[None]:
        """Report a request that is not answered for some seconds, one within half a minute."""

        def report() -> None:
            if now() >= self._next_notice:
                self._next_notice = now() + NOTICE_INTERVAL
                on_wait(SlowAnswer(method=request.method, path=request.path, timeout=self._settings.timeout))

        if on_wait is ignore_wait:
            yield
            return
        timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, report)
        try:
            yield
        finally:
            timer.cancel()

    async def _send_once(self, request: Request, leave_after: int | None) -> SendResult:
        """Send the request without waits. Retry on a new connection if a reused one turns out to be closed.

        Servers may close a connection after any response, llama.cpp without notice. If the request itself is the cause, the retry on a
        new connection fails the same way.
        """
        while True:
            chunks: list[Chunk] = []
            heads: list[HttpHead] = []
            trace = _Trace()
            try:
                async with asyncio.timeout(self._settings.timeout * EXCHANGE_TIMEOUT_FACTOR):
                    failure = await self._receive(request, chunks, heads, leave_after, trace)
            except TimeoutError:
                most = self._settings.timeout * EXCHANGE_TIMEOUT_FACTOR
                failure = Failure(kind=FailureKind.TIMEOUT, detail=f"the answer was not complete after {most:g} s")
            except (httpx.HTTPError, httpx.InvalidURL, UnicodeError, ssl.SSLError) as error:
                # httpx does not wrap errors of host names and TLS
                failure = failure_of(
                    error, self._settings.network, self._settings.timeout, trace.last_event, has_begun=bool(heads)
                )
                if failure.kind is FailureKind.RESET and not trace.is_new and STREAM_RESET not in failure.detail:
                    continue
            except DecodedSizeError:
                failure = Failure(
                    kind=FailureKind.TOO_LARGE, detail=f"the body is larger than {self._settings.body_limit} bytes"
                )
            except ContentDecodingError as problem:
                failure = Failure(kind=FailureKind.MALFORMED_HTTP, detail=str(problem))
            return self._masked_result(heads, chunks, failure)

    async def _receive(
        self, request: Request, chunks: list[Chunk], heads: list[HttpHead], leave_after: int | None, trace: _Trace
    ) -> Failure | None:
        """Send the request and record in `heads` and `chunks` what arrives, also before an error.

        Raises:
            httpx.HTTPError: The connection or the response failed.
            DecodedSizeError: The body is larger than the limit.
            ContentDecodingError: The body is not in the content coding that its header names.
        """
        transport, network = self._transport, self._settings.network
        events, event_counter, limit = 0, EventDecoder(), self._settings.body_limit
        async with AsyncExitStack() as stack:
            if leave_after is not None and network.http2:
                # httpx does not reset HTTP/2 streams: only the end of the connection shows the server that the client left
                transport = open_transport(self._settings.base_url, network)
                stack.push_async_callback(transport.aclose)
            start = now()
            response = await transport.handle_async_request(self._httpx_request(request, trace))
            stack.push_async_callback(response.aclose)
            if response.status_code == _PROXY_AUTHENTICATION and network.proxy is not None:
                raise httpx.ProxyError(f"{_PROXY_AUTHENTICATION} {response.reason_phrase}")
            if response.status_code == _SWITCHED:
                raise httpx.RemoteProtocolError("the server switched protocols, which the client did not request")
            head = HttpHead(status=response.status_code, headers=_decode_headers(response.headers.raw))
            heads.append(head)
            async for data in _decoded(response, head.headers.get("content-encoding", ""), limit):
                if len(chunks) == MOST_CHUNKS:
                    return Failure(kind=FailureKind.TOO_LARGE, detail=f"the body has more than {MOST_CHUNKS} chunks")
                if data:
                    chunks.append(Chunk(arrival_time=now() - start, data=data))
                events += len(event_counter.feed(data)) if leave_after is not None else 0
                if leave_after is not None and events >= leave_after:
                    return Failure(kind=FailureKind.CLIENT_LEFT, detail=f"the client left after {leave_after} events")
            if trailing_data(response):
                await response.extensions["network_stream"].aclose()
        return None

    def _httpx_request(self, request: Request, trace: _Trace) -> httpx.Request:
        """Return the request for httpx. URLs are cached by path."""
        if request.path not in self._urls:
            path = request.path.partition("#")[0].lstrip("/")
            self._urls[request.path] = httpx.URL(f"{self._settings.base_url.rstrip('/')}/{path}")
        return httpx.Request(
            request.method,
            self._urls[request.path],
            headers=self._headers_of(request),
            content=request.body,
            extensions={"timeout": self._timeouts, "trace": trace},
        )

    def _headers_of(self, request: Request) -> list[tuple[bytes, bytes]]:
        """Return the headers of a request, with Content-Length for methods that send a body, even an empty one.

        Raises:
            httpx.LocalProtocolError: A header has another length than the body.
        """
        headers = _merge_headers(self._headers, request.headers) if request.headers else self._headers
        length = str(len(request.body))
        declared = next((value for name, value in headers.items() if name.lower() == _LENGTH), None)
        if declared not in (None, length):
            raise httpx.LocalProtocolError(f"invalid {_LENGTH}: expected {length}, got {declared}")
        if declared is None and (request.body or request.method in _METHODS_WITH_BODY):
            headers = {**headers, "Content-Length": length}
        return [(name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()]

    def _masked_result(self, heads: list[HttpHead], chunks: list[Chunk], failure: Failure | None) -> SendResult:
        if failure is not None:
            detail = self._mask.mask_text(failure.detail)  # before it is shortened: a part of a secret would stay
            is_long = len(detail) > _LONGEST_DETAIL
            failure = replace(failure, detail=f"{detail[:_LONGEST_DETAIL]}…" if is_long else detail)
        if not heads:
            return SendResult(failure=failure)
        (head,) = heads
        cookies = cookie_secrets(head.headers.items())
        mask = Mask((*self._secrets, *cookies)) if cookies else self._mask
        headers = {
            mask.mask_text(name): mask.mask_text(value)
            for name, value in head.headers.items()
            if name not in _SECRET_HEADERS
        }
        response = Response(status=head.status, headers=headers, chunks=mask.mask_chunks(chunks))
        return SendResult(response=response, failure=failure)


@dataclass(frozen=True, kw_only=True)
class HttpHead:
    """Status and headers of a response, header names in lower case."""

    status: int
    headers: Mapping[str, str]


async def _decoded(response: httpx.Response, content_encoding: str, limit: int) -> AsyncGenerator[bytes]:
    """Yield the decoded body piece by piece as it arrives. A body in an unsupported coding stays encoded.

    Raises:
        DecodedSizeError: The body is larger than `limit` bytes, encoded or decoded.
        ContentDecodingError: The body is not in the content coding that its header names.
    """
    try:
        decoder = BodyDecoder(content_encoding)
    except UnsupportedCodingError:
        decoder = BodyDecoder("identity")
    received, size = 0, 0
    assert isinstance(response.stream, httpx.AsyncByteStream)
    async for piece in response.stream:
        received += len(piece)
        data = decoder.feed(piece, limit=limit - size)
        size += len(data)
        if max(received, size) > limit:
            raise DecodedSizeError
        yield data
    decoder.end()


def _merge_headers(*several: Mapping[str, str]) -> dict[str, str]:
    """Merge headers. Later values replace earlier ones of the same name in any case."""
    return dict({name.lower(): (name, value) for headers in several for name, value in headers.items()}.values())


def _decode_headers(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Decode headers as UTF-8 if all values are valid, else as Latin-1. Join values of the same name."""
    decoded: dict[str, str] = {}
    try:
        b"\n".join(value for _, value in headers).decode()
        encoding = "utf-8"
    except UnicodeDecodeError:
        encoding = "iso-8859-1"
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("ascii").lower(), raw_value.decode(encoding)
        decoded[name] = f"{decoded[name]}, {value}" if name in decoded else value
    return decoded


def run_async(work: Coroutine[object, object, Value]) -> Value:
    """Run `work` on a new event loop and return its result.

    The result bypasses `asyncio.run`: before Python 3.13 that computes the result's `repr`, which takes seconds for a run.
    """
    results: list[Value] = []

    async def store_result() -> None:
        results.append(await work)

    asyncio.run(store_result())
    return results[0]


def now() -> float:
    """Return the event loop's monotonic time in seconds."""
    return asyncio.get_running_loop().time()


async def _pause(seconds: float) -> None:
    await asyncio.sleep(seconds)
