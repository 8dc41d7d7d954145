"""Connections of clients: HTTP/1.1 as uvicorn and httptools speak it, with limits on heads. What is refused here is told of, without content."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httptools
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from harmony_proxy.capture.observation import LEFT, Message
from harmony_proxy.capture.recorder import End
from harmony_proxy.standalone.request_body import LOOK_SECONDS

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
LINGER_SECONDS = 30.0
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_MALFORMED = "400 Bad Request", b"Invalid HTTP request received."
_TOO_SLOW = "408 Request Timeout", b""
_TOO_LARGE = "431 Request Header Fields Too Large", b""
_LARGE = f"its head is larger than {HEAD_BYTES} bytes"

Refusing = Callable[[int, End, str], None]
"""What is told of a request that is refused before anybody is asked: the status, how it ended, and why, in words that are none of the client's."""

_Answer = tuple[str, bytes]
"""A status and a text."""


class _UntilClosed(RequestResponseCycle):
    """An answer to a client of HTTP/1.0, which knows no chunks: where it has no length, the end of the connection is its end."""

    _is_open_ended = False

    async def send(self, message: Message) -> None:  # type: ignore[override]
        if message["type"] == "http.response.start":
            if not any(name.lower() in _FRAMING for name, _ in message.get("headers", ())):
                self._is_open_ended, self.chunked_encoding, self.expected_content_length = True, False, sys.maxsize
        elif self._is_open_ended and not message.get("more_body", False):
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)  # type: ignore[arg-type]


class _Connection(HttpToolsProtocol):
    """HTTP/1.1 with limits on the head of a request, and no headers after it: what trailers say is not part of the request.

    A request that would rather speak another protocol (curl and Java ask for HTTP/2 so) is one like any other. Its parser takes what follows the head for
    that protocol; so another parser goes on behind the head.

    State, besides uvicorn's: what is waited for, and the answer that ends the connection once the requests before it have theirs.
    """

    _is_upgrading = _is_going_on = False
    _is_in_head = True
    _received = _size = 0
    _timer: asyncio.TimerHandle | None = None
    _look: asyncio.TimerHandle | None = None
    _served: RequestResponseCycle | None = None
    _last: _Answer | None = None
    refusing: Refusing | None = None
    fault = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._look is not None:
            self._look.cancel()
        if self._served is not None and self._served is not self.cycle and not self._served.response_complete:
            self._served.disconnected = True  # uvicorn tells it to the last request that came
            self._served.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._last is not None:
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as problem:
            self._misread(problem)
            return
        if self._is_in_head:
            self._received += len(data)
            if self._received > HEAD_BYTES:
                self._refuse(_TOO_LARGE, End.REFUSED, _LARGE)

    def _misread(self, problem: httptools.HttpParserError) -> None:
        """What came is no HTTP, or more of a head than is taken. What the parser calls it quotes nothing."""
        if self._size > HEAD_BYTES:
            self._refuse(_TOO_LARGE, End.REFUSED, _LARGE)
            return
        is_callback = isinstance(problem, httptools.HttpParserCallbackError)
        why = "the target cannot be read" if is_callback else str(problem)
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self._is_in_head or cycle is None or not cycle.more_body:
            self._refuse(_MALFORMED, End.MALFORMED, why)
        elif cycle is not self._served:  # it waits in the line, and nobody has been asked
            self.pipeline.popleft()
            self._refuse(_MALFORMED, End.MALFORMED, why)
        else:
            self.fault = why
            self._say(None if cycle.response_started else _MALFORMED)

    def _go_on(self, data: bytes) -> None:
        """Read on behind the head of a request that asked for another protocol."""
        framing = [(name, value) for name, value in self.headers if name in _FRAMING] or [(b"content-length", b"0")]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in framing)
        self.parser = httptools.HttpRequestParser(self)
        self._is_upgrading, self._is_going_on = False, True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")
        if data:
            self.data_received(data)

    def on_message_begin(self) -> None:
        if self._is_going_on:
            return
        if self._timer is None:
            self._await_head()
        self._is_in_head, self._received, self._size = True, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_going_on:
            return
        self._size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:
            self._size += len(name) + len(value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_going_on:
            self._is_going_on = False
            return
        self._is_in_head = False
        self._stop_waiting()
        if self._size > HEAD_BYTES:
            raise ValueError  # what the parser makes of it ends in `send_400_response`
        cast("dict[str, object]", self.scope)[LEFT] = self
        super().on_headers_complete()
        self._is_upgrading = self.parser.should_upgrade()
        if self.parser.get_http_version() == "1.0":
            self.cycle.__class__ = _UntilClosed
        if self.pipeline and self._look is None:
            self._look_after()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._served = cycle
        if app is service_unavailable:
            self._tell(503, End.REFUSED, "there are too many connections")
        super()._start_asgi_task(cycle, app)

    def _look_after(self) -> None:
        """While requests wait in the line nothing is read of the client."""
        waits = bool(self.pipeline) and not self.has_left()
        self._look = self.loop.call_later(LOOK_SECONDS, self._look_after) if waits else None

    def has_left(self) -> bool:
        """Whether the client has left, as far as that is known without reading what it sent before; the connection is over then."""
        if self.transport.is_closing():
            return True
        if sys.platform != "linux":  # elsewhere only who reads on is told
            return False
        poll = select.poll()
        poll.register(self.transport.get_extra_info("socket"), select.POLLRDHUP)
        if poll.poll(0):
            self.transport.abort()
            return True
        return False

    def on_response_complete(self) -> None:
        is_last = not self.pipeline
        super().on_response_complete()
        if self._last is not None and is_last:
            self._say(self._last)
        elif self.cycle.response_complete and self.cycle.more_body:
            # answered before it was all sent: who is still sending has to be read, or may never read the answer, but not for ever
            self._timer = self.loop.call_later(LINGER_SECONDS, self._end)

    def on_message_complete(self) -> None:
        if self._is_upgrading:
            return  # that was the head; the body is to come
        self._stop_waiting()
        super().on_message_complete()

    def _await_head(self) -> None:
        self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        if self._received:
            self._refuse(_TOO_SLOW, End.REFUSED, "its head did not come in time")
        else:
            self._end()  # nobody asked anything

    def _end(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, answer: _Answer, end: End, why: str) -> None:
        """A request ends before anybody was asked, and the connection with it, once the requests before have their answers."""
        self._stop_waiting()
        self._tell(int(answer[0][:3]), end, why)
        if self._served is None or self._served.response_complete:
            self._say(answer)
        else:
            self._last = answer

    def _tell(self, status: int, end: End, why: str) -> None:
        if self.refusing is not None:
            self.refusing(status, end, why)

    def _say(self, answer: _Answer | None) -> None:
        """The last words; none where they would stand within an answer."""
        if self.transport.is_closing():
            return
        if answer is not None:
            status, text = answer
            kind = b"content-type: text/plain; charset=utf-8\r\n" if text else b""
            head = f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\nconnection: close\r\n".encode()
            self.transport.write(head + kind + b"\r\n" + text)
        self.transport.close()


def connections(refusing: Refusing | None) -> type[asyncio.Protocol]:
    """What serves a connection of a client, and tells of what it refuses."""
    return type("_Told", (_Connection,), {"refusing": staticmethod(refusing) if refusing is not None else None})
