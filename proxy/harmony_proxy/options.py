"""Options of `harmony-conformance proxy`. Nothing that the proxy works with is imported here, so that `--help` is fast."""

from __future__ import annotations

import math
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

from harmony_proxy.judging.judge_settings import EXCERPT_MODES, NONE
from harmony_proxy.policy.policy import Action, FailMode

DRAIN = 30.0
"""Seconds for open answers at the end."""
_LISTEN = "127.0.0.1:8090"


def configure(parser: ArgumentParser) -> None:
    """Add the options: address, target, log, policy, repairs."""
    option = parser.add_argument_group("addresses").add_argument
    option("--upstream", metavar="TARGET", required=True, help="the endpoint: vllm:http://host:8000/v1, or a bare URL")
    option(
        "--listen",
        metavar="HOST:PORT",
        default=_LISTEN,
        help=f"address to listen on; port 0 selects a free port (default: {_LISTEN})",
    )
    drain = f"time limit for open requests at shutdown (default: {DRAIN:.0f})"
    option("--drain", metavar="SECONDS", type=_seconds, default=DRAIN, help=drain)
    option("--mitmproxy", action="store_true", help="run within mitmproxy, for interception and debugging")
    option = parser.add_argument_group("policy").add_argument
    option("--policy", metavar="FILE", type=Path, help="a TOML file: the action for each check and route")
    for action in ("repair", "block"):
        checks = f"{action} responses that fail these checks (ids or patterns)"
        option(f"--{action}", metavar="CHECK", action="extend", nargs="+", default=[], help=checks)
    fail = "pass (open, default) or block (closed) responses that cannot be examined; with --repair or --block"
    option("--fail", choices=[mode.value for mode in FailMode], default=FailMode.OPEN.value, help=fail)
    fallbacks = [Action.OBSERVE.value, Action.BLOCK.value]
    fallback = "pass (observe, default) or block (block) responses that cannot be repaired; with --repair"
    option("--fallback", choices=fallbacks, default=Action.OBSERVE.value, help=fallback)
    reasoning = "name of the reasoning field in repaired responses: reasoning_content, reasoning"
    option("--reasoning-field", metavar="NAME", help=reasoning)
    memory = "memory of all exchanges in flight (default: 256M); further ones pass unexamined, or are refused with --fail closed"
    option("--memory-limit", metavar="SIZE", help=memory)
    option = parser.add_argument_group("log and metrics").add_argument
    option("--log", metavar="FILE", type=Path, help="append one JSON line for each exchange")
    excerpts = "traffic quoted in the log (default: none, only check ids, outcomes and counts)"
    option("--excerpts", choices=EXCERPT_MODES, default=NONE, help=excerpts)
    capture = "samples of failing exchanges, and before and after of repairs, in the log: full (without credentials) or redacted (default: none)"
    option("--capture", choices=EXCERPT_MODES, default=NONE, help=capture)
    option("--metrics", metavar="HOST:PORT", help="serve Prometheus metrics at this address, and a live page at /live")
    otel = "send a GenAI span for each answer, and metrics, to this OTLP/HTTP receiver: http://127.0.0.1:4318"
    option("--otel", metavar="URL", default="", help=otel)
    messages = "messages in the spans (default: none)"
    option("--otel-content", choices=EXCERPT_MODES, default=NONE, help=messages)


def _seconds(value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise ArgumentTypeError(f"invalid duration: expected a number of seconds >= 0, got {value!r}")
    return number
