"""Options of a run for the command `run` and the pytest plugin: from arguments to `Target` and `Options`."""

from __future__ import annotations

import os
import re
from argparse import Namespace
from dataclasses import replace
from importlib.util import find_spec

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS, RESPONSES
from harmony_conformance.engines.target import InvalidTargetError, Target, is_loopback, parse_target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import ALL_APIS
from harmony_conformance.golden.clients import ClientProfile, client_profiles
from harmony_conformance.json_value import InvalidJsonError, dumps, loads, members
from harmony_conformance.judge.check import Severity
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.runner.arguments import INCONCLUSIVE
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.run import Options, make_plan
from harmony_conformance.runner.selection import NothingSelectedError
from harmony_conformance.runner.websocket_use import WebSocketUse
from harmony_conformance.transport.http_transport import Network, proxy_from_environment, read_proxy
from harmony_conformance.transport.websocket_network import has_websockets
from harmony_ref.extras import install_command

FAIL_ON = {
    "must": frozenset({Severity.MUST}),
    "should": frozenset({Severity.MUST, Severity.SHOULD}),
    "never": frozenset[Severity](),
}
"""Severities whose failures count, by the value of `--fail-on`."""
OWN_MEMBERS = frozenset(
    {
        *("harmony_script", "harmony_script_then", "max_completion_tokens", "max_tokens", "messages", "model"),
        *("input", "n", "response_format", "stop", "stop_sequences", "stream", "stream_options"),
        *("tool_choice", "tools", "vllm_xargs"),
    }
)
"""Request members that scenarios set; another value would invalidate the checks."""
_VARIABLE = re.compile(r"^[A-Za-z_][A-Za-z0-9_]*$")
_HEADER = re.compile(r"^[!#$%&'*+.^_`|~0-9A-Za-z-]+$")


def read_options(arguments: Namespace) -> tuple[Target, Options]:
    """Return the target and the options.

    Raises:
        UsageError: An argument is invalid.
    """
    try:
        target = parse_target(arguments.target)
    except InvalidTargetError as problem:
        raise UsageError(str(problem)) from None
    if unknown := [defect for defect in target.defects if defect not in DEFECTS]:
        raise UsageError(
            f"invalid defect: expected an id of `harmony-conformance serve --list-defects`, got {unknown[0]!r}"
        )
    try:
        extra = loads(arguments.extra_body)
    except InvalidJsonError:  # it may have a key, so it is not printed
        raise UsageError("invalid --extra-body: expected JSON, got another text") from None
    if not isinstance(extra, dict):
        raise UsageError('invalid --extra-body: expected a JSON object like {"top_k": 1}, got another value')
    if reserved := sorted(OWN_MEMBERS & extra.keys()):
        hint = "; use --model" if reserved[0] == "model" else ""
        raise UsageError(
            f"invalid --extra-body: expected members that the suite does not set, got {reserved[0]!r}{hint}"
        )
    network = _network(arguments, target)
    profile = read_client(arguments)
    chosen = arguments.api or [CHAT_COMPLETIONS.name]
    names = [one.name for one in APIS.values() if one.option_name in chosen or ALL_APIS in chosen]
    options = Options(
        model=arguments.model,
        tries=arguments.tries,
        concurrency=arguments.concurrency,
        select=tuple(arguments.select) if profile is None else profile.patterns,
        skip=tuple(arguments.skip),
        script=arguments.script,
        timeout=arguments.timeout,
        seed=arguments.seed,
        key=_key(arguments, target, network),
        key_env=arguments.api_key_env,
        headers=tuple(_header(header) for header in arguments.header),
        extra_body=members(extra),
        max_requests=arguments.max_requests,
        max_rps=arguments.max_rps,
        max_time=arguments.max_time,
        startup_time=arguments.wait,
        max_tokens=arguments.max_tokens,
        apis=tuple(names) if profile is None else (profile.api,),
        network=network,
    )
    return target, replace(options, websocket_use=_websocket_use(target, options))


def _websocket_use(target: Target, options: Options) -> WebSocketUse:
    """Return the use of WebSockets. The embedded server gets the scenarios about a connection if the library is installed.

    Raises:
        UsageError: The target is a ws URL, and an option does not fit it.
    """
    if not target.is_websocket:
        is_embedded = target.base_url is None and target.replay is None
        return WebSocketUse.SCENARIOS if is_embedded and has_websockets() else WebSocketUse.NONE
    if RESPONSES.name not in options.apis:
        raise UsageError(f"invalid target: expected --api {RESPONSES.option_name} with a ws URL, got {target}")
    if not has_websockets():
        raise UsageError(
            "invalid target: expected the extra `websocket` for a ws URL, got no package websockets"
            f" ({install_command('websocket')})"
        )
    if options.network.proxy is not None and not options.network.proxy.startswith("http"):
        raise UsageError(
            f"invalid proxy: expected an http or https proxy with a ws URL, got {options.network.proxy_address}"
        )
    return WebSocketUse.STREAMS


