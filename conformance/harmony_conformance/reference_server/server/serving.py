"""Run the server in a thread, in a child process, or blocking for the command line."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from contextlib import closing, contextmanager
from importlib.util import find_spec
from threading import Thread

import uvicorn
from starlette.applications import Starlette

from harmony_conformance.reference_server.pipeline.http import LARGEST_BODY
from harmony_conformance.reference_server.server.app import DATE, create_app
from harmony_conformance.runtime.own_hosts import own_hosts
from harmony_conformance.runtime.processes import forked, may_fork

_STARTING_SECONDS = 10.0
_BACKLOG = 2048
_NOT_STARTED = "the reference server did not start"


class ServerStartError(RuntimeError):
    """The server did not start in time."""


@contextmanager
def running(*, defects: Iterable[str] = (), date: str = DATE) -> Generator[str]:
    """Run the server in a thread on a free port of 127.0.0.1, and yield its base URL.

    Raises:
        LookupError: unknown defect id.
        ServerStartError: the server did not start.
    """
    app = create_app(defects=defects, date=date, hosts=own_hosts("127.0.0.1"))
    with closing(_listening("127.0.0.1", 0)) as listening:
        server = _server(app)
        thread = Thread(target=server.run, kwargs={"sockets": [listening]}, name="reference-server", daemon=True)
        thread.start()
        try:
            _wait_until_started(server, thread)
            yield _url(listening)
        finally:
            server.should_exit = True
            server.force_exit = True
            thread.join()


@contextmanager
def running_in_process(*, defects: Iterable[str] = ()) -> Generator[str]:
    """Run the server in a child process, so that client and server each have a core, and yield its base URL.

    Forking is immediate, but only possible before there are threads or an event loop. Otherwise the start takes about
    a second.

    Raises:
        ServerStartError: the server did not start.
    """
    if not may_fork():
        with _spawned(defects) as base:
            yield base
        return
    try:
        app = create_app(defects=defects, hosts=own_hosts("127.0.0.1"))
    except LookupError as problem:
        raise ServerStartError(_NOT_STARTED) from problem
    with closing(_listening("127.0.0.1", 0)) as listening:
        base = _url(listening)
        process = forked(_serve_forked, app, listening)
    try:
        yield base
    finally:
        process.kill()
        process.join()


def _serve_forked(app: Starlette, listening: socket.socket) -> None:
    os.setsid()  # a keyboard interrupt reaches the client first
    _server(app).run(sockets=[listening])


@contextmanager
def _spawned(defects: Iterable[str]) -> Generator[str]:
    with subprocess.Popen(  # noqa: S603 - this interpreter; it inherits only two pipes
        [sys.executable, "-P", "-c", f"from {__name__} import serve_beside; serve_beside()", *defects],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # as above
    ) as process:
        try:
            url = process.stdout.readline().strip().removesuffix("/v1") if process.stdout is not None else ""
            if not url:
                raise ServerStartError(_NOT_STARTED)
            yield url
        finally:
            process.kill()


def serve_beside() -> None:
    """Serve in the child process, with the defects in its arguments, until the parent closes stdin or ends."""

    def exit_at_end_of_input() -> None:
        sys.stdin.read()
        os._exit(0)

    Thread(target=exit_at_end_of_input, daemon=True).start()
    serve("127.0.0.1", 0, sys.argv[1:])


def serve(
    host: str, port: int, defects: Iterable[str] = (), allowed_hosts: Iterable[str] = (), token_time: float = 0.0
) -> None:
    """Print the base URL for clients of OpenAI on one line, then serve until interrupted. Port 0 selects a free port. `token_time`: seconds per output token.

    Requests for a host other than this one, the local names, and `allowed_hosts` are refused.

    Raises:
        LookupError: unknown defect id.
        OSError: the host or port cannot be used.
    """
    app = create_app(defects=defects, hosts=own_hosts(host, allowed_hosts), token_time=token_time)
    with closing(_listening(host, port)) as listening:
        sys.stdout.write(f"{_url(listening)}/v1\n")
        sys.stdout.flush()
        # closed if an interrupt comes before it began: Python would warn of it
        with closing(_server(app).serve(sockets=[listening])) as serving:
            asyncio.run(serving)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except (TypeError, UnicodeError):
        raise OSError(f"invalid host: expected a name or address, got {host!r}") from None
    # asyncio only does this for sockets made with IPPROTO_TCP; without it each answer waits 40 ms for a delayed ACK
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def _url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _server(app: Starlette) -> uvicorn.Server:
    has_websockets = find_spec("websockets") is not None
    return uvicorn.Server(
        uvicorn.Config(
            app,
            log_level="critical",
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=1,
            ws="websockets-sansio" if has_websockets else "none",
            ws_max_size=LARGEST_BODY,
            ws_per_message_deflate=False,  # a small message cannot become a large one
            ws_ping_interval=None,
        )
    )


def _wait_until_started(server: uvicorn.Server, thread: Thread) -> None:
    deadline = time.monotonic() + _STARTING_SECONDS
    while not server.started:
        if not thread.is_alive() or time.monotonic() > deadline:
            raise ServerStartError(_NOT_STARTED)
        time.sleep(0.002)
