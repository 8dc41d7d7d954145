"""`harmony-conformance proxy`: watch the traffic of an endpoint, log what each exchange comes to, and, where a policy says so, repair or block it."""

from __future__ import annotations

import importlib.util
import math
import os
import socket
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path

from harmony_conformance.cli.command import Command
from harmony_conformance.engines.target import InvalidTargetError, Target, parse_target
from harmony_conformance.errors import UsageError
from harmony_proxy.configuration import PREFIX, InvalidSettingError, Rules, address, load_rules
from harmony_proxy.judging.judge_settings import LOW, NONE, QUOTING, JudgeSettings
from harmony_proxy.policy.policy import Action, FailMode

_LISTEN = "127.0.0.1:8090"
_DRAIN = 30.0
_EXTRAS = {"aiohttp": "proxy", "uvicorn": "proxy", "httptools": "proxy", "mitmproxy": "mitmproxy"}


def configure(parser: ArgumentParser) -> None:
    """Where to listen, what to watch, where to log, what to do."""
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
    parser.add_argument("--policy", metavar="FILE", type=Path, help="a TOML file: what is done about which check where")
    parser.add_argument(
        "--repair", metavar="CHECK", action="extend", nargs="+", default=[], help="repair what fails these (patterns)"
    )
    parser.add_argument(
        "--block", metavar="CHECK", action="extend", nargs="+", default=[], help="block what fails these (patterns)"
    )
    parser.add_argument(
        "--fail",
        choices=[mode.value for mode in FailMode],
        default=FailMode.OPEN.value,
        help="whether what could not be examined passes (open, the default) or is blocked (closed); with --repair or --block",
    )
    parser.add_argument(
        "--fallback",
        choices=[Action.OBSERVE.value, Action.BLOCK.value],
        default=Action.OBSERVE.value,
        help="whether what a repair cannot mend passes (observe, the default) or is blocked (block); with --repair",
    )
    parser.add_argument(
        "--reasoning-field",
        metavar="NAME",
        help="what clients call the reasoning, for repairs: reasoning_content, reasoning",
    )
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve metrics for Prometheus there")
    parser.add_argument(
        "--drain",
        metavar="SECONDS",
        type=_seconds,
        default=_DRAIN,
        help=f"how long answers under way may take once it is told to stop (default: {_DRAIN:.0f})",
    )
    parser.add_argument("--mitmproxy", action="store_true", help="run within mitmproxy, for interception and debugging")


def execute(arguments: Namespace) -> int:
    """Run until stopped."""
    upstream = _upstream(arguments.upstream)
    try:
        host, port = address(arguments.listen)
    except InvalidSettingError as problem:
        raise UsageError(f"--listen {problem}") from None
    settings = _settings(arguments, upstream.engine.name)
    if arguments.mitmproxy:
        _only_without_mitmproxy(arguments)
        _needs("mitmproxy")
        _try_to_listen(host, port)
        from harmony_proxy.mitmproxy_addon.running import watch  # noqa: PLC0415 - imports mitmproxy, which is slow, and an extra

        return watch(upstream.base or "", host, port, settings, _rules(arguments))
    _needs("aiohttp", "uvicorn", "httptools")
    from harmony_proxy.standalone.server import Standalone, serve  # noqa: PLC0415 - needs an extra

    try:
        metrics = address(arguments.metrics) if arguments.metrics else None
    except InvalidSettingError as problem:
        raise UsageError(f"--metrics {problem}") from None
    return serve(
        Standalone(
            upstream=upstream.base or "",
            host=host,
            port=port,
            judging=settings,
            rules=_rules(arguments),
            metrics=metrics,
            drain=arguments.drain,
        )
    )


def _seconds(told: str) -> float:
    try:
        number = float(told)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentTypeError(f"{told!r} is no number of seconds from 0")
    return number


_ONLY_WITH = (
    ("--fail closed", "fail", FailMode.OPEN.value, ("repair", "block")),
    ("--fallback block", "fallback", Action.OBSERVE.value, ("repair",)),
    ("--reasoning-field", "reasoning_field", None, ("repair", "block")),
)
"""Flags that say how something is done, their attribute and its default, and the attributes of what has to be done for them to say anything."""


def _only_without_mitmproxy(arguments: Namespace) -> None:
    for flag, asked in (("--metrics", arguments.metrics is not None), ("--drain", arguments.drain != _DRAIN)):
        if asked:
            raise UsageError(
                f"{flag} is not for --mitmproxy: it serves no metrics, and gives no time when it is stopped"
            )


def _rules(arguments: Namespace) -> Rules:
    told = vars(arguments)
    for flag, name, default, doing in _ONLY_WITH:
        if told[name] != default and not any(told[one] for one in doing):
            instead = (
                "; a policy file says it itself" if arguments.policy is not None else ": nothing is acted on without it"
            )
            raise UsageError(f"{flag} is for {' or '.join(f'--{one}' for one in doing)}{instead}")
    try:
        return load_rules(
            arguments.policy,
            repair=arguments.repair,
            block=arguments.block,
            fail=arguments.fail,
            fallback=arguments.fallback,
            reasoning_field=arguments.reasoning_field,
        )
    except InvalidSettingError as problem:
        raise UsageError(str(problem)) from None


def _settings(arguments: Namespace, engine: str) -> JudgeSettings:
    if arguments.log is not None:
        try:
            arguments.log.open("ab").close()
        except OSError as problem:
            raise UsageError(f"--log {arguments.log}: {problem.strerror}") from None
    return JudgeSettings(
        log=arguments.log,
        excerpts=arguments.excerpts,
        capture=arguments.capture,
        engine=engine,
        priority=os.environ.get(f"{PREFIX}PRIORITY", LOW),
    )


def _needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"{module} is not installed: pip install 'harmony-conformance[{_EXTRAS[module]}]'")


def _upstream(text: str) -> Target:
    try:
        target: Target = parse_target(text)
    except InvalidTargetError as problem:
        raise UsageError(f"--upstream: {problem}") from None
    if target.base is None:
        raise UsageError(
            f"--upstream {text!r} names no server to connect to: for example vllm:http://127.0.0.1:8000/v1"
        )
    return target


def _try_to_listen(host: str, port: int) -> None:
    """Find out before anything is started; mitmproxy would say it in a log of its own."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as problem:
        raise UsageError(f"cannot listen on {host}:{port}: {problem.strerror or problem}") from None


COMMAND = Command(
    name="proxy",
    help="watch the traffic of an endpoint and log what fails; repair or block it where a policy says so",
    configure=configure,
    run=execute,
)
