"""`harmony-conformance proxy`: judge the traffic of an endpoint, log each outcome, and optionally repair or block."""

from __future__ import annotations

import importlib.util
import os
import sys
from argparse import Namespace
from functools import partial

from harmony_conformance.engines.target import InvalidTargetError, Target, parse_target
from harmony_conformance.errors import UsageError
from harmony_proxy.configuration import (
    InvalidSettingError,
    Rules,
    create_listening_socket,
    from_environment,
    load_rules,
    parse_address,
    parse_metrics_address,
    parse_receiver,
)
from harmony_proxy.judging.judge_settings import NONE, JudgeSettings
from harmony_proxy.judging.log_file import append_error
from harmony_proxy.options import DRAIN
from harmony_proxy.policy.policy import Action, FailMode
from harmony_ref.extras import install_command

_EXTRAS = {"aiohttp": "proxy", "uvicorn": "proxy", "httptools": "proxy", "mitmproxy": "mitmproxy"}


def execute(arguments: Namespace) -> int:
    """Run the proxy until it is stopped."""
    upstream = _upstream(arguments.upstream)
    try:
        host, port = parse_address(arguments.listen)
    except InvalidSettingError as problem:
        raise UsageError(f"--listen: {problem}") from None
    priority = _priority()
    settings = _settings(arguments, upstream.engine.name, priority)
    rules, base = _rules(arguments), upstream.base_url or ""
    if rules.empty_file is not None:
        sys.stderr.write(f"--policy {rules.empty_file}: the file is empty, so every check is observed\n")
    try:
        metrics = parse_metrics_address(arguments.metrics)
    except InvalidSettingError as problem:
        raise UsageError(f"--metrics: {problem}") from None
    if arguments.mitmproxy:
        if arguments.drain != DRAIN:
            raise UsageError("--drain cannot be combined with --mitmproxy, which has no drain time")
        create_listening_socket(host, port).close()  # mitmproxy would report a failure only in its own log
        _require("mitmproxy")
        from harmony_proxy.mitmproxy_addon.run_mitmproxy import run_mitmproxy  # noqa: PLC0415 - mitmproxy is slow to import, and an extra

        return run_mitmproxy(base, host, port, settings, rules=rules, metrics=metrics)
    _require("aiohttp", "uvicorn", "httptools")
    from harmony_proxy.standalone.server import StandaloneSettings, serve  # noqa: PLC0415 - needs an extra

    standalone = StandaloneSettings(
        upstream=base,
        host=host,
        port=port,
        judging=settings,
        rules=rules,
        metrics=metrics,
        drain=arguments.drain,
        read_rules=partial(_rules, arguments) if arguments.policy is not None else None,
    )
    return serve(standalone)


_DEPENDENT_FLAGS = (
    ("--fail closed", "fail", FailMode.OPEN.value, ("repair", "block")),
    ("--fallback block", "fallback", Action.OBSERVE.value, ("repair",)),
    ("--reasoning-field", "reasoning_field", None, ("repair", "block")),
    ("--otel-content", "otel_content", NONE, ("otel",)),
)
"""Flags that only modify other flags: the flag, its attribute, its default, and the other flags' attributes."""


def _rules(arguments: Namespace) -> Rules:
    values = vars(arguments)
    for flag, name, default, required in _DEPENDENT_FLAGS:
        if values[name] != default and not any(values[one] for one in required):
            is_policy = arguments.policy is not None and "otel" not in required
            hint = "; with --policy, set it in the policy file" if is_policy else ""
            raise UsageError(f"{flag} requires {' or '.join(f'--{one}' for one in required)}{hint}")
    try:
        return load_rules(
            arguments.policy,
            repair=arguments.repair,
            block=arguments.block,
            fail=arguments.fail,
            fallback=arguments.fallback,
            reasoning_field=arguments.reasoning_field,
            memory_limit=arguments.memory_limit,
        )
    except InvalidSettingError as problem:
        raise UsageError(str(problem)) from None


def _priority() -> str:
    """Return the priority of the judge process, after a check of all variables of the environment.

    Raises:
        UsageError: A variable is invalid.
    """
    try:
        return from_environment(os.environ).judging.priority
    except InvalidSettingError as problem:
        raise UsageError(str(problem)) from None


def _settings(arguments: Namespace, engine: str, priority: str) -> JudgeSettings:
    if problem := append_error(arguments.log):
        raise UsageError(f"--log {arguments.log}: {problem}")
    try:
        otel = parse_receiver(arguments.otel)
    except InvalidSettingError as problem:
        raise UsageError(f"--otel: {problem}") from None
    return JudgeSettings(
        log=arguments.log,
        excerpts=arguments.excerpts,
        capture=arguments.capture,
        engine=engine,
        priority=priority,
        otel=otel,
        otel_content=arguments.otel_content,
    )


def _require(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise UsageError(f"{module} is not installed: {install_command(_EXTRAS[module])}")


def _upstream(text: str) -> Target:
    try:
        target: Target = parse_target(text)
    except InvalidTargetError as problem:
        raise UsageError(f"--upstream: {problem}") from None
    if target.base_url is None:
        raise UsageError(
            f"invalid --upstream: expected the URL of a server such as vllm:http://127.0.0.1:8000/v1, got {text!r}"
        )
    return target
