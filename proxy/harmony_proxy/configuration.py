"""Read policies and settings from files, flags and the environment. The package `repair` is imported only if a policy acts.

The variables of the environment are in `policy.setting_keys`, with the prefix `HARMONY_GUARD_`.
"""

from __future__ import annotations

import importlib.util
import re
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import partial
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import MappingProxyType
from typing import cast
from urllib.parse import urlsplit

from harmony_conformance.errors import UsageError, listen_error
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, text, value_at
from harmony_conformance.runtime.toml_files import read_toml_file
from harmony_proxy.capture.memory_budget import SMALLEST_LIMIT
from harmony_proxy.judging.counters import Gauges
from harmony_proxy.judging.examiner import Examiner
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import EXCERPT_MODES, LOW, NONE, NORMAL, JudgeSettings
from harmony_proxy.judging.live.upstream_probe import UpstreamProbe
from harmony_proxy.policy.policy import (
    OBSERVE_POLICY,
    Action,
    FailMode,
    InvalidPolicyError,
    Policy,
    flag_policy,
    read_policy,
)
from harmony_proxy.policy.repair_interface import Handlers
from harmony_proxy.policy.setting_keys import VARIABLES
from harmony_ref.extras import install_command

PREFIX = "HARMONY_GUARD_"
_LARGEST_PORT = 65535
_BACKLOG = 2048
_SIZE = re.compile(r"([0-9]{1,15})([KMG]?)", re.IGNORECASE)
_SHIFTS = {"": 0, "K": 10, "M": 20, "G": 30}
_LARGEST_SIZE = 1 << 50
_SERVICE_VARIABLE = re.compile(r"SERVICE_HOST|SERVICE_PORT(_.*)?|PORT(_.*)?")
"""Variables that Kubernetes sets in each container for a service named `harmony-guard`, without the prefix."""


class InvalidSettingError(ValueError):
    """An invalid setting. The message is one line: the setting, the expected and the actual value."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A policy and its handlers; no handlers if everything is observed. `memory_limit` in bytes; None: the default.

    `empty_file` is a policy file without a setting: an editor may have truncated it.
    """

    policy: Policy = OBSERVE_POLICY
    handlers: Handlers | None = None
    memory_limit: int | None = None
    empty_file: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """All settings of a guard."""

    rules: Rules
    judging: JudgeSettings
    metrics: tuple[str, int] | None = None


_DEPENDENT: Mapping[str, tuple[str | None, str]] = MappingProxyType(
    {
        "fail": (FailMode.OPEN.value, "checks to repair or block"),
        "fallback": (Action.OBSERVE.value, "checks to repair"),
        "reasoning_field": (None, "checks to repair or block"),
    }
)
"""Settings that only modify an action: the default of each, and what it requires."""


def load_rules(  # noqa: PLR0913 - all policy flags
    file: Path | None = None,
    *,
    repair: Sequence[str] = (),
    block: Sequence[str] = (),
    fail: str = FailMode.OPEN.value,
    fallback: str = Action.OBSERVE.value,
    reasoning_field: str | None = None,
    memory_limit: str | None = None,
) -> Rules:
    """Return the rules of a policy file, or of flags. `memory_limit` takes precedence over that of the file.

    Raises:
        InvalidSettingError: the file is unreadable or invalid, or there are a file and flags.
    """
    if file is not None and (repair or block):
        raise InvalidSettingError("a policy file cannot be combined with further checks to repair or block")
    _validate_modes(fail, fallback)
    values = {"fail": fail, "fallback": fallback, "reasoning_field": reasoning_field}
    for name, (default, required) in _DEPENDENT.items():
        if values[name] != default and not (repair or (block and "block" in required)):
            hint = "; with a policy file, set it in that file" if file is not None else ""
            raise InvalidSettingError(f"{name} {values[name]!r} requires {required}{hint}")
    try:
        if file is not None:
            document = cast("Json", read_toml_file(file))
            size = parse_size(value_at(document, "memory_limit") if memory_limit is None else memory_limit)
            rules = _rules(partial(read_policy, document), value_at(document, "reasoning_field"))
            return replace(rules, memory_limit=size, empty_file=None if document else file)
        size = parse_size(memory_limit)
        if repair or block:
            rules = _rules(partial(flag_policy, repair, block, fail, fallback), reasoning_field)
            return replace(rules, memory_limit=size)
        return Rules(memory_limit=size)
    except OSError as problem:
        raise InvalidSettingError(f"{file}: {problem.strerror}") from None
    except (InvalidPolicyError, ValueError) as problem:
        raise InvalidSettingError(f"{file}: {problem}" if file is not None else str(problem)) from None


