"""The client that sends streamed Responses requests over WebSockets, and every other request over HTTP.

Within `series_connections`, requests that follow each other share one connection. A request that is sent meanwhile opens another one,
because a connection carries one response at a time. With `in_flight`, it is sent on the busy connection, and gets the messages after the first answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from types import TracebackType
from typing import TypeVar

import httpx

from harmony_conformance.transport.client import (
    EXCHANGE_TIMEOUT_FACTOR,
    MOST_CHUNKS,
    Client,
    ConnectionSettings,
    HttpHead,
    SendResult,
    now,
)
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request
from harmony_conformance.transport.websocket import (
    EVENT_STREAM_HEADERS,
    JSON_HEADERS,
    WebSocket,
    WebSocketFailedError,
    WebSocketRefusedError,
    as_server_sent_event,
    create_message,
    ends_turn,
    error_status,
    is_error,
    read_message,
)
from harmony_conformance.transport.websocket_network import open_websocket

_OK, _FIRST_REDIRECT = 200, 300
_Value = TypeVar("_Value")

OpenWebSocket = Callable[[ConnectionSettings, Request], Awaitable[WebSocket]]
"""A function that opens a connection for a request: to its path, and with its headers."""


@dataclass(kw_only=True, eq=False)
class _Connection:
    """A connection with its number in the run, and the headers of its handshake. `receiving` is held by the request whose answer is read."""

    socket: WebSocket
    number: int
    headers: Mapping[str, str]
    in_flight: int = 0
    is_reusable: bool = True
    receiving: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(kw_only=True)
class _Series:
    """The connections of a series. `sending` is held from the choice of a connection until the message is sent."""

    in_flight: bool
    opened: list[_Connection] = field(default_factory=list[_Connection])
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    def find(self, headers: Mapping[str, str]) -> _Connection | None:
        """Return an open connection with these headers, or None. It is free unless requests may be sent while others are answered."""
        usable = (one for one in self.opened if one.is_reusable and (self.in_flight or not one.in_flight))
        return next((one for one in usable if one.headers == headers), None)


@dataclass(kw_only=True)
class _Turn:
    """State of one request: what arrived, and whether the next request may use its connection."""

    start: float
    heads: list[HttpHead] = field(default_factory=list[HttpHead])
    chunks: list[Chunk] = field(default_factory=list[Chunk])
    size: int = 0
    is_reusable: bool = False


_SERIES: ContextVar[_Series | None] = ContextVar("websocket_series", default=None)


@asynccontextmanager
async def series_connections(*, over_websocket: bool, in_flight: bool = False) -> AsyncGenerator[None]:
    """Send streamed Responses requests of this context over WebSockets, and close these at its end.

    `in_flight`: requests at the same time share a connection.
    """
    if not over_websocket:
        yield
        return
    series = _Series(in_flight=in_flight)
    token = _SERIES.set(series)
    try:
        yield
    finally:
        _SERIES.reset(token)
        await asyncio.gather(*(connection.socket.close() for connection in series.opened))


class WebSocketClient(Client):
    """A client of one endpoint that also speaks WebSocket."""

    def __init__(
        self,
        settings: ConnectionSettings,
        transport: httpx.AsyncBaseTransport | None = None,
        connect: OpenWebSocket = open_websocket,
    ) -> None:
        """Create a client. `transport` and `connect` replace the network, for example for the reference server.

        Raises:
            UsageError: A certificate file is unreadable.
        """
        super().__init__(settings, transport)
        self._connect = connect
        self._numbers = count(1)
        self._open: set[WebSocket] = set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close every connection."""
        await asyncio.gather(*(socket.close() for socket in self._open))
        await super().__aexit__(kind, error, trace)

    async def _send_once(self, request: Request, leave_after: int | None) -> SendResult:
        series = _SERIES.get()
        message = create_message(request) if series is not None else None
        if series is None or message is None:
            return await super()._send_once(request, leave_after)
        turn = _Turn(start=now())
        connection: _Connection | None = None
        failure: Failure | None = None
        try:
            async with asyncio.timeout(self._settings.timeout * EXCHANGE_TIMEOUT_FACTOR):
                async with series.sending:
                    connection = series.find(request.headers) or await self._open_connection(series, request)
                    connection.in_flight += 1
                    await self._in_time(connection.socket.send(message))
                async with connection.receiving:
                    failure = await self._receive_turn(connection.socket, turn, leave_after)
        except TimeoutError:
            most = self._settings.timeout * EXCHANGE_TIMEOUT_FACTOR
            failure = Failure(kind=FailureKind.TIMEOUT, detail=f"the answer was not complete after {most:g} s")
        except WebSocketRefusedError as refused:
            failure = _note_refusal(refused, turn)
        except WebSocketFailedError as problem:
            is_cut = problem.failure.kind is FailureKind.RESET and bool(turn.chunks)
            failure = replace(problem.failure, kind=FailureKind.CUT) if is_cut else problem.failure
        if connection is not None:
            connection.in_flight -= 1
            connection.is_reusable &= turn.is_reusable
            if not connection.is_reusable and not connection.in_flight:
                await connection.socket.close()
                self._open.discard(connection.socket)
        result = self._masked_result(turn.heads, turn.chunks, failure)
        return replace(result, websocket=connection.number if connection is not None else None)

    async def _open_connection(self, series: _Series, request: Request) -> _Connection:
        socket = await self._connect(self._settings, request)
        connection = _Connection(socket=socket, number=next(self._numbers), headers=request.headers)
        self._open.add(socket)
        series.opened.append(connection)
        return connection

    async def _receive_turn(self, socket: WebSocket, turn: _Turn, leave_after: int | None) -> Failure | None:
        """Record the events of an answer in `turn`, also before an error.

        Raises:
            WebSocketFailedError: The connection ended, or no message arrived in time.
        """
        limit = self._settings.body_limit
        while True:
            received = await self._in_time(socket.receive())
            event = read_message(received)
            status = error_status(event) if not turn.chunks else None
            data = received.encode("utf-8", "surrogateescape") if status else as_server_sent_event(received)
            if not turn.heads:
                headers = EVENT_STREAM_HEADERS if status is None else JSON_HEADERS
                turn.heads.append(HttpHead(status=status or _OK, headers=headers))
            turn.size += len(data)
            if turn.size > limit:
                return Failure(kind=FailureKind.TOO_LARGE, detail=f"the messages are larger than {limit} bytes")
            if len(turn.chunks) == MOST_CHUNKS:
                return Failure(kind=FailureKind.TOO_LARGE, detail=f"the answer has more than {MOST_CHUNKS} messages")
            turn.chunks.append(Chunk(arrival_time=now() - turn.start, data=data))
            if ends_turn(event):
                # an error amid a response may be followed by the event that ends it
                turn.is_reusable = not is_error(event) or len(turn.chunks) == 1
                return None
            if leave_after is not None and len(turn.chunks) >= leave_after:
                return Failure(kind=FailureKind.CLIENT_LEFT, detail=f"the client left after {leave_after} events")

    async def _in_time(self, step: Awaitable[_Value]) -> _Value:
        timeout = self._settings.timeout
        try:
            async with asyncio.timeout(timeout):
                return await step
        except TimeoutError:
            failure = Failure(kind=FailureKind.TIMEOUT, detail=f"no WebSocket message arrived for {timeout:g} s")
            raise WebSocketFailedError(failure) from None


def _note_refusal(refused: WebSocketRefusedError, turn: _Turn) -> Failure | None:
    """Record the response to a refused handshake. One without an error status is a failure."""
    turn.heads.append(HttpHead(status=refused.status, headers=refused.headers))
    if refused.body:
        turn.chunks.append(Chunk(arrival_time=now() - turn.start, data=refused.body))
    if refused.status >= _FIRST_REDIRECT:
        return None
    turn.heads.clear()
    detail = f"the server answered the WebSocket handshake with HTTP {refused.status}, expected 101"
    return Failure(kind=FailureKind.MALFORMED_HTTP, detail=detail)
