"""The options of a run, as the command `run` and the pytest plugin read them: words in, `Target` and `Options` out."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from math import inf
from types import MappingProxyType

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.engines.profiles import ScriptMethod
from harmony_conformance.engines.target import InvalidTargetError, Target, is_loopback, parse_target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import ALL_APIS
from harmony_conformance.json_value import InvalidJsonError, dumps, loads, members
from harmony_conformance.judge.check import Severity
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.run import NothingSelectedError, Options, make_plan
from harmony_conformance.transport.http_transport import Network, proxy_from_environment, read_proxy

FAIL_ON = {
    "must": frozenset({Severity.MUST}),
    "should": frozenset({Severity.MUST, Severity.SHOULD}),
    "never": frozenset[Severity](),
}
"""The severities whose failures count, by the value of `--fail-on`."""
OWN_MEMBERS = frozenset(
    {
        "harmony_script",
        "harmony_script_then",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "model",
        "n",
        "stream",
        "stream_options",
        "tool_choice",
        "tools",
        "vllm_xargs",
    }
)
"""The members of a request that scenarios set: another value would change what they show."""
_INSTEAD: Mapping[str, str] = MappingProxyType({"model": ": name one by --model"})
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_HEADER = re.compile(r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")


def add_options(parser: ArgumentParser) -> None:
    """The target, and what to send it and how."""
    parser.add_argument(
        "target",
        metavar="TARGET",
        help="reference, reference:defect=ID, vllm:URL, openai:URL, …, or replay:exchanges.jsonl",
    )
    parser.add_argument("--model", help="the model to ask for (default: the first one listed)")
    parser.add_argument(
        "--api",
        choices=[*API_WORDS, ALL_APIS],
        help="the API to send the scenarios over; all: every one that the endpoint offers (default: chat; of a recording, those that it holds)",
    )
    parser.add_argument("--tries", type=whole_number(1), default=1, metavar="N", help="send every scenario N times")
    parser.add_argument(
        "--concurrency",
        type=whole_number(1),
        metavar="N",
        help="requests at a time (default: 8 on this machine, 2 elsewhere)",
    )
    parser.add_argument("--select", action="append", default=[], metavar="GLOB", help="only these checks or scenarios")
    parser.add_argument("--skip", action="append", default=[], metavar="GLOB", help="not these checks or scenarios")
    parser.add_argument(
        "--script",
        choices=["auto", *(way.value for way in ScriptMethod)],
        default="auto",
        help="how the model's output is scripted",
    )
    parser.add_argument("--fail-on", choices=list(FAIL_ON), default="must", help="which failures give exit code 1")
    parser.add_argument("--api-key-env", metavar="VAR", help="the environment variable that holds the key")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="'K: V'",
        help="a header sent with each request, never recorded",
    )
    parser.add_argument("--extra-body", default="{}", metavar="JSON", help="members added to each request")
    parser.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="S", help="longest silence between bytes, in seconds"
    )
    parser.add_argument(
        "--max-requests", type=whole_number(1), metavar="N", help="send no more than N requests after discovery"
    )
    parser.add_argument("--max-rps", type=_rate, metavar="R", help="start at most R requests a second")
    parser.add_argument(
        "--proxy",
        metavar="URL",
        help="send requests through this proxy: http, https, or (extra `socks`) socks5; user and password may be in the URL and are never recorded",
    )
    parser.add_argument("--unix-socket", metavar="PATH", help="connect to this Unix socket instead of the URL's host")
    parser.add_argument("--ca-file", metavar="FILE", help="trust the certificate authorities of this PEM file, too")
    parser.add_argument("--client-cert", metavar="FILE", help="PEM file of a client certificate, with its key or not")
    parser.add_argument("--client-key", metavar="FILE", help="PEM file of the client certificate's key, unencrypted")
    parser.add_argument("--http2", action="store_true", help="offer HTTP/2 to an https endpoint (extra `http2`)")
    parser.add_argument("--seed", type=int, metavar="N", help="seed sent with each request")


def read_options(arguments: Namespace) -> tuple[Target, Options]:
    """The target and the options.

    Raises:
        UsageError: one of them cannot be used; says which, and what would be right.
    """
    try:
        target = parse_target(arguments.target)
    except InvalidTargetError as problem:
        raise UsageError(str(problem)) from None
    unknown = [defect for defect in target.defects if defect not in DEFECTS]
    if unknown:
        raise UsageError(f"no defect {unknown[0]!r}: harmony-conformance serve --list-defects lists them")
    try:
        extra = loads(arguments.extra_body)
    except InvalidJsonError as problem:
        raise UsageError(f"--extra-body is no JSON: {problem}") from None
    if not isinstance(extra, dict):
        raise UsageError('--extra-body is no JSON object: for example {"top_k": 1}')
    own = sorted(OWN_MEMBERS & extra.keys())
    if own:
        raise UsageError(f"--extra-body: {own[0]!r} is set by the suite{_INSTEAD.get(own[0], '')}")
    network = _network(arguments, target)
    options = Options(
        model=arguments.model,
        tries=arguments.tries,
        concurrency=arguments.concurrency,
        select=tuple(arguments.select),
        skip=tuple(arguments.skip),
        script=arguments.script,
        timeout=arguments.timeout,
        seed=arguments.seed,
        key=_key(arguments.api_key_env, target, network),
        headers=tuple(_header(header) for header in arguments.header),
        extra_body=members(extra),
        max_requests=arguments.max_requests,
        max_rps=arguments.max_rps,
        apis=_apis(arguments.api or CHAT_COMPLETIONS.name),
        network=network,
    )
    return target, options


def _network(arguments: Namespace, target: Target) -> Network:
    """Return the options of the connection. The proxy of the environment is that of an endpoint with a URL, unless an option names another way."""
    given = {
        name: getattr(arguments, name) for name in ("proxy", "unix_socket", "ca_file", "client_cert", "client_key")
    }
    named = [f"--{name.replace('_', '-')}" for name, value in given.items() if value is not None]
    named += ["--http2"] if arguments.http2 else []
    if target.base is None:
        if named:
            raise UsageError(f"invalid {named[0]}: expected a target with a URL, got {target}")
        return Network()
    if arguments.proxy is not None and arguments.unix_socket is not None:
        raise UsageError("invalid --proxy: expected no --unix-socket, got both")
    if arguments.client_key is not None and arguments.client_cert is None:
        raise UsageError("invalid --client-key: expected --client-cert too, got the key alone")
    if arguments.http2 and not target.base.startswith("https:"):
        raise UsageError(f"invalid --http2: expected an https URL, got {target.base}")
    if arguments.http2 and find_spec("h2") is None:
        raise UsageError(
            "invalid --http2: expected the extra `http2`, got no package h2 (pip install 'harmony-conformance[http2]')"
        )
    if arguments.proxy is not None:
        given["proxy"] = read_proxy(arguments.proxy, "--proxy")
    elif arguments.unix_socket is None:
        given["proxy"] = proxy_from_environment(target.base)
    return Network(**given, http2=arguments.http2)


FLAGS = frozenset({"http2"})
"""Options without a value."""
API_WORDS = tuple(dict.fromkeys(api.option_name for api in APIS.values()))
"""The words of `--api` that name one API, or several of one server."""


def _apis(word: str) -> tuple[str, ...]:
    """The names of the APIs that a word chooses."""
    return tuple(api.name for api in APIS.values() if word in (api.option_name, ALL_APIS))


def repeated(options: Options) -> tuple[str, ...]:
    """The words that give a run of one scenario the same requests; headers are left out, since they may hold secrets."""
    words: list[str] = []
    if options.model is not None:
        words += ("--model", options.model)
    if options.apis != (CHAT_COMPLETIONS.name,):
        chosen = {APIS[name].option_name for name in options.apis}
        words += ("--api", chosen.pop() if len(chosen) == 1 else ALL_APIS)
    if options.script != "auto":
        words += ("--script", options.script)
    if options.seed is not None:
        words += ("--seed", str(options.seed))
    if options.extra_body:
        words += ("--extra-body", dumps(options.extra_body))
    words += options.network.words
    return tuple(words)


def read_plan(options: Options) -> Plan:
    """The checks and scenarios that are selected.

    Raises:
        UsageError: a pattern matches nothing.
    """
    try:
        return make_plan(options)
    except NothingSelectedError as problem:
        raise UsageError(str(problem)) from None


def _key(variable: str | None, target: Target, network: Network) -> str | None:
    if variable is None:
        return None
    if not _VARIABLE.match(variable):  # it may be the key itself, which is not told to a log of a CI
        raise UsageError("--api-key-env takes the name of the variable that holds the key, not the key: EXAMPLE_KEY")
    key = os.environ.get(variable, "")
    if not key:
        named = f"the variable {variable}" if variable.isupper() else "a variable of that name"  # as above
        raise UsageError(f"--api-key-env: {named} is not set or empty")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            f"--api-key-env: the value of {variable} is no key (it holds white space, control or non-ASCII characters)"
        )
    stays_here = network.unix_socket is not None or (target.is_local and is_loopback(network.proxy))
    if target.base is not None and target.base.startswith("http:") and not stays_here:
        raise UsageError("a key is not sent over plain http to another machine: use https")
    return key


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not _HEADER.match(name):
        raise UsageError(f"--header {name!r} is no header: 'name: value'")
    if not value.isascii() or not value.isprintable():
        raise UsageError(f"--header {name}: its value holds control or non-ASCII characters")
    return name, value


def whole_number(least: int) -> Callable[[str], int]:
    """A reader of an option's value."""

    def read(text: str) -> int:
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise ArgumentTypeError(f"{text!r} is no whole number from {least}")
        return int(text)

    return read


def _seconds(text: str) -> float:
    return _above_zero(text, "number of seconds above 0")


def _rate(text: str) -> float:
    return _above_zero(text, "number of requests a second above 0")


def _above_zero(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < inf:
        raise ArgumentTypeError(f"{text!r} is no {what}")
    return value
