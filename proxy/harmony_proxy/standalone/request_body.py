"""The body of a request on its way from an ASGI server to whoever sends it on: as it comes, bounded, and never ended unless the client ended it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

from harmony_proxy.capture.observation import ClientConnection, Receive

_ROOM = 64 * 1024
"""So many bytes wait here for the upstream; as long as there are that many, no more are asked of the client."""
LOOK_SECONDS = 0.5
"""So often a client is looked after of whom nothing is read."""
_MORE = 4 * 1024 * 1024
"""So many bytes more are read of a client at each look, out of the reserve: as much as its system may hold of a request before word that it left."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What is allowed. Sizes in bytes, times in seconds.

    `body_seconds` is how long a client may be waited for in one request, `idle_seconds` how long the upstream may say, or take, nothing.
    """

    body: int = 64 * 1024 * 1024
    body_seconds: float = 120.0
    connect_seconds: float = 10.0
    idle_seconds: float = 600.0
    keep_alive_seconds: float = (
        3.0  # less than any server's, so that no request meets a connection that is just being closed
    )


class UploadRefusedError(Exception):
    """A request that is not passed on, or not to its end; a status and one line."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


class ClientDisconnectError(Exception):
    """The client is gone; as text, what of its request was malformed, where it was broken off for that."""


class Reserve:
    """Room that all uploads share which an upstream holds back. State: the bytes that are left of it."""

    def __init__(self, size: int) -> None:
        self._left = size

    def lent(self, most: int) -> int:
        """Some of it, nothing where it is used up."""
        size = min(most, self._left)
        self._left -= size
        return size

    def returned(self, size: int) -> None:
        """It is free again."""
        self._left += size


class Upload:
    """State: what has come and was not taken yet, whether the client has ended it, how much it was and how long it was waited for.

    Attributes:
        is_whole: whether the client has sent all of it.
        size: how many bytes it has sent.
    """

    def __init__(self, receive: Receive, limits: Limits, *, client: ClientConnection, reserve: Reserve) -> None:
        self.is_whole = False
        self.size = 0
        self._receive = receive
        self._limits = limits
        self._client = client
        self._reserve = reserve
        self._room = _ROOM
        self._untaken = 0.0
        self._parts: deque[bytes] = deque()
        self._waiting = 0
        self._patience = limits.body_seconds
        self._has_come = asyncio.Event()
        self._has_room = asyncio.Event()

    async def begin(self) -> bytes | None:
        """The body, if the first of it is all of it, as it is of most; None where there is more to come.

        Raises:
            Left, Refused: there is nothing to pass on.
        """
        while not self._parts and not self.is_whole:
            await self._take()
        return b"".join(self._parts) if self.is_whole else None

    async def run(self) -> None:
        """Fetch the rest, while there is room for it; then wait until the client leaves.

        Raises:
            Left, Refused: the body breaks off, or the client has left after it.
            TimeoutError: the upstream does not take it.
        """
        try:
            while not self.is_whole:
                if self._waiting >= self._room:
                    await self._held_back()
                await self._take()
        finally:
            self._reserve.returned(self._room - _ROOM)
            self._room = _ROOM
        while (await self._receive())["type"] != "http.disconnect":
            pass
        raise ClientDisconnectError(self._client.fault)

    async def _held_back(self) -> None:
        """Wait until there is room: the upstream takes some, or there is some in the reserve.

        Of a client that nobody reads its system keeps the word that it left behind what it has sent. Where that has not come, reading on finds it.
        """
        while self._waiting >= self._room:
            self._has_room.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._has_room.wait()
                    continue
            if self._client.has_left():
                raise ClientDisconnectError
            self._untaken += LOOK_SECONDS
            if self._untaken >= self._limits.idle_seconds:
                raise TimeoutError
            self._room += self._reserve.lent(_MORE)

    async def parts(self) -> AsyncIterator[bytes]:
        """The body, piece by piece. It ends only where the client has ended it: one that broke off must not look whole."""
        while True:
            while self._parts:
                part = self._parts.popleft()
                self._waiting -= len(part)
                self._untaken = 0.0
                self._has_room.set()
                yield part
            if self.is_whole:
                return
            self._has_come.clear()
            await self._has_come.wait()

    async def _take(self) -> None:
        clock = asyncio.get_running_loop().time
        begun = clock()
        try:
            async with asyncio.timeout(self._patience):
                message = await self._receive()
        except TimeoutError:
            raise UploadRefusedError(408, "the request did not come in time") from None
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
            self._has_come.set()


def too_large(most: int) -> UploadRefusedError:
    """What a client is told whose request is larger than what is passed on."""
    return UploadRefusedError(413, f"a request's body of more than {most} bytes is not passed on")
