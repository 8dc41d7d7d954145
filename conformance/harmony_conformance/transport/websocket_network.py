"""Open a WebSocket with the connection options of a run, and translate the errors of the library to a `Failure`.

The library `websockets` is in the extra `websocket`, so it is imported on first use. Compression is not offered: a compressed message cannot
grow on this side. A frame and a message have the size limit of a body. Redirects are not followed.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import httpx

from harmony_conformance.transport.client import ConnectionSettings
from harmony_conformance.transport.http_transport import client_tls_context, failure_of, proxy_tls_context
from harmony_conformance.transport.messages import Failure, FailureKind, Request
from harmony_conformance.transport.websocket import WebSocket, WebSocketFailedError, WebSocketRefusedError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import ConnectionClosed

_CLOSE_SECONDS = 1.0
_TOO_LARGE = 1009
_MALFORMED = frozenset({1002, 1007})
_CONNECT_EVENT = "connection.connect_tcp"
_NOT_SENT = frozenset({"connection", "content-length", "host", "transfer-encoding", "upgrade"})


def has_websockets() -> bool:
    """Return True if the library of the extra `websocket` is installed."""
    return find_spec("websockets") is not None


async def open_websocket(settings: ConnectionSettings, request: Request) -> WebSocket:
    """Return an open connection to the path of a request, with its headers.

    Raises:
        WebSocketRefusedError: The server answered by another HTTP status than 101.
        WebSocketFailedError: There is no connection.
    """
    from websockets.asyncio.client import connect  # noqa: PLC0415 - an extra
    from websockets.exceptions import InvalidHandshake, InvalidStatus  # noqa: PLC0415 - an extra

    class Connect(connect):
        """The library's handshake, without redirects: a key is sent to the target's host only."""

        def process_redirect(self, exc: Exception) -> Exception | str:
            return exc

    network, base = settings.network, settings.base_url.rstrip("/")
    options: dict[str, Any] = {}
    if base.startswith("https:"):
        options["ssl"] = client_tls_context(base, network)
    if network.unix_socket is not None:
        options |= {"unix": True, "path": network.unix_socket}
    if network.proxy is not None and network.proxy.startswith("https:"):
        options["proxy_ssl"] = proxy_tls_context(network)
    try:
        connection = await Connect(
            f"ws{base.removeprefix('http')}/{request.path.lstrip('/')}",
            additional_headers=_headers(settings, request),
            user_agent_header=None,
            proxy=network.proxy,
            compression=None,
            max_size=settings.body_limit,
            open_timeout=settings.timeout,
            close_timeout=_CLOSE_SECONDS,
            ping_interval=None,
            **options,
        )
    except InvalidStatus as refused:
        headers = {name.lower(): value for name, value in refused.response.headers.raw_items()}
        body = bytes(refused.response.body or b"")
        raise WebSocketRefusedError(refused.response.status_code, headers, body) from None
    except (OSError, InvalidHandshake, EOFError, UnicodeError, ValueError) as error:
        raise WebSocketFailedError(_open_failure(error, settings)) from None
    return _LibrarySocket(connection, settings.body_limit)


def _headers(settings: ConnectionSettings, request: Request) -> Mapping[str, str]:
    """Return the headers of the handshake, with the precedence that they have over HTTP."""
    key = {"authorization": f"Bearer {settings.api_key}"} if settings.api_key else {}
    own = {name.lower(): value for name, value in settings.headers.items()}
    headers = {"user-agent": "harmony-conformance", **own, **key, **request.headers}
    return {name: value for name, value in headers.items() if name not in _NOT_SENT}


class _LibrarySocket:
    """A connection of the library."""

    def __init__(self, connection: ClientConnection, limit: int) -> None:
        self._connection, self._limit = connection, limit

    async def send(self, message: str) -> None:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - an extra

        try:
            await self._connection.send(message)
        except ConnectionClosed as closed:
            raise WebSocketFailedError(_close_failure(closed, self._limit)) from None

    async def receive(self) -> str:
        from websockets.exceptions import ConnectionClosed  # noqa: PLC0415 - an extra

        try:
            message = await self._connection.recv()
        except ConnectionClosed as closed:
            raise WebSocketFailedError(_close_failure(closed, self._limit)) from None
        if isinstance(message, str):
            return message
        detail = f"invalid WebSocket message: expected text, got {len(message)} bytes of binary data"
        raise WebSocketFailedError(Failure(kind=FailureKind.MALFORMED_HTTP, detail=detail))

    async def close(self) -> None:
        await self._connection.close()


def _close_failure(closed: ConnectionClosed, limit: int) -> Failure:
    """Return the failure for the end of a connection, by its close frames."""
    sent = closed.sent if not closed.rcvd_then_sent else None
    if sent is not None and sent.code == _TOO_LARGE:
        return Failure(kind=FailureKind.TOO_LARGE, detail=f"a WebSocket message is larger than {limit} bytes")
    if sent is not None and sent.code in _MALFORMED:
        return Failure(kind=FailureKind.MALFORMED_HTTP, detail=_one_line(f"invalid WebSocket frame: {sent.reason}"))
    if closed.rcvd is None:
        return Failure(kind=FailureKind.RESET, detail="the WebSocket ended without a close frame")
    reason = f" ({closed.rcvd.reason})" if closed.rcvd.reason else ""
    detail = f"the server closed the WebSocket with code {closed.rcvd.code}{reason}"
    return Failure(kind=FailureKind.RESET, detail=_one_line(detail))


def _open_failure(error: Exception, settings: ConnectionSettings) -> Failure:
    """Return the failure for a handshake that did not succeed, in the same words as over HTTP."""
    from websockets.exceptions import InvalidMessage, ProxyError  # noqa: PLC0415 - an extra

    network, timeout = settings.network, settings.timeout
    if isinstance(error, TimeoutError):
        detail = f"no answer to the WebSocket handshake within {timeout:g} s"
        return Failure(kind=FailureKind.TIMEOUT, detail=detail)
    if isinstance(error, ProxyError):
        detail = _one_line(f"proxy {network.proxy_address}: {error}")
        return Failure(kind=FailureKind.NO_CONNECTION, detail=detail)
    is_closed = isinstance(error, InvalidMessage) and isinstance(error.__cause__, EOFError | OSError)
    if is_closed or isinstance(error, ConnectionResetError):
        return Failure(kind=FailureKind.RESET, detail="the server closed the connection during the WebSocket handshake")
    if isinstance(error, OSError | UnicodeError) or isinstance(error.__cause__, ssl.SSLError):
        refused = httpx.ConnectError(str(error))
        refused.__cause__ = error
        return failure_of(refused, network, timeout, _CONNECT_EVENT, has_begun=False)
    detail = _one_line(f"invalid answer to the WebSocket handshake: {error}")
    return Failure(kind=FailureKind.MALFORMED_HTTP, detail=detail)


def _one_line(detail: str) -> str:
    return " ".join(detail.split())