def _validate_modes(fail: str, fallback: str) -> None:
    try:
        flag_policy((), (), fail, fallback, musts=(), repairable=())
    except InvalidPolicyError as problem:
        raise InvalidSettingError(str(problem)) from None


def from_environment(environment: Mapping[str, str]) -> Configuration:
    """Return the configuration of the environment.

    Raises:
        InvalidSettingError: a variable has an invalid value, or no setting has its name.
    """
    _refuse_unknown(environment)

    def value(name: str, default: str = "") -> str:
        return environment.get(PREFIX + name, "").strip() or default

    def patterns(name: str) -> list[str]:
        return [pattern.strip() for pattern in value(name).split(",") if pattern.strip()]

    def one_of(choices: Sequence[str], name: str, choice: str) -> str:
        if choice not in choices:
            raise InvalidSettingError(f"invalid {PREFIX}{name}: expected one of {', '.join(choices)}, got {choice!r}")
        return choice

    file, log, metrics = value("POLICY"), value("LOG"), value("METRICS")
    priority = one_of((LOW, NORMAL), "PRIORITY", value("PRIORITY", LOW))
    with _named("*"):
        rules = load_rules(
            Path(file) if file else None,
            repair=patterns("REPAIR"),
            block=patterns("BLOCK"),
            fail=value("FAIL", FailMode.OPEN.value),
            fallback=value("FALLBACK", Action.OBSERVE.value),
            reasoning_field=value("REASONING_FIELD") or None,
            memory_limit=value("MEMORY_LIMIT") or None,
        )
    with _named("METRICS"):
        address = parse_metrics_address(metrics)
    with _named("OTEL"):
        otel = parse_receiver(value("OTEL"))
    judging = JudgeSettings(
        log=Path(log) if log else None,
        excerpts=one_of(EXCERPT_MODES, "EXCERPTS", value("EXCERPTS") or NONE),
        capture=one_of(EXCERPT_MODES, "CAPTURE", value("CAPTURE") or NONE),
        engine=value("ENGINE", "openai"),
        priority=priority,
        otel=otel,
        otel_content=one_of(EXCERPT_MODES, "OTEL_CONTENT", value("OTEL_CONTENT") or NONE),
    )
    return Configuration(rules=rules, judging=judging, metrics=address)


@contextmanager
def _named(variable: str) -> Generator[None]:
    """Name the variable in the message of an invalid setting."""
    try:
        yield
    except InvalidSettingError as problem:
        raise InvalidSettingError(f"{PREFIX}{variable} in the environment: {problem}") from None


def _refuse_unknown(environment: Mapping[str, str]) -> None:
    names = [key.name for key in VARIABLES]
    own = (name.removeprefix(PREFIX) for name in sorted(environment) if name.startswith(PREFIX))
    for name in own:
        if name not in names and not _SERVICE_VARIABLE.fullmatch(name):
            similar = get_close_matches(name, names, n=1)
            meant = f"; did you mean {PREFIX}{similar[0]}?" if similar else ""
            expected = ", ".join(PREFIX + one for one in names)
            raise InvalidSettingError(f"invalid environment variable {PREFIX}{name}: expected one of {expected}{meant}")


def parse_size(value: Json) -> int | None:
    """Parse a memory limit: bytes, or a number with K, M or G, such as "256M". None stays None.

    Raises:
        InvalidSettingError: the value has another form, or is too small.
    """
    if value is None:
        return None
    match = _SIZE.fullmatch(str(value)) if isinstance(value, int | str) else None
    size = int(match[1]) << _SHIFTS[match[2].upper()] if match is not None else 0
    if not SMALLEST_LIMIT <= size <= _LARGEST_SIZE:
        least = SMALLEST_LIMIT >> _SHIFTS["M"]
        raise InvalidSettingError(f"invalid memory_limit: expected at least {least}M, such as 256M, got {value!r}")
    return size