def read_client(arguments: Namespace) -> ClientProfile | None:
    """Return the profile of `--client`, or None without that option.

    Raises:
        UsageError: It is combined with an option that it sets.
    """
    name = getattr(arguments, "client", None)
    if name is None:
        return None
    if arguments.api is not None or arguments.select:
        option = "--api" if arguments.api is not None else "--select"
        raise UsageError(f"invalid --client: expected no {option}, which the client's profile sets, got both")
    return client_profiles()[name]


def _network(arguments: Namespace, target: Target) -> Network:
    """Return the options of the connection. HTTP_PROXY and HTTPS_PROXY apply unless --proxy or --unix-socket is used."""
    values = {
        name: getattr(arguments, name) for name in ("proxy", "unix_socket", "ca_file", "client_cert", "client_key")
    }
    used = [f"--{name.replace('_', '-')}" for name, value in values.items() if value is not None]
    used += ["--http2"] if arguments.http2 else []
    if target.base_url is None:
        if used:
            raise UsageError(f"invalid {used[0]}: expected a target with a URL, got {target}")
        return Network()
    if arguments.proxy is not None and arguments.unix_socket is not None:
        raise UsageError("invalid --proxy: expected no --unix-socket, got both")
    if arguments.client_key is not None and arguments.client_cert is None:
        raise UsageError("invalid --client-key: expected --client-cert too, got the key alone")
    if arguments.http2 and not target.base_url.startswith("https:"):
        raise UsageError(f"invalid --http2: expected an https URL, got {target.base_url}")
    if arguments.http2 and find_spec("h2") is None:
        raise UsageError(f"invalid --http2: expected the extra `http2`, got no package h2 ({install_command('http2')})")
    if arguments.proxy is not None:
        values["proxy"] = read_proxy(arguments.proxy, "--proxy")
    elif arguments.unix_socket is None:
        values["proxy"] = proxy_from_environment(target.base_url)
    return Network(**values, http2=arguments.http2)


FLAGS = frozenset({"http2"})
"""Options without a value."""


def reproduction_arguments(options: Options) -> tuple[str, ...]:
    """Return the arguments that repeat the requests of a run; headers are omitted, as they may contain secrets."""
    words: list[str] = []
    if options.model is not None:
        words += ("--model", options.model)
    if options.apis != (CHAT_COMPLETIONS.name,):
        chosen = dict.fromkeys(APIS[name].option_name for name in options.apis)
        is_all = chosen.keys() == {api.option_name for api in APIS.values()}
        words += [word for api in ([ALL_APIS] if is_all else chosen) for word in ("--api", api)]
    if options.script != "auto":
        words += ("--script", options.script)
    if options.seed is not None:
        words += ("--seed", str(options.seed))
    if options.extra_body:
        words += ("--extra-body", dumps(options.extra_body))
    words += options.network.command_line_options
    return tuple(words)


def failing_severities(fail_on: str) -> frozenset[Severity]:
    """Return the severities whose failures count, for a value of `--fail-on`."""
    return next((FAIL_ON[word] for word in fail_on.split(",") if word in FAIL_ON), FAIL_ON["must"])


def fails_on_inconclusive(fail_on: str) -> bool:
    """Return True if inconclusive results count, for a value of `--fail-on`."""
    return INCONCLUSIVE in fail_on.split(",")


def read_plan(options: Options) -> Plan:
    """Return the selected checks and scenarios.

    Raises:
        UsageError: A pattern matches nothing.
    """
    try:
        return make_plan(options)
    except NothingSelectedError as problem:
        raise UsageError(str(problem)) from None


def _key(arguments: Namespace, target: Target, network: Network) -> str | None:
    variable: str | None = arguments.api_key_env
    if variable is None:
        return None
    if not _VARIABLE.match(variable):  # it may be the key itself, so it is not printed
        raise UsageError("invalid --api-key-env: expected the name of an environment variable, like EXAMPLE_KEY")
    key = os.environ.get(variable, "")
    if not key and any(getattr(arguments, name, False) for name in ("dry_run", "list")):
        return None  # nothing is sent
    if not key:
        name = f"the variable {variable}" if variable.isupper() else "that variable"  # as above
        raise UsageError(f"invalid --api-key-env: expected a key in {name}, got an unset or empty variable")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            f"invalid key in {variable}: expected printable ASCII, got white space, control or non-ASCII characters"
        )
    is_local = network.unix_socket is not None or (target.is_local and is_loopback(network.proxy))
    if target.base_url is not None and target.base_url.startswith("http:") and not is_local:
        raise UsageError("invalid target: expected https, as a key is never sent over http to another machine")
    return key


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    name, value = name.strip(), value.strip()
    if not colon or not _HEADER.match(name):
        raise UsageError(f"invalid --header: expected 'name: value', got the name {name!r}")
    if not value.isascii() or not value.isprintable():
        raise UsageError(f"invalid --header {name}: expected printable ASCII, got control or non-ASCII characters")
    return name, value
