"""The reference server without a wire, and without waiting: what carries requests calls the application, and a loop whose clock jumps.

What is sent and what comes back is what the wire would have carried, event by event; it costs a third. A stream that takes its time takes none of ours:
where all that is left is to wait, the clock goes on to the end of the wait. So two runs are equal, whatever the machine's pace.
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
from harmony_conformance.transport.client import Client, ConnectionSettings, now

_HOST = "reference"
_APART = 0.001  # seconds from one request to the next: nothing carries two at the same moment
_CUT = "peer closed connection without sending complete message body (incomplete chunked read)"
_Value = TypeVar("_Value")


def at_once(coroutine: Coroutine[Any, Any, _Value]) -> _Value:
    """Run a coroutine that waits for nothing but itself, in no time."""
    loop = _Jumping()
    try:
        return loop.run_until_complete(coroutine)
    finally:
        loop.run_until_complete(_end(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end(tasks: Collection[asyncio.Task[Any]]) -> None:
    """Take back what is under way: a server with a defect may go on for a client that has left."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def client_of(defects: Iterable[str]) -> Client:
    """A client of a reference server of its own, with these defects.

    Raises:
        LookupError: there is no such defect.
    """
    return client_to(create_app(defects=defects))


def client_to(app: ASGIApp) -> Client:
    """A client of an application."""
    return Client(ConnectionSettings(base=f"http://{_HOST}", headers={}), _Direct(app))


class _Waits(selectors.DefaultSelector):
    """State: what time it is. Waiting moves the clock, and nothing else does."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("all are waiting for each other")
        self.now += max(0.0, timeout)
        return []


class _Jumping(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._waits = _Waits()
        super().__init__(self._waits)

    def time(self) -> float:
        return self._waits.now


class _Direct(httpx.AsyncBaseTransport):
    """Calls the application for each request, as a server would: its answer is read as it comes, and it is told when the client leaves."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._under_way: set[asyncio.Task[None]] = set()
        self._free = 0.0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        # those that are sent at the same moment arrive one after another
        self._free = max(self._free, now()) + _APART
        await asyncio.sleep(self._free - now())
        call = _Call(request.content)
        task = asyncio.create_task(call.answer(self._app, _scope(request)))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        start = await call.next_message()
        return httpx.Response(start["status"], headers=start["headers"], stream=call)

    async def aclose(self) -> None:
        for task in self._under_way:
            task.cancel()
        await asyncio.gather(*self._under_way, return_exceptions=True)


def _scope(request: httpx.Request) -> Scope:
    raw_path, _, query = request.url.raw_path.partition(b"?")
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},  # as uvicorn says
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
    """State: one request, what was answered and not yet read, and whether the client is still there."""

    def __init__(self, body: bytes) -> None:
        self._asked: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        self._told: asyncio.Queue[Message | None] = asyncio.Queue()
        self._over = asyncio.Event()

    async def answer(self, app: ASGIApp, scope: Scope) -> None:
        """Let the application answer; what it raises, it has told the client before, as far as it could."""
        try:
            await app(scope, self._receive, self._send)
        except Exception:  # noqa: BLE001 - a server logs it and closes the connection
            self._over.set()
        self._told.put_nowait(None)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the body as it comes."""
        goes_on = True
        while goes_on:
            message = await self.next_message()
            goes_on = message.get("more_body", False)
            if message.get("body"):
                yield bytes(message["body"])

    async def next_message(self) -> Message:
        """Return what the application sends next.

        Raises:
            httpx.RemoteProtocolError: it ended before the end of its answer.
        """
        message = await self._told.get()
        if message is None:
            raise httpx.RemoteProtocolError(_CUT)
        return message

    async def aclose(self) -> None:
        """The client is gone."""
        self._over.set()

    async def _receive(self) -> Message:
        if self._asked:
            return self._asked.pop()
        await self._over.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if not self._over.is_set():
            self._told.put_nowait(message)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                self._over.set()
