"""Plain TCP connections for httpcore, on a protocol of asyncio: what httpx's own network (anyio) does, with less of its CPU time.

A request is sent in one piece, and bytes are taken from the socket as they arrive. Nothing of HTTP is here.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import cast

import httpcore
from aiohappyeyeballs import start_connection  # pyright: ignore[reportUnknownVariableType] # its type of an address is open

_HELD_BYTES = 256 * 1024
"""Unread bytes from which on no more is taken from the server."""
_HAPPY_EYEBALLS_DELAY = 0.25  # seconds before the next address of a host is tried too (RFC 8305)


class PlainNetwork(httpcore.AsyncNetworkBackend):
    """A network backend for plain TCP alone."""

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - of httpcore
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of a host that answers. The client uses neither a local address nor options of sockets.

        Raises:
            httpcore.ConnectTimeout: No address answered in time.
            httpcore.ConnectError: All addresses refuse, or the host is unknown.
        """
        assert local_address is None
        assert socket_options is None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
                connected = await start_connection(addresses, happy_eyeballs_delay=_HAPPY_EYEBALLS_DELAY)
                _, wire = await loop.create_connection(_Wire, sock=connected)
        except TimeoutError as error:
            raise httpcore.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpcore.ConnectError(str(error)) from error
        return _PlainStream(wire)


class _Wire(asyncio.Protocol):
    """State: the bytes that arrived and are not read yet, and how the connection ended."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.error: Exception | None = None
        self.is_ended = False
        self.is_writable = True
        self._arrived: deque[bytes] = deque()
        self._held = 0
        self._is_reading = True
        self._waiter: asyncio.Future[None] | None = None

    @property
    def is_silent(self) -> bool:
        """True if the connection is open and has no unread bytes."""
        return not self.is_ended and not self._arrived

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # that of uvloop is none of its subclasses
        self.transport.set_write_buffer_limits(high=0)

    def data_received(self, data: bytes) -> None:
        self._arrived.append(data)
        self._held += len(data)
        if self._held >= _HELD_BYTES and self._is_reading and self.transport is not None:
            self._is_reading = False
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        self.is_ended = True
        self._wake()
        return True  # the client may still send

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_ended, self.is_writable, self.error = True, True, exc
        self._wake()

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        self._wake()

    def take(self, max_bytes: int) -> bytes:
        """Return the oldest unread bytes, none without any."""
        if not self._arrived:
            return b""
        data = self._arrived.popleft()
        if len(data) > max_bytes:
            self._arrived.appendleft(data[max_bytes:])
            data = data[:max_bytes]
        self._held -= len(data)
        if not self._is_reading and self._held < _HELD_BYTES and self.transport is not None and not self.is_ended:
            self._is_reading = True
            self.transport.resume_reading()
        return data

    async def wait(self) -> None:
        """Return after the next event of the connection. One task at a time may wait."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _PlainStream(httpcore.AsyncNetworkStream):
    """A connection. State: the bytes of the request that are not sent yet."""

    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._unsent: list[bytes] = []

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109, ARG002 - of httpcore
        """Keep a part of a request until the response is awaited, so that head and body are sent together."""
        self._unsent.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - of httpcore
        """Send the request if it is not sent. Return the next bytes, none at the end.

        Bytes that arrived before an error are returned first. An error while sending is that of the connection: a server may answer a request
        before it has read all of it.

        Raises:
            httpcore.WriteTimeout: The request could not be sent in time.
            httpcore.ReadTimeout: No byte arrived in time.
            httpcore.ReadError: The connection failed.
        """
        if self._unsent:
            await self._send(timeout)
        if self._wire.is_silent:
            try:
                async with asyncio.timeout(timeout):
                    while self._wire.is_silent:
                        await self._wire.wait()
            except TimeoutError as error:
                raise httpcore.ReadTimeout(str(error)) from error
        data = self._wire.take(max_bytes)
        if not data and self._wire.error is not None:
            raise httpcore.ReadError(str(self._wire.error)) from self._wire.error
        return data

    async def _send(self, timeout: float | None) -> None:  # noqa: ASYNC109 - of httpcore
        data = b"".join(self._unsent)
        self._unsent.clear()
        transport = self._wire.transport
        if transport is None or transport.is_closing():
            return
        transport.write(data)
        if self._wire.is_writable:
            return
        try:
            async with asyncio.timeout(timeout):
                while not self._wire.is_writable:
                    await self._wire.wait()
        except TimeoutError as error:
            raise httpcore.WriteTimeout(str(error)) from error

    async def aclose(self) -> None:
        """Close the connection, as anyio does: with an end that the server sees."""
        transport, self._wire.is_ended = self._wire.transport, True
        if transport is not None and not transport.is_closing():
            with suppress(OSError):
                transport.write_eof()
            transport.close()
            await asyncio.sleep(0)
            transport.abort()

    def get_extra_info(self, info: str) -> object:
        """Return whether an idle connection has ended or has unexpected bytes. Other facts are unknown."""
        return not self._wire.is_silent if info == "is_readable" else None
