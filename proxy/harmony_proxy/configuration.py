"""Policies and settings from files, flags and the environment: where text becomes values. What acts is imported only where something is to be acted on.

HARMONY_GUARD_POLICY     a TOML file (see `policy`)
HARMONY_GUARD_REPAIR     patterns of check ids, by commas
HARMONY_GUARD_BLOCK      the same
HARMONY_GUARD_FAIL       open (default) or closed
HARMONY_GUARD_FALLBACK   where a repair cannot: observe (default) or block
HARMONY_GUARD_LOG        the outcome log, appended to
HARMONY_GUARD_EXCERPTS   none (default), redacted, full: what of the traffic findings quote
HARMONY_GUARD_CAPTURE    none (default), redacted, full: samples of failing exchanges
HARMONY_GUARD_METRICS    HOST:PORT, for Prometheus
HARMONY_GUARD_ENGINE     the engine's name, as in `harmony-conformance engines`
HARMONY_GUARD_PRIORITY   of the process that judges: low (default), normal
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, at, text
from harmony_proxy.judging.judge_settings import LOW, NONE, NORMAL, QUOTING, JudgeSettings
from harmony_proxy.policy.actions import Handlers
from harmony_proxy.policy.policy import OBSERVE, Action, FailMode, InvalidPolicyError, Policy, flag_policy, read_policy

PREFIX = "HARMONY_GUARD_"
_LARGEST_PORT = 65535


class InvalidSettingError(ValueError):
    """A setting that cannot be; says in one line which, and what would be right."""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """A policy and those who act by it; none of them where everything is observed."""

    policy: Policy = OBSERVE
    handlers: Handlers | None = None


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """All that a guard is set to."""

    rules: Rules
    judging: JudgeSettings
    metrics: tuple[str, int] | None = None


def load_rules(  # noqa: PLR0913 - all that flags say of a policy
    file: Path | None = None,
    *,
    repair: Sequence[str] = (),
    block: Sequence[str] = (),
    fail: str = FailMode.OPEN.value,
    fallback: str = Action.OBSERVE.value,
    reasoning_field: str | None = None,
) -> Rules:
    """The rules of a policy file, or of flags.

    Raises:
        BadSetting: the file cannot be read, or says what cannot be; or there are both.
    """
    if file is not None and (repair or block):
        raise InvalidSettingError("a policy file says all: no further checks to repair or block beside it")
    try:
        if file is not None:
            document: Json = tomllib.loads(file.read_text(encoding="utf-8"))
            field = at(document, "reasoning_field")
            return _rules(lambda musts, can: read_policy(document, musts=musts, repairable=can), field)
        if not repair and not block:
            flag_policy((), (), fail, fallback, musts=(), repairable=())
            return Rules()
        return _rules(
            lambda musts, can: flag_policy(repair, block, fail, fallback, musts=musts, repairable=can), reasoning_field
        )
    except OSError as problem:
        raise InvalidSettingError(f"{file}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise InvalidSettingError(f"{file} is no UTF-8 text (byte {problem.start})") from None
    except (InvalidPolicyError, ValueError) as problem:
        raise InvalidSettingError(f"{file}: {problem}" if file is not None else str(problem)) from None


def from_environment(environment: Mapping[str, str]) -> Configuration:
    """What the environment says.

    Raises:
        BadSetting: it says what cannot be.
    """

    def told(name: str, otherwise: str = "") -> str:
        return environment.get(PREFIX + name, otherwise).strip()

    file, log, metrics = told("POLICY"), told("LOG"), told("METRICS")
    priority = told("PRIORITY", LOW)
    if priority not in (LOW, NORMAL):
        raise InvalidSettingError(f"{PREFIX}PRIORITY {priority!r} is neither {LOW} nor {NORMAL}")
    rules = load_rules(
        Path(file) if file else None,
        repair=_listed(told("REPAIR")),
        block=_listed(told("BLOCK")),
        fail=told("FAIL", FailMode.OPEN.value),
        fallback=told("FALLBACK", Action.OBSERVE.value),
        reasoning_field=told("REASONING_FIELD") or None,
    )
    judging = JudgeSettings(
        log=Path(log) if log else None,
        excerpts=_excerpts("EXCERPTS", told("EXCERPTS")),
        capture=_excerpts("CAPTURE", told("CAPTURE")),
        engine=told("ENGINE", "openai"),
        priority=priority,
    )
    return Configuration(rules=rules, judging=judging, metrics=address(metrics) if metrics else None)


def address(told: str) -> tuple[str, int]:
    """A host and a port.

    Raises:
        BadSetting: it is none.
    """
    host, colon, port = told.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > _LARGEST_PORT:
        raise InvalidSettingError(f"{told!r} is no HOST:PORT: for example 127.0.0.1:8090")
    return host, int(port)


def _rules(read: Callable[[frozenset[str], frozenset[str]], Policy], reasoning_field: Json) -> Rules:
    from harmony_conformance.checks import CHECKS  # noqa: PLC0415 - as above
    from harmony_conformance.judge.check import MUST  # noqa: PLC0415 - all checks are read: only where something is acted on
    from harmony_conformance.prompts.chat_request import REASONING_FIELDS  # noqa: PLC0415 - as above
    from harmony_proxy import repair  # noqa: PLC0415 - as above

    if reasoning_field is not None and reasoning_field not in REASONING_FIELDS:
        raise InvalidPolicyError(
            f"reasoning_field {reasoning_field!r} is none of {', '.join(map(repr, REASONING_FIELDS))}"
        )
    actors = repair.handlers(reasoning_field=text(reasoning_field) or None)
    musts = frozenset(check.id for check in CHECKS if check.subject is Exchange and check.severity is MUST)
    policy = read(musts, actors.repairs)
    return Rules() if policy.observes else Rules(policy=policy, handlers=actors)


def _listed(told: str) -> list[str]:
    return [pattern.strip() for pattern in told.split(",") if pattern.strip()]


def _excerpts(name: str, told: str) -> str:
    if (told or NONE) not in QUOTING:
        raise InvalidSettingError(f"{PREFIX}{name} {told!r} is none of {', '.join(QUOTING)}")
    return told or NONE
