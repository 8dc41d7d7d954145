"""In-memory WebSocket to an ASGI application, for the client of the suite."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Scope

from harmony_conformance.transport.client import ConnectionSettings
from harmony_conformance.transport.messages import Failure, FailureKind, Request
from harmony_conformance.transport.websocket import WebSocketFailedError, WebSocketRefusedError
from harmony_conformance.transport.websocket_client import OpenWebSocket

_REFUSED = 403


def websocket_opener(app: ASGIApp) -> OpenWebSocket:
    """Return a function that opens connections to an application."""

    async def connect(settings: ConnectionSettings, request: Request) -> _MemorySocket:
        socket = _MemorySocket(app, _scope(settings, request))
        await socket.open()
        return socket

    return connect


def _scope(settings: ConnectionSettings, request: Request) -> Scope:
    host, path = urlsplit(settings.base_url).netloc, request.path
    headers = {"host": host, **{name.lower(): value for name, value in settings.headers.items()}, **request.headers}
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "scheme": "ws",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "server": (host, None),
        "subprotocols": [],
    }


class _MemorySocket:
    """A connection: the messages in both directions that are not read yet."""

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._to_server: asyncio.Queue[Message] = asyncio.Queue()
        self._to_client: asyncio.Queue[Message | None] = asyncio.Queue()
        self._is_closed = False
        self._task = asyncio.create_task(self._run(app, scope))

    async def open(self) -> None:
        """Wait for the answer to the handshake.

        Raises:
            WebSocketRefusedError: The application refuses the handshake.
        """
        self._to_server.put_nowait({"type": "websocket.connect"})
        answer = await self._to_client.get()
        if answer is None or answer["type"] != "websocket.accept":
            raise WebSocketRefusedError(_REFUSED, {}, b"")

    async def send(self, message: str) -> None:
        self._to_server.put_nowait({"type": "websocket.receive", "text": message})

    async def receive(self) -> str:
        message = await self._to_client.get()
        if message is not None and message["type"] == "websocket.send":
            return str(message["text"])
        self._to_client.put_nowait(message)  # it stays closed
        ends = "ended without a close frame"
        if message is not None:
            ends = f"was closed by the server with code {message.get('code', 1000)}"
        raise WebSocketFailedError(Failure(kind=FailureKind.RESET, detail=f"the WebSocket {ends}"))

    async def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._to_server.put_nowait({"type": "websocket.disconnect", "code": 1000})
            with suppress(asyncio.CancelledError):
                await self._task

    async def _run(self, app: ASGIApp, scope: Scope) -> None:
        with suppress(Exception):  # a server logs it and closes the connection
            await app(scope, self._to_server.get, self._send)
        self._to_client.put_nowait(None)

    async def _send(self, message: Message) -> None:
        if self._is_closed:
            raise OSError("the client has left")
        self._to_client.put_nowait(message)
