"""`harmony-conformance proxy`: watch the traffic of an endpoint, unchanged, and log what each exchange comes to."""

from __future__ import annotations

import importlib.util
import os
import socket
from argparse import ArgumentParser, Namespace
from pathlib import Path

from harmony_conformance.command import Command, UsageError
from harmony_conformance.target import BadTarget, Target, parse_target
from harmony_proxy.judge_settings import LOW, NONE, QUOTING, Settings

_LISTEN = "127.0.0.1:8090"
_LARGEST_PORT = 65535


def configure(parser: ArgumentParser) -> None:
    """Where to listen, what to watch, where to log."""
    parser.add_argument(
        "--mitmproxy", action="store_true", required=True, help="run within mitmproxy (the only way yet)"
    )
    parser.add_argument(
        "--upstream", metavar="TARGET", required=True, help="the endpoint: vllm:http://host:8000/v1, or a bare URL"
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default=_LISTEN, help=f"default: {_LISTEN}; port 0 is any free one"
    )
    parser.add_argument("--log", metavar="FILE", type=Path, help="append one JSON line for each exchange")
    parser.add_argument(
        "--excerpts",
        choices=QUOTING,
        default=NONE,
        help="what of the traffic the log quotes (default: none: check ids, outcomes and counts)",
    )
    parser.add_argument(
        "--capture",
        choices=QUOTING,
        default=NONE,
        help="whether the log holds samples of failing exchanges: as they were without credentials, or redacted (default: none)",
    )


def execute(arguments: Namespace) -> int:
    """Watch until stopped."""
    upstream = _upstream(arguments.upstream)
    host, port = _listen(arguments.listen)
    if importlib.util.find_spec("mitmproxy") is None:
        raise UsageError("mitmproxy is not installed: pip install 'harmony-conformance[mitmproxy]'")
    _try_to_listen(host, port)
    from harmony_proxy.running import watch  # noqa: PLC0415 - imports mitmproxy, which is slow, and an extra

    return watch(upstream.base or "", host, port, _settings(arguments, upstream.engine.name))


def _settings(arguments: Namespace, engine: str) -> Settings:
    if arguments.log is not None:
        try:
            arguments.log.open("ab").close()
        except OSError as problem:
            raise UsageError(f"--log {arguments.log}: {problem.strerror}") from None
    return Settings(
        log=arguments.log,
        excerpts=arguments.excerpts,
        capture=arguments.capture,
        engine=engine,
        priority=os.environ.get("HARMONY_GUARD_PRIORITY", LOW),
    )


def _upstream(text: str) -> Target:
    try:
        target: Target = parse_target(text)
    except BadTarget as problem:
        raise UsageError(f"--upstream: {problem}") from None
    if target.base is None:
        raise UsageError(
            f"--upstream {text!r} names no server to connect to: for example vllm:http://127.0.0.1:8000/v1"
        )
    return target


def _listen(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > _LARGEST_PORT:
        raise UsageError(f"--listen {text!r} is no HOST:PORT: for example {_LISTEN}")
    return host, int(port)


def _try_to_listen(host: str, port: int) -> None:
    """Find out before anything is started; mitmproxy would say it in a log of its own."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as problem:
        raise UsageError(f"cannot listen on {host}:{port}: {problem.strerror or problem}") from None


COMMAND = Command(
    name="proxy",
    help="watch the traffic of an endpoint, unchanged, and log what fails",
    configure=configure,
    run=execute,
)
