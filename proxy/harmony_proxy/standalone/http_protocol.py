"""Client connections: HTTP/1.1 by uvicorn and httptools, with limits on request heads. Refusals are reported."""

from __future__ import annotations

import asyncio
import select
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

import httptools
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from harmony_proxy.capture.asgi_observer import CONNECTION_KEY, Message
from harmony_proxy.capture.recorder import End
from harmony_proxy.standalone.request_body import DISCONNECT_POLL_SECONDS

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
LINGER_SECONDS = 30.0
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_MALFORMED = "400 Bad Request", b"Invalid HTTP request received.", b""
_TOO_SLOW = "408 Request Timeout", b"", b""
_TOO_LARGE = "431 Request Header Fields Too Large", b"", b""
_NO_WEBSOCKETS = "invalid request: expected HTTP, got a WebSocket, which the proxy does not examine"
_USE_HTTP = "426 Upgrade Required", _NO_WEBSOCKETS.encode(), b"upgrade: HTTP/1.1\r\n"
_LARGE = f"the request head is larger than {HEAD_BYTES} bytes"

Refusing = Callable[[int, End, str], None]
"""Callback for a request that is refused before it reaches the application: status, end, and a reason without quotes."""

_Answer = tuple[str, bytes, bytes]  # status line, body, further headers


class _CloseDelimitedCycle(RequestResponseCycle):
    """A response in HTTP/1.0, which has no chunked encoding: without a length, it ends with the connection."""

    _is_open_ended = False

    async def send(self, message: Message) -> None:  # type: ignore[override]
        if message["type"] == "http.response.start":
            if not any(name.lower() in _FRAMING for name, _ in message.get("headers", ())):
                self._is_open_ended, self.chunked_encoding, self.expected_content_length = True, False, sys.maxsize
        elif self._is_open_ended and not message.get("more_body", False):
            self.expected_content_length = len(message.get("body", b""))
        await super().send(message)  # type: ignore[arg-type]


