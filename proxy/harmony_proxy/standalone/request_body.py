"""The body of a request on its way to the upstream: streamed, bounded, and ended only by the client."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from harmony_proxy.capture.asgi_observer import ClientConnection, Receive

_ROOM = 64 * 1024  # bytes that are buffered for the upstream before no more are read from the client
DISCONNECT_POLL_SECONDS = 0.5
"""Interval of the checks whether a client has left from which nothing is read."""
_MORE = 4 * 1024 * 1024  # bytes that each such check reads, out of the reserve: as many as system buffers may hold


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of requests. Sizes in bytes."""

    body: int = 64 * 1024 * 1024
    body_seconds: float = 120.0  # for the wait for the client in one request
    connect_seconds: float = 10.0
    idle_seconds: float = 600.0  # without traffic of the upstream
    keep_alive_seconds: float = 3.0  # less than any server's, so that no request meets a closing connection


class UploadRefusedError(Exception):
    """A request that is not passed on, or only in part. It has a status and a one-line message."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ClientDisconnectError(Exception):
    """The client is gone. The message is empty, or the reason why a malformed request was aborted."""


class Reserve:
    """Buffer space shared by all uploads that wait for the upstream. State: the free bytes."""

    def __init__(self, size: int) -> None:
        self._left = size

    def reserve(self, most: int) -> int:
        """Reserve up to `most` bytes, and return the number; 0 if the space is used up."""
        size = min(most, self._left)
        self._left -= size
        return size

    def release(self, size: int) -> None:
        """Free reserved bytes."""
        self._left += size


class Upload:
    """State: the parts that the upstream has not taken yet, and the remaining time for the client."""

    def __init__(self, receive: Receive, limits: Limits, *, client: ClientConnection, reserve: Reserve) -> None:
        self.is_whole = False  # true if the client has sent all of the body
        self.size = 0  # the number of bytes so far
        self._receive, self._limits, self._client, self._reserve = receive, limits, client, reserve
        self._room, self._stalled_seconds = _ROOM, 0.0
        self._parts: deque[bytes] = deque()
        self._waiting, self._patience = 0, limits.body_seconds
        self._data_arrived = asyncio.Event()
        self._has_room = asyncio.Event()

    async def begin(self) -> bytes | None:
        """Return the body if its first part is complete, as most are; None if more is to come.

        Raises:
            ClientDisconnectError: the client has left.
            UploadRefusedError: the body is too large, or did not arrive in time.
        """
        while not self._parts and not self.is_whole:
            await self._take()
        return b"".join(self._parts) if self.is_whole else None

    async def run(self) -> None:
        """Receive the rest as the buffer allows; then wait until the client leaves.

        Raises:
            ClientDisconnectError: the client has left, during or after the body.
            UploadRefusedError: the body is too large, or did not arrive in time.
            TimeoutError: the upstream does not read the body.
        """
        try:
            while not self.is_whole:
                if self._waiting >= self._room:
                    await self._wait_for_room()
                await self._take()
        finally:
            self._reserve.release(self._room - _ROOM)
            self._room = _ROOM
        while (await self._receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnectError(self._client.fault)

    async def _wait_for_room(self) -> None:
        """Wait until the upstream takes a part, or the reserve has space.

        Buffered data may hide that a client has left. Reading more of it, into the reserve, reveals the disconnect.
        """
        while self._waiting >= self._room:
            self._has_room.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(DISCONNECT_POLL_SECONDS):
                    await self._has_room.wait()
                    continue
            if self._client.has_left():
                raise ClientDisconnectError
            self._stalled_seconds += DISCONNECT_POLL_SECONDS
            if self._stalled_seconds >= self._limits.idle_seconds:
                raise TimeoutError
            self._room += self._reserve.reserve(_MORE)

    async def parts(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body. A truncated body never ends, so that it cannot look complete."""
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._waiting -= len(part)
                self._stalled_seconds = 0.0
                self._has_room.set()
                yield part
            if self.is_whole:
                return
            self._data_arrived.clear()
            await self._data_arrived.wait()

    async def _take(self) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(self._patience):
                message = await self._receive()
        except TimeoutError:
            raise UploadRefusedError(408, "the request did not arrive in time") from None
        self._patience -= clock() - begun
        if message["type"] != "http.request":
            raise ClientDisconnectError(self._client.fault)
        part: bytes = message.get("body", b"")
        self.size += len(part)
        if self.size > self._limits.body:
            raise too_large(self._limits.body)
        if part:
            self._parts.append(part)
            self._waiting += len(part)
        self.is_whole = not message.get("more_body", False)
        if part or self.is_whole:
            self._data_arrived.set()


def too_large(most: int) -> UploadRefusedError:
    """Return the error for a request whose body exceeds the limit."""
    return UploadRefusedError(413, f"the request body is larger than {most} bytes")
