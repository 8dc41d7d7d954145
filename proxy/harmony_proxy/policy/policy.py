"""What is done about which check on which route: observe, repair or block; and what happens where we fail ourselves.

    fail = "open"                  # what cannot be examined passes ("closed": it is blocked)
    fallback = "observe"           # where a repair cannot ("block": the answer is blocked)

    reasoning_field = "reasoning"  # what clients call the reasoning, for repairs; otherwise as the server calls it

    [checks]
    "channels.no_marker_leak" = "repair"
    "tool_calls.*" = "block"       # the longest pattern that fits counts

    [[route]]                      # the first whose path fits counts, instead of the rules above
    path = "*/chat/completions"
    fail = "closed"
    checks = {"*" = "observe"}

Nothing named is observed. Only checks that must hold can be acted on: a SHOULD is no reason to change an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TypeVar

from harmony_conformance.json_value import Json


class Action(StrEnum):
    """What is done where a check fails."""

    OBSERVE = "observe"
    REPAIR = "repair"
    BLOCK = "block"


class FailMode(StrEnum):
    """What becomes of an answer that we could not examine: an error of ours, a body too large, an encoding that is not known."""

    OPEN = "open"
    CLOSED = "closed"


class InvalidPolicyError(ValueError):
    """A policy that cannot be; says in one line what, where, and what would be right."""


Word = TypeVar("Word", Action, FailMode)

_RULE = '"channels.no_marker_leak" = "repair"'
_NONE: Mapping[str, Action] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Route:
    """The rules of the paths that fit a pattern. `actions` has the checks that are acted on, by id, and no others."""

    path: str = "*"
    actions: Mapping[str, Action] = field(default_factory=lambda: _NONE)
    fallback: Action = Action.OBSERVE
    fail: FailMode = FailMode.OPEN

    @property
    def observes(self) -> bool:
        """Whether every byte passes as it came."""
        return not self.actions


OBSERVING = Route()


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The routes, in the order in which they are tried; what fits none is observed."""

    routes: tuple[Route, ...] = (OBSERVING,)

    def route(self, path: str) -> Route:
        """The rules of a path."""
        return next((route for route in self.routes if route.path == "*" or fnmatchcase(path, route.path)), OBSERVING)

    @property
    def observes(self) -> bool:
        """Whether it never acts."""
        return all(route.observes for route in self.routes)


OBSERVE = Policy()


def read_policy(value: Json, *, musts: Collection[str], repairable: Collection[str]) -> Policy:
    """The policy that a TOML document says, given the ids of the checks that must hold and of those that there is a repair of.

    Raises:
        BadPolicy: it names no check, or asks for what there is not.
    """
    told = _table(value, "the policy", "names and values")
    _known(told, ("fail", "fallback", "reasoning_field", "checks", "route"), "the policy")
    rest = _route(
        {name: it for name, it in told.items() if name not in ("route", "reasoning_field")},
        "the policy",
        musts,
        repairable,
    )
    asked = told.get("route", [])
    if not isinstance(asked, list):
        raise InvalidPolicyError("the policy: routes are tables, each begins with [[route]]")
    inherited = {name: told[name] for name in ("fail", "fallback") if name in told}
    routes = [
        _route(
            {**inherited, **_table(route, f"route {number}", "what follows [[route]]")},
            f"route {number}",
            musts,
            repairable,
        )
        for number, route in enumerate(asked, start=1)
    ]
    return Policy(routes=(*routes, rest))


def flag_policy(  # noqa: PLR0913 - all that flags say of a policy
    repair: Iterable[str],
    block: Iterable[str],
    fail: str,
    fallback: str = Action.OBSERVE.value,
    *,
    musts: Collection[str],
    repairable: Collection[str],
) -> Policy:
    """The policy of `--repair` and `--block`: patterns of ids; where both fit, the longer one counts.

    Raises:
        BadPolicy: as above.
    """
    rules: dict[str, Json] = {**dict.fromkeys(repair, "repair"), **dict.fromkeys(block, "block")}
    return read_policy({"fail": fail, "fallback": fallback, "checks": rules}, musts=musts, repairable=repairable)


def _route(told: Mapping[str, Json], where: str, musts: Collection[str], repairable: Collection[str]) -> Route:
    _known(told, ("path", "fail", "fallback", "checks"), where)
    checks = _table(told.get("checks", {}), f"{where}, checks", _RULE)
    for pattern, action in checks.items():
        if isinstance(action, dict):
            raise InvalidPolicyError(f"{where}, {pattern}: the id of a check stands in quotation marks: {_RULE}")
    rules = {pattern: _one_of(Action, action, f"{where}, {pattern}") for pattern, action in checks.items()}
    for pattern, action in rules.items():
        fitting = {check for check in musts if fnmatchcase(check, pattern)}
        if not fitting:
            raise InvalidPolicyError(
                f"{where}: {pattern!r} is no check that must hold (see `harmony-conformance checks`)"
            )
        if action is Action.REPAIR and not fitting & set(repairable):
            known = ", ".join(sorted(repairable)) or "none"
            raise InvalidPolicyError(f"{where}: there is no repair of {pattern!r}; there are: {known}")
    fallback = _one_of(Action, told.get("fallback", Action.OBSERVE.value), f"{where}, fallback")
    if fallback is Action.REPAIR:
        raise InvalidPolicyError(f"{where}: fallback is what happens where a repair cannot: 'observe' or 'block'")
    path = told.get("path", "*")
    if not isinstance(path, str):
        raise InvalidPolicyError(f"{where}: path is a pattern: '*/chat/completions'")
    actions = {check: action for check in musts if (action := _action(check, rules, repairable)) is not Action.OBSERVE}
    fail = _one_of(FailMode, told.get("fail", FailMode.OPEN.value), f"{where}, fail")
    return Route(path=path, actions=MappingProxyType(actions), fallback=fallback, fail=fail)


def _action(check: str, rules: Mapping[str, Action], repairable: Collection[str]) -> Action:
    """The action of the longest pattern that fits; a repair that there is not, under a pattern for many, is none."""
    fitting = [pattern for pattern in rules if fnmatchcase(check, pattern)]
    action = rules[max(fitting, key=_weight)] if fitting else Action.OBSERVE
    return Action.OBSERVE if action is Action.REPAIR and check not in repairable else action


def _weight(pattern: str) -> int:
    return len(pattern.replace("*", ""))


def _one_of(kind: type[Word], told: Json, where: str) -> Word:
    for word in kind:
        if told == word.value:
            return word
    raise InvalidPolicyError(f"{where}: {told!r} is none of {', '.join(repr(word.value) for word in kind)}")


def _table(told: Json, where: str, of: str) -> Mapping[str, Json]:
    if not isinstance(told, dict):
        raise InvalidPolicyError(f"{where}: {told!r} is no table: {of}")
    return told


def _known(told: Mapping[str, Json], names: Collection[str], where: str) -> None:
    for name in told:
        if name not in names:
            raise InvalidPolicyError(f"{where}: {name!r} is none of {', '.join(names)}")