class _Connection(HttpToolsProtocol):
    """HTTP/1.1 with limits on the head of a request, and without trailers.

    A WebSocket is refused: its messages could not be examined. The status is that after which Codex continues over HTTP at once.
    Any other request for a protocol upgrade is treated as an ordinary one: curl and Java send it for HTTP/2.
    The parser, httptools, takes bytes after its head for the other protocol, so a new parser continues after the head.
    """

    _is_upgrading = _is_replaying = _is_websocket = False
    _is_in_head = True
    _received = _size = 0
    _timer: asyncio.TimerHandle | None = None
    _look: asyncio.TimerHandle | None = None
    _active_cycle: RequestResponseCycle | None = None
    _final_answer: _Answer | None = None  # ends the connection after the responses to earlier requests
    refusing: Refusing | None = None
    fault = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._look is not None:
            self._look.cancel()
        if (
            self._active_cycle is not None
            and self._active_cycle is not self.cycle
            and not self._active_cycle.response_complete
        ):
            self._active_cycle.disconnected = True  # uvicorn reports it only to the request that came last
            self._active_cycle.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._final_answer is not None:
            return
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._continue_after_upgrade(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError as problem:
            self._refuse_unparsable(problem)
            return
        if self._is_in_head:
            self._received += len(data)
            if self._received > HEAD_BYTES:
                self._refuse(_TOO_LARGE, End.REFUSED, _LARGE)

    def _refuse_unparsable(self, problem: httptools.HttpParserError) -> None:
        """Refuse invalid HTTP or a head that is too large. The parser's messages quote nothing of the request."""
        if self._size > HEAD_BYTES:
            self._refuse(_TOO_LARGE, End.REFUSED, _LARGE)
            return
        if self._is_websocket:
            self._refuse(_USE_HTTP, End.REFUSED, _NO_WEBSOCKETS)
            return
        is_callback = isinstance(problem, httptools.HttpParserCallbackError)
        why = "invalid request target" if is_callback else str(problem)
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if self._is_in_head or cycle is None or not cycle.more_body:
            self._refuse(_MALFORMED, End.MALFORMED, why)
        elif cycle is not self._active_cycle:  # pipelined, and not passed to the application yet
            self.pipeline.popleft()
            self._refuse(_MALFORMED, End.MALFORMED, why)
        else:
            self.fault = why
            self._answer_and_close(None if cycle.response_started else _MALFORMED)

    def _continue_after_upgrade(self, data: bytes) -> None:
        """Parse the body of an upgrade request: a new parser gets a head with the same framing first."""
        framing = [(name, value) for name, value in self.headers if name in _FRAMING] or [(b"content-length", b"0")]
        head = b"".join(name + b": " + value + b"\r\n" for name, value in framing)
        self.parser = httptools.HttpRequestParser(self)
        self._is_upgrading, self._is_replaying = False, True
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + head + b"\r\n")
        if data:
            self.data_received(data)

    def on_message_begin(self) -> None:
        if self._is_replaying:
            return
        if self._timer is None:
            self._await_head()
        self._is_in_head, self._received, self._size = True, 0, 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_replaying:
            return
        self._size += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_in_head:
            self._size += len(name) + len(value)
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_replaying:
            self._is_replaying = False
            return
        self._is_in_head = False
        self._stop_waiting()
        self._is_websocket = self._asks_for_websocket()
        if self._size > HEAD_BYTES or self._is_websocket:
            raise ValueError  # the parser wraps it: see `_refuse_unparsable`
        cast("dict[str, object]", self.scope)[CONNECTION_KEY] = self
        super().on_headers_complete()
        self._is_upgrading = self.parser.should_upgrade()
        if self.parser.get_http_version() == "1.0":
            self.cycle.__class__ = _CloseDelimitedCycle
        if self.pipeline and self._look is None:
            self._watch_client()

    def _asks_for_websocket(self) -> bool:
        if self.parser.get_method() != b"GET" or not self.parser.should_upgrade():
            return False
        protocols = b",".join(value for name, value in self.headers if name == b"upgrade")
        return b"websocket" in (one.strip().lower() for one in protocols.split(b","))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._active_cycle = cycle
        if app is service_unavailable:
            self._report(503, End.REFUSED, "too many connections")
        super()._start_asgi_task(cycle, app)

    def _watch_client(self) -> None:
        """Poll for a disconnect: while requests are pipelined, nothing is read from the client."""
        waits = bool(self.pipeline) and not self.has_left()
        self._look = self.loop.call_later(DISCONNECT_POLL_SECONDS, self._watch_client) if waits else None

    def has_left(self) -> bool:
        """Return True if the client has left, and close the connection. Unread data does not hide it on Linux."""
        if self.transport.is_closing():
            return True
        if sys.platform != "linux":  # elsewhere only a read reveals it
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
        if self._final_answer is not None and is_last:
            self._answer_and_close(self._final_answer)
        elif self.cycle.response_complete and self.cycle.more_body:
            # The client is still sending: unless its body is read, it may never read the response. Limited in time.
            self._timer = self.loop.call_later(LINGER_SECONDS, self._close)

    def on_message_complete(self) -> None:
        if self._is_upgrading:
            return  # only the head is complete
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
            self._refuse(_TOO_SLOW, End.REFUSED, "the request head did not arrive in time")
        else:
            self._close()  # an idle connection

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, answer: _Answer, end: End, why: str) -> None:
        """Refuse a request before it reaches the application. Close the connection after the responses to earlier requests."""
        self._stop_waiting()
        self._report(int(answer[0][:3]), end, why)
        if self._active_cycle is None or self._active_cycle.response_complete:
            self._answer_and_close(answer)
        else:
            self._final_answer = answer

    def _report(self, status: int, end: End, why: str) -> None:
        if self.refusing is not None:
            self.refusing(status, end, why)

    def _answer_and_close(self, answer: _Answer | None) -> None:
        """Send a last response, unless another one has begun, and close the connection."""
        if self.transport.is_closing():
            return
        if answer is not None:
            status, text, further = answer
            kind = b"content-type: text/plain; charset=utf-8\r\n" if text else b""
            head = f"HTTP/1.1 {status}\r\ncontent-length: {len(text)}\r\nconnection: {'upgrade, ' if further else ''}close\r\n".encode()
            self.transport.write(head + further + kind + b"\r\n" + text)
        self.transport.close()


def connection_class(refusing: Refusing | None) -> type[asyncio.Protocol]:
    """Return the protocol class of client connections, which reports refusals to the callback."""
    callback = staticmethod(refusing) if refusing is not None else None
    return type("_ReportingConnection", (_Connection,), {"refusing": callback})