def parse_metrics_address(value: str | None) -> tuple[str, int] | None:
    """Parse `HOST:PORT` of the metrics; None without a value.

    Raises:
        InvalidSettingError: as `parse_address`, or prometheus_client is not installed.
    """
    if not value:
        return None
    if _find_module("prometheus_client") is None:
        raise InvalidSettingError(f"prometheus_client is not installed: {install_command('proxy')}")
    return parse_address(value)


def parse_address(value: str) -> tuple[str, int]:
    """Parse `HOST:PORT`.

    Raises:
        InvalidSettingError: the value has another form, or a port above 65535.
    """
    host, colon, port = value.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if (
        not colon
        or not host
        or not port.isdecimal()
        or len(port) > len(str(_LARGEST_PORT))
        or int(port) > _LARGEST_PORT
    ):
        raise InvalidSettingError(f"invalid address: expected HOST:PORT such as 127.0.0.1:8090, got {value!r}")
    return host, int(port)


def parse_receiver(url: str) -> str:
    """Check the URL of an OTLP/HTTP receiver, and that its extra is installed. Empty stays empty.

    Raises:
        InvalidSettingError: the value is no such URL, has credentials, or the extra is missing.
    """
    if not url:
        return ""
    try:
        split = urlsplit(url)
        is_valid = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:  # of the port, or of an IPv6 address
        is_valid, split = False, urlsplit("")
    if not is_valid or split.query or split.fragment:
        shown = url.rpartition("@")[2].partition("?")[0]  # without credentials
        expected = "expected the URL of an OTLP/HTTP receiver such as http://127.0.0.1:4318"
        raise InvalidSettingError(f"invalid receiver: {expected}, got {shown!r}")
    if "@" in split.netloc:
        raise InvalidSettingError(
            "invalid receiver: expected no user and password (use OTEL_EXPORTER_OTLP_HEADERS), got both"
        )
    if _find_module("opentelemetry.exporter.otlp.proto.http") is None:
        raise InvalidSettingError(f"OpenTelemetry is not installed: {install_command('otel')}")
    return url


def _find_module(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError:  # of a package around it
        return None


def create_listening_socket(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        UsageError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as problem:
        raise listen_error(host, port, problem) from None
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def start_metrics(
    address: tuple[str, int] | None, queue: JudgeQueue, gauges: Gauges, upstream: str = ""
) -> Callable[[], None]:
    """Serve the metrics and the live page, if there is an address for them. Return a function that stops it.

    `upstream` is the URL whose readiness the page shows, or empty.

    Raises:
        UsageError: the address cannot be listened on.
    """
    if address is None:
        return lambda: None
    from harmony_proxy.judging.metrics import serve_metrics  # noqa: PLC0415 - requires prometheus_client, an extra

    probe = UpstreamProbe(upstream) if upstream else None
    try:
        return serve_metrics(address, queue, gauges, probe)
    except OSError as problem:
        raise UsageError(f"metrics at {address[0]}:{address[1]}: {problem.strerror or problem}") from None


def _rules(read: Callable[..., Policy], reasoning_field: Json) -> Rules:
    # These import all checks and repairs, which takes time: only if a policy is read.
    from harmony_conformance.checks import CHECKS  # noqa: PLC0415 - as above
    from harmony_conformance.judge.check import MUST  # noqa: PLC0415 - as above
    from harmony_conformance.prompts.request_members import REASONING_FIELDS  # noqa: PLC0415 - as above
    from harmony_proxy import repair  # noqa: PLC0415 - as above
    from harmony_ref import encode  # noqa: PLC0415 - as above

    if reasoning_field is not None and reasoning_field not in REASONING_FIELDS:
        expected = ", ".join(map(repr, REASONING_FIELDS))
        raise InvalidPolicyError(f"invalid reasoning_field: expected one of {expected}, got {reasoning_field!r}")
    handlers = repair.handlers(reasoning_field=text(reasoning_field) or None, call_apart=Examiner())
    musts = frozenset(check.id for check in CHECKS if check.subject is Exchange and check.severity is MUST)
    policy = read(musts=musts, repairable=handlers.repairable_checks)
    if policy.observes:
        return Rules()
    encode(" ")  # loads the vocabulary now, not within the first answer that is judged
    return Rules(policy=policy, handlers=handlers)
