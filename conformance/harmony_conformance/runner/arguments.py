"""Arguments of commands that send requests: what a parser needs, without the packages that use the values."""

from __future__ import annotations

import json
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from math import inf
from pathlib import Path

from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.runtime.package_data import package_data

API_WORDS = ("chat", "responses", "messages", "completions", "ollama", "tgi", "sglang")
"""Values of `--api`, each for one API or for the APIs of one server."""
FAIL_ON_WORDS = ("must", "should", "never")
"""Values of `--fail-on`."""
INCONCLUSIVE = "inconclusive"
"""The word of `--fail-on` that counts inconclusive results too."""
_ALL_APIS = "all"


def client_names() -> tuple[str, ...]:
    """Return the values of `--client`."""
    folder = package_data("golden")
    return tuple(json.loads((folder / "clients.json").read_text("utf-8"))["clients"]) if folder is not None else ()


def add_connection_options(parser: ArgumentParser, *, has_pace: bool = True) -> None:
    """Add the target, and the options of any requests to it.

    `has_pace`: False hides the options of number and pace, for a command that has its own and refuses these.
    """

    def pace(text: str) -> str:
        return text if has_pace else SUPPRESS

    parser.add_argument(
        "target",
        metavar="TARGET",
        help="reference, reference:defect=ID, URL, ENGINE:URL, or replay:FILE; ws://… for Responses over a WebSocket",
    )
    add = parser.add_argument_group("requests").add_argument
    add("--model", help="name of the model (default: the first of /v1/models)")
    add(
        "--concurrency",
        type=whole_number(1),
        metavar="N",
        help=pace("concurrent requests (default: 8 for localhost, else 2)"),
    )
    add("--api-key-env", metavar="VAR", help="environment variable with the API key")
    add("--header", action="append", default=[], metavar="'K: V'", help="header added to each request, never recorded")
    add("--extra-body", default="{}", metavar="JSON", help="members added to each request")
    add("--seed", type=int, metavar="N", help="seed sent with each request")
    add = parser.add_argument_group("limits").add_argument
    add(
        "--timeout",
        type=_seconds,
        default=60.0,
        metavar="S",
        help="maximum time without a byte, in seconds (default: 60)",
    )
    add(
        "--wait",
        type=_duration,
        metavar="TIME",
        help="maximum time to wait for a server that is starting, such as 10m; connection errors and HTTP 502 to 504 are retried (default: no wait)",
    )
    add("--max-requests", type=whole_number(1), metavar="N", help=pace("maximum number of requests after discovery"))
    add(
        "--max-time",
        type=_duration,
        metavar="TIME",
        help="maximum time of the run, waits included: seconds, or a number with s, m or h, such as 30m (default: no limit)",
    )
    add(
        "--max-tokens",
        type=whole_number(1),
        metavar="N",
        help="maximum number of output tokens of all answers after discovery; requests in flight are still finished",
    )
    add("--max-rps", type=_rate, metavar="R", help=pace("maximum number of requests per second"))
    add = parser.add_argument_group("connection").add_argument
    add(
        "--proxy",
        metavar="URL",
        help="HTTP proxy: http, https, or socks5 (extra `socks`); credentials in the URL are never recorded",
    )
    add("--unix-socket", metavar="PATH", help="connect to this Unix socket instead of the URL's host")
    add("--ca-file", metavar="FILE", help="PEM file of additional certificate authorities")
    add("--client-cert", metavar="FILE", help="PEM file of a client certificate, with or without its key")
    add("--client-key", metavar="FILE", help="PEM file of the client certificate's key, unencrypted")
    add("--http2", action="store_true", help="offer HTTP/2 to an https endpoint (extra `http2`)")


def add_plugin_option(add: Callable[..., object]) -> None:
    """Add the option that loads checks of the user."""
    add(
        "--plugin",
        action="append",
        default=[],
        metavar="FILE_OR_MODULE",
        help="execute this Python file (.py) or installed module, and judge with its checks too; may be repeated",
    )


def add_options(parser: ArgumentParser) -> None:
    """Add the target and the options of a run."""
    add_connection_options(parser)
    add = parser.add_argument_group("checks and scenarios").add_argument
    add_plugin_option(add)
    add(
        "--api",
        action="append",
        choices=[*API_WORDS, _ALL_APIS],
        help="API of the scenarios; may be repeated; all: every API that the endpoint offers (default: chat; for a recording, its APIs)",
    )
    add(
        "--client",
        choices=[*client_names()],
        help="judge what this client needs: its API, its recorded requests, and a verdict for it (not with --api or --select)",
    )
    add("--tries", type=whole_number(1), default=1, metavar="N", help="send each scenario N times")
    patterns = "a pattern of check ids or scenario names, or CHECK@SCENARIO; may be repeated"
    add(
        "--select",
        action="append",
        default=[],
        metavar="GLOB",
        help=f"run these checks on every scenario, and every check on these scenarios: {patterns}",
    )
    add("--skip", action="append", default=[], metavar="GLOB", help=f"skip these checks and scenarios: {patterns}")
    add(
        "--script",
        choices=["auto", *(way.value for way in ScriptMethod)],
        default="auto",
        help="method of scripted output",
    )
    add(
        "--fail-on",
        type=_fail_on,
        default="must",
        metavar="SEVERITY[,inconclusive]",
        help=f"exit code 1 for failures from this severity ({', '.join(FAIL_ON_WORDS)}; default: must), and for inconclusive results if named",
    )


def _fail_on(text: str) -> str:
    words = text.split(",")
    if not {*words} <= {*FAIL_ON_WORDS, INCONCLUSIVE} or len({*FAIL_ON_WORDS}.intersection(words)) > 1:
        raise ArgumentTypeError(
            f"expected one of {', '.join(FAIL_ON_WORDS)}, with or without {INCONCLUSIVE}, got {text!r}"
        )
    return text


def whole_number(least: int) -> Callable[[str], int]:
    """Return an argument parser for whole numbers from `least`."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ArgumentTypeError(f"expected a whole number from {least}, got {text!r}")
        return int(text)

    return read


def folder_path(text: str) -> Path:
    """Return an argument as the path of a folder. An empty one, such as that of an unset variable, would be the current folder."""
    if not text.strip():
        raise ArgumentTypeError(f"expected the path of a folder, got {text!r}")
    return Path(text)


def _seconds(text: str) -> float:
    return _positive(text, "a number of seconds above 0")


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def _duration(text: str) -> float:
    """Return the seconds of a duration such as 90, 90s, 30m or 2h."""
    unit = _UNITS.get(text[-1:])
    expected = "a time above 0 such as 90, 30m or 2h"
    if unit is None:
        return _positive(text, expected)
    try:
        return _positive(text[:-1], expected) * unit
    except ArgumentTypeError:
        raise ArgumentTypeError(f"expected {expected}, got {text!r}") from None


def _rate(text: str) -> float:
    return _positive(text, "a number of requests per second above 0")


def _positive(text: str, expected: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise ArgumentTypeError(f"expected {expected}, got {text!r}")
    return value
