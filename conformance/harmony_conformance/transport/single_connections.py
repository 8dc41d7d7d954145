"""A transport that sends each request by an httpx transport with one connection.

The pool of httpx examines each of its connections at the begin and the end of every request. With one connection there is nothing to search.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import httpx


class SingleConnections(httpx.AsyncBaseTransport):
    """State: the idle transports, the one that was used last at the end."""

    def __init__(self, open_one: Callable[[], httpx.AsyncBaseTransport], most_idle: int) -> None:
        """`open_one`: returns a new transport. `most_idle`: the most idle transports; further ones are closed."""
        self._open_one, self._most_idle = open_one, most_idle
        self._idle: list[httpx.AsyncBaseTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request by an idle transport, or a new one.

        Raises:
            httpx.TransportError: As the transport raises it.
        """
        transport = self._idle.pop() if self._idle else self._open_one()
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            await self.release(transport)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = ReleasingStream(response.stream, self, transport)
        return response

    async def aclose(self) -> None:
        """Close the idle transports. Those in use are closed with their responses."""
        while self._idle:
            await self._idle.pop().aclose()
        self._most_idle = 0

    async def release(self, transport: httpx.AsyncBaseTransport) -> None:
        """Take back a transport whose response is closed."""
        if len(self._idle) < self._most_idle:
            self._idle.append(transport)
        else:
            await transport.aclose()


class ReleasingStream(httpx.AsyncByteStream):
    """The stream of a response, `inner`, which returns its transport when it is closed."""

    def __init__(
        self, inner: httpx.AsyncByteStream, owner: SingleConnections, transport: httpx.AsyncBaseTransport
    ) -> None:
        self.inner, self._owner, self._transport = inner, owner, transport

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the iterator of the inner stream."""
        return self.inner.__aiter__()

    async def aclose(self) -> None:
        """Close the inner stream. `httpx.Response` calls this once."""
        try:
            await self.inner.aclose()
        finally:
            await self._owner.release(self._transport)
