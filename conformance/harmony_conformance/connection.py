"""One connection of HTTP/1.1: h11 reads what comes, and nothing stands between it and the socket.

What arrived is evidence, all of it: each piece by itself, as it came, and also what came just before something went wrong.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import h11

from harmony_conformance.carrier import Answer, BrokenOff, Headers, in_words
from harmony_conformance.wire import FailureKind

_PIECE = 64 * 1024
_MOST_UNREAD = 2 * _PIECE  # bytes, after which nothing is taken from the socket until some are read
_LARGEST_HEAD = 100 * 1024


class Connection(asyncio.Protocol, Answer):
    """State: a transport, what came over it and was not yet read, and where in an exchange it is. One exchange at a time."""

    def __init__(self, timeout: float, left: Callable[[Connection], None]) -> None:
        """`timeout`: the longest silence, in seconds; `left` is told when an exchange is over."""
        self._timeout, self._left = timeout, left
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_LARGEST_HEAD)
        self._loop = asyncio.get_running_loop()
        self._unread: deque[bytes] = deque()
        self._size = 0
        self._is_held = self._is_over = self._has_begun = False
        self._lost: Exception | None = None
        self._heard = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._waiter: asyncio.Future[None] | None = None
        self.was_kept = False
        self.status = 0
        self.headers: Headers = ()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self._heard = self._loop.time()
        self._unread.append(data)
        self._size += len(data)
        if self._size > _MOST_UNREAD and not self._is_held:
            self._is_held = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        """No more will come; the request may still be on its way, which TLS has no way to await."""
        self._is_over = True
        self._wake()
        return self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed."""
        self._is_over, self._lost = True, exc
        self._wake()

    def resume_writing(self) -> None:
        """A large request has gone out: only now does silence count."""
        self._heard = self._loop.time()

    @property
    def is_free(self) -> bool:
        """Whether another request can go out on it: the last exchange is over, and the server neither closed it nor said anything since."""
        return self._http.our_state is h11.IDLE and not self._is_over and not self._unread

    async def ask(self, method: str, target: str, headers: Headers, body: bytes) -> None:
        """Send a request, and wait for the head of the answer: then `status` and `headers` are those.

        Raises:
            BrokenOff: there is no answer, or none that is HTTP; or the headers can not be sent.
        """
        try:
            request = h11.Request(method=method, target=target, headers=list(headers))
            parts = [
                self._http.send(request),
                self._http.send(h11.Data(data=body)),
                self._http.send(h11.EndOfMessage()),
            ]
        except h11.LocalProtocolError as problem:
            raise BrokenOff(FailureKind.MALFORMED_HTTP, in_words(problem)) from None
        self._transport.write(b"".join(part for part in parts if part))
        self._has_begun, self._heard = False, self._loop.time()
        self._listen()
        event = await self._event()
        while isinstance(event, h11.InformationalResponse):
            event = await self._event()
        assert isinstance(event, h11.Response)
        self._has_begun = True
        self.status, self.headers = event.status_code, list(event.headers)

    async def piece(self) -> bytes | None:
        """The next bytes of the body, None at its end.

        Raises:
            BrokenOff: it broke off.
        """
        event = await self._event()
        return bytes(event.data) if isinstance(event, h11.Data) else None

    def leave(self) -> None:
        """The exchange is over: where both sides are done, another may follow."""
        if self._alarm is not None:
            self._alarm.cancel()
        is_done = self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        if is_done and not self._http.trailing_data[0]:
            self._http.start_next_cycle()
        self.was_kept = True
        self._left(self)

    def close(self) -> None:
        """Close it at once."""
        self._transport.abort()

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        """The next thing that h11 reads in what comes.

        Raises:
            BrokenOff: there is none.
        """
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as problem:
                detail = in_words(problem)
                is_cut = self._has_begun and "closed connection" in detail
                raise self._broken(FailureKind.CUT if is_cut else FailureKind.MALFORMED_HTTP, detail) from None
            if event is not h11.NEED_DATA:
                return cast("h11.Event | type[h11.PAUSED]", event)
            data = await self._read()
            if not data and not self._has_begun:
                raise self._broken(FailureKind.RESET, "Server disconnected without sending a response.")
            self._http.receive_data(data)

    async def _read(self) -> bytes:
        """Bytes that came, empty where no more will.

        Raises:
            BrokenOff: it was silent for too long, or broke.
        """
        if not self._unread and not self._is_over:
            self._waiter = self._loop.create_future()
            try:
                await self._waiter
            except TimeoutError:
                raise self._broken(FailureKind.TIMEOUT, f"no byte arrived for {self._timeout:g} s") from None
            finally:
                self._waiter = None
        if self._unread:
            return self._taken()
        if self._lost is not None:
            detail = in_words(self._lost)
            raise self._broken(FailureKind.CUT if self._has_begun else FailureKind.RESET, detail)
        return b""

    def _taken(self) -> bytes:
        data = self._unread.popleft()
        if len(data) > _PIECE:
            self._unread.appendleft(data[_PIECE:])
            data = data[:_PIECE]
        self._size -= len(data)
        if self._is_held and self._size < _PIECE:
            self._is_held = False
            self._transport.resume_reading()
        return data

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _listen(self) -> None:
        """Look whether it is silent while somebody waits, and when it can be at the earliest."""
        now, due = self._loop.time(), self._heard + self._timeout
        if now >= due and self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(TimeoutError())
        else:
            self._alarm = self._loop.call_at(due if now < due else now + self._timeout, self._listen)

    def _broken(self, kind: FailureKind, detail: str) -> BrokenOff:
        return BrokenOff(kind, detail, was_kept=self.was_kept)
