"""In-memory HTTP transport to an ASGI application, and an event loop with a simulated clock.

Requests and responses are the same as over a socket, event by event, at a third of the cost.
When all tasks wait, the clock jumps to the end of the shortest wait.
Slow streams therefore take no real time, and runs are reproducible on any machine.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import AsyncIterator, Collection, Coroutine, Iterable
from typing import Any, TypeVar
from urllib.parse import unquote

import httpx
from starlette.types import ASGIApp, Message, Scope

from harmony_conformance.reference_server.server.app import create_app
from harmony_conformance.selftest.in_memory_websocket import websocket_opener
from harmony_conformance.transport.client import Client, ConnectionSettings, now
from harmony_conformance.transport.websocket_client import WebSocketClient

_HOST = "reference"
_INTERVAL = 0.001  # seconds between two requests that are sent at the same time
_CUT = "peer closed connection without sending complete message body (incomplete chunked read)"  # as httpx reports it
_Value = TypeVar("_Value")


def run_with_simulated_clock(coroutine: Coroutine[Any, Any, _Value]) -> _Value:
    """Run a coroutine with the simulated clock. It must not depend on sockets, files or threads."""
    loop = _SimulatedLoop()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        # a server with a defect may continue after its client has disconnected
        loop.run_until_complete(_cancel(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _cancel(tasks: Collection[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def reference_client(defects: Iterable[str]) -> Client:
    """Return a client of a new reference server with these defects.

    Raises:
        LookupError: a defect is unknown.
    """
    return application_client(create_app(defects=defects))


def application_client(app: ASGIApp) -> Client:
    """Return a client of an application."""
    settings = ConnectionSettings(base_url=f"http://{_HOST}", headers={})
    return WebSocketClient(settings, _AsgiTransport(app), websocket_opener(app))


class _SimulatedSelector(selectors.DefaultSelector):
    """The simulated time in seconds; it advances only in `select`."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock: every task waits for another task")
        self.now += max(0.0, timeout)
        return []


class _SimulatedLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _SimulatedSelector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


class _AsgiTransport(httpx.AsyncBaseTransport):
    """Calls the application for each request, like a server: streams its response and reports disconnects to it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._tasks: set[asyncio.Task[None]] = set()
        self._next_start = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # requests that are sent at the same time arrive one after another
        self._next_start = max(self._next_start, now()) + _INTERVAL
        await asyncio.sleep(self._next_start - now())
        call = _Call(request.content)
        task = asyncio.create_task(call.run(self._app, _scope(request)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        start = await call.next_message()
        return httpx.Response(start["status"], headers=start["headers"], stream=call)

    async def aclose(self) -> None:
        await _cancel(self._tasks)


def _scope(request: httpx.Request) -> Scope:
    raw_path, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},  # as in uvicorn
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": "http",
        "path": unquote(raw_path.decode("ascii")),
        "raw_path": raw_path,
        "query_string": query,
        "server": (_HOST, None),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }


class _Call(httpx.AsyncByteStream):
    """One request, the ASGI messages of its response that are not read yet, and the state of the connection."""

    def __init__(self, body: bytes) -> None:
        self._requests: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._responses: asyncio.Queue[Message | None] = asyncio.Queue()
        self._closed = asyncio.Event()

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Run the application for this request. Its exceptions close the connection."""
        try:
            await app(scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - a server logs it and closes the connection
            self._closed.set()
        self._responses.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body in the pieces that the application sends."""
        has_more = True
        while has_more:
            message = await self.next_message()
            has_more = message.get("more_body", False)
            if message.get("body"):
                yield bytes(message["body"])

    async def next_message(self) -> Message:
        """Return the next message of the application.

        Raises:
            httpx.RemoteProtocolError: the application ended before the end of the response.
        """
        message = await self._responses.get()
        if message is None:
            raise httpx.RemoteProtocolError(_CUT)
        return message

    async def aclose(self) -> None:
        """Disconnect the client."""
        self._closed.set()

    async def _receive(self) -> Message:
        if self._requests:
            return self._requests.pop()
        await self._closed.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self._closed.is_set():
            self._responses.put_nowait(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._closed.set()
