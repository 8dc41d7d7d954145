"""The standalone proxy: uvicorn in front, the guard around `Upstream`, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import select
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from harmony_conformance.command import Exit, UsageError
from harmony_proxy.asgi import HarmonyGuard
from harmony_proxy.handing import Handing
from harmony_proxy.judge_settings import Settings
from harmony_proxy.loading import Rules
from harmony_proxy.noting import LEFT, Message
from harmony_proxy.tally import sentence
from harmony_proxy.uploading import LOOK_SECONDS, Limits
from harmony_proxy.upstream import Upstream

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application

HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
LINGER_SECONDS = 30.0
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_CONNECTIONS = 10_000
_KEEP_ALIVE_SECONDS = 60
_BACKLOG = 2048
_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


@dataclass(frozen=True, kw_only=True)
class Standalone:
    """How it runs. `drain` is how many seconds requests under way are given to end."""

    upstream: str
    host: str
    port: int
    judging: Settings
    rules: Rules = field(default_factory=Rules)
    metrics: tuple[str, int] | None = None
    drain: float = 30.0
    limits: Limits = field(default_factory=Limits)


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


class _Protocol(HttpToolsProtocol):
    """HTTP/1.1 with limits on the head of a request, and no headers after it: what trailers say is not part of the request.

    A request that would rather speak another protocol (curl and Java ask for HTTP/2 so) is one like any other. Its parser takes what follows the head for
    that protocol; so another parser goes on behind the head.
    """

    _is_upgrading = _is_going_on = False
    _is_in_head = True
    _received = _size = 0
    _timer: asyncio.TimerHandle | None = None
    _look: asyncio.TimerHandle | None = None
    _served: RequestResponseCycle | None = None

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
        self._unset_keepalive_if_required()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._go_on(data[upgrade.args[0] :])
            return
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._is_in_head:
            self._received += len(data)
            if self._received > HEAD_BYTES:
                self._refuse(_TOO_LARGE)

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
        cast("dict[str, object]", self.scope)[LEFT] = self._has_left
        super().on_headers_complete()
        self._is_upgrading = self.parser.should_upgrade()
        if self.parser.get_http_version() == "1.0":
            self.cycle.__class__ = _UntilClosed
        if self.pipeline and self._look is None:
            self._look_after()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._served = cycle
        super()._start_asgi_task(cycle, app)

    def _look_after(self) -> None:
        """While requests wait in the line nothing is read of the client."""
        waits = bool(self.pipeline) and not self._has_left()
        self._look = self.loop.call_later(LOOK_SECONDS, self._look_after) if waits else None

    def _has_left(self) -> bool:
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

    def send_400_response(self, msg: str) -> None:
        if self._size > HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body:
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
            self._refuse(_TOO_SLOW)
        else:
            self._end()  # nobody asked anything

    def _end(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()

    def _refuse(self, answer: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(answer)
            self.transport.close()


class _Server(uvicorn.Server):
    """One that says where it listens, and ends with its exit code its own."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        hang_up: signal.Signals | None = getattr(signal, "SIGHUP", None)  # not on Windows
        if hang_up is not None and signal.getsignal(hang_up) is not signal.SIG_IGN:  # as `nohup` has it
            numbers.append(hang_up)
        for number in numbers:
            loop.add_signal_handler(number, self._stop)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        if self.force_exit:  # what is left open now is no error
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        self.should_exit = True


def listening_on(host: str, port: int) -> socket.socket:
    """A socket to be served.

    Raises:
        UsageError: there is none to be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as problem:
        raise UsageError(f"cannot listen on {host}:{port}: {problem.strerror or problem}") from None
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def serve(how: Standalone) -> int:
    """Run until SIGINT or SIGTERM: then no more connections are taken, requests under way end within `drain`, and what is queued is judged.

    Raises:
        UsageError: it cannot listen there.
    """
    handing = Handing(how.judging, say=say)
    guard = HarmonyGuard(Upstream(how.upstream, limits=how.limits), policy=how.rules, handing=handing)
    with listening_on(how.host, how.port) as listening:
        stop_metrics = _metrics(how.metrics, guard)
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        server = _Server(
            config(guard, how.drain),
            lambda: say(f"listening on http://{shown}:{port}, passing on to {how.upstream}"),
        )
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        guard.start()
        gc.collect()
        gc.freeze()  # what is there now stays: no collection has to look at it again
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(server.serve(sockets=[listening]))
        finally:
            stop_metrics()
            handing.close()
    say(sentence(handing.tally))
    return Exit.CONFORMS


def say(what: str) -> None:
    """Print a line at once."""
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


def config(guard: HarmonyGuard, drain: float) -> uvicorn.Config:
    """How uvicorn serves it."""
    return uvicorn.Config(
        guard,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_level="critical",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(round(drain), 1),
    )


def _metrics(address: tuple[str, int] | None, guard: HarmonyGuard) -> Callable[[], None]:
    if address is None:
        return lambda: None
    from harmony_proxy.metrics import serve_metrics  # noqa: PLC0415 - only where it is wanted

    try:
        return serve_metrics(address, guard.handing, guard.gauges)
    except OSError as problem:
        raise UsageError(f"--metrics {address[0]}:{address[1]}: {problem.strerror}") from None


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop
    return factory
