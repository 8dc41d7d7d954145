"""The standalone proxy: uvicorn in front, the guard around `Upstream`, and an orderly end."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import signal
import socket
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn

from harmony_conformance.errors import Exit, UsageError
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.configuration import Rules
from harmony_proxy.judging.counters import sentence
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.standalone.http_protocol import Refusing, connections
from harmony_proxy.standalone.request_body import Limits
from harmony_proxy.standalone.upstream import Upstream

_CONNECTIONS = 10_000
_KEEP_ALIVE_SECONDS = 60
_BACKLOG = 2048


@dataclass(frozen=True, kw_only=True)
class Standalone:
    """How it runs. `drain` is how many seconds requests under way are given to end."""

    upstream: str
    host: str
    port: int
    judging: JudgeSettings
    rules: Rules = field(default_factory=Rules)
    metrics: tuple[str, int] | None = None
    drain: float = 30.0
    limits: Limits = field(default_factory=Limits)


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
    handing = JudgeQueue(how.judging, say=say)
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
    """How uvicorn serves it. What is refused before it is asked is told to it, if it is a guard."""
    refusing: Refusing | None = getattr(guard, "refused", None)
    return uvicorn.Config(
        guard,
        http=connections(refusing),
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
    from harmony_proxy.judging.metrics import serve_metrics  # noqa: PLC0415 - only where it is wanted

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
