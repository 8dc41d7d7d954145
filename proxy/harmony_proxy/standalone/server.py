"""The standalone proxy: uvicorn, the guard around `Upstream`, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import uvicorn

from harmony_conformance.errors import Exit
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.configuration import Rules, create_listening_socket, start_metrics
from harmony_proxy.judging.console import announce, print_line
from harmony_proxy.judging.counters import summary_line
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.standalone.http_protocol import connection_class
from harmony_proxy.standalone.reloading import Reloader
from harmony_proxy.standalone.request_body import Limits
from harmony_proxy.standalone.upstream import Upstream

_CONNECTIONS = 10_000
_KEEP_ALIVE_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class StandaloneSettings:
    """Settings of the standalone proxy. `drain` is the time limit in seconds for open requests at shutdown.

    `read_rules` reads the policy file again.
    """

    upstream: str
    host: str
    port: int
    judging: JudgeSettings
    rules: Rules = field(default_factory=Rules)
    metrics: tuple[str, int] | None = None
    drain: float = 30.0
    read_rules: Callable[[], Rules] | None = None
    limits: Limits = field(default_factory=Limits)


class _Server(uvicorn.Server):
    """A uvicorn server that reports when it listens, and leaves the exit code to its caller."""

    def __init__(
        self, config: uvicorn.Config, listening: Callable[[], None], reload: Callable[[], Coroutine[None, None, None]]
    ) -> None:
        super().__init__(config)
        self._listening, self._reload = listening, reload
        self._reloads: set[asyncio.Task[None]] = set()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._listening()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGINT: self._stop, signal.SIGTERM: self._stop}
        if hasattr(signal, "SIGHUP"):  # not on Windows
            is_terminal = os.isatty(0)  # it sends the signal when it is closed
            if not is_terminal or signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                handlers[signal.SIGHUP] = self._stop if is_terminal else self._start_reload
        for number, handler in handlers.items():
            loop.add_signal_handler(number, handler)
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    def _start_reload(self) -> None:
        task = asyncio.ensure_future(self._reload())
        self._reloads.add(task)
        task.add_done_callback(self._reloads.discard)

    def _stop(self) -> None:
        self.force_exit = self.should_exit
        if self.force_exit:  # tasks that are cancelled from here on are not errors
            logging.getLogger("asyncio").setLevel(logging.CRITICAL)
        self.should_exit = True


def serve(settings: StandaloneSettings) -> int:
    """Run until SIGINT or SIGTERM; on SIGHUP reload. Then stop listening, wait for open requests at most `drain` seconds, judge the queue.

    Raises:
        UsageError: the address cannot be listened on.
    """
    queue = JudgeQueue(settings.judging, on_message=print_line, memory_limit=settings.rules.memory_limit)
    upstream = Upstream(settings.upstream, limits=settings.limits, is_judging=lambda: queue.is_judging)
    guard = HarmonyGuard(upstream, policy=settings.rules, queue=queue)
    reloader = Reloader(guard, read_rules=settings.read_rules, log=settings.judging.log, on_message=print_line)
    with create_listening_socket(settings.host, settings.port) as listening:
        stop_metrics = start_metrics(settings.metrics, guard.queue, guard.gauges, settings.upstream)
        host, port = listening.getsockname()[:2]
        server = _Server(
            config(guard, settings.drain), lambda: announce(host, port, settings.upstream), reloader.reload
        )
        logging.getLogger("uvicorn").setLevel(logging.CRITICAL)
        guard.start()
        gc.collect()
        gc.freeze()  # the loaded modules stay: exclude them from garbage collections
        try:
            with asyncio.Runner(loop_factory=_loop_factory()) as runner:
                runner.run(server.serve(sockets=[listening]))
        finally:
            stop_metrics()
            queue.close()
    print_line(summary_line(queue.tally))
    return Exit.CONFORMS


def config(guard: HarmonyGuard, drain: float) -> uvicorn.Config:
    """Return the configuration of uvicorn. Refused requests are reported to `guard.refused`, if it exists."""
    return uvicorn.Config(
        guard,
        http=connection_class(getattr(guard, "refused", None)),
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


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        factory: Callable[[], asyncio.AbstractEventLoop] = importlib.import_module("uvloop").new_event_loop
    except ImportError:  # not on Windows
        return asyncio.new_event_loop
    return factory
