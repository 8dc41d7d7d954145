"""Policies: which failures are observed, repaired or blocked on which route, and the handling of unexaminable responses.

    fail = "open"                  # pass responses that cannot be examined ("closed": block them)
    fallback = "observe"           # if a repair is impossible ("block": block the response)

    reasoning_field = "reasoning"  # name of the reasoning field in repaired responses; default: the server's name
    memory_limit = "256M"          # memory of all exchanges in flight; read by `configuration`

    [checks]
    "channels.no_marker_leak" = "repair"
    "tool_calls.*" = "block"       # the longest matching pattern applies

    [[route]]                      # the first matching route replaces the rules above
    path = "*/chat/completions"
    fail = "closed"
    checks = {"*" = "observe"}

Checks that are not named are observed. Only MUST checks can be repaired or blocked: a SHOULD does not justify a change.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TypeVar

from harmony_conformance.json_value import Json
from harmony_conformance.runtime.file_keys import names_of
from harmony_proxy.policy.setting_keys import KEYS, ROUTE


class Action(StrEnum):
    """The action on a failed check."""

    OBSERVE = "observe"
    REPAIR = "repair"
    BLOCK = "block"


class FailMode(StrEnum):
    """Handling of a response that cannot be examined: an internal error, a body too large, an unknown encoding."""

    OPEN = "open"
    CLOSED = "closed"


class InvalidPolicyError(ValueError):
    """An invalid policy. The message is one line: the place, the expected and the actual value."""


Word = TypeVar("Word", Action, FailMode)

_NO_RULES = ("reasoning_field", "memory_limit")  # settings of the whole guard
_RULE = '"channels.no_marker_leak" = "repair"'
_NONE: Mapping[str, Action] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Route:
    """The rules for all paths that match a pattern. `actions` contains only checks that are repaired or blocked."""

    path: str = "*"
    actions: Mapping[str, Action] = field(default_factory=lambda: _NONE)
    fallback: Action = Action.OBSERVE
    fail: FailMode = FailMode.OPEN

    @property
    def observes(self) -> bool:
        """True if every byte passes unchanged."""
        return not self.actions

    @property
    def is_closed(self) -> bool:
        """True if the route acts, and blocks what it cannot examine."""
        return bool(self.actions) and self.fail is FailMode.CLOSED

    def limited_to(self, checks: Container[str]) -> Route:
        """Return the route with actions for these checks only."""
        return replace(self, actions={check: action for check, action in self.actions.items() if check in checks})


OBSERVE_ROUTE = Route()


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The routes, in order of precedence. A path that matches no route is observed."""

    routes: tuple[Route, ...] = (OBSERVE_ROUTE,)

    def route(self, path: str) -> Route:
        """Return the first route that matches the path."""
        return next(
            (route for route in self.routes if route.path == "*" or fnmatchcase(path, route.path)), OBSERVE_ROUTE
        )

    def refuses_unknown(self, path: str) -> bool:
        """Return True if a request on an unknown path is refused: one route is closed, and no `[[route]]` for this path is not."""
        own = next((route for route in self.routes if route.path != "*" and fnmatchcase(path, route.path)), None)
        return any(route.is_closed for route in self.routes) if own is None else own.is_closed

    @property
    def observes(self) -> bool:
        """True if no route repairs or blocks."""
        return all(route.observes for route in self.routes)

    def summary(self) -> str:
        """Return a short description: the largest number of checks that a route repairs and blocks, and the fail modes."""
        if self.observes:
            return "every check is observed"
        counts = [
            f"checks {word}: {most}"
            for action, word in ((Action.REPAIR, "repaired"), (Action.BLOCK, "blocked"))
            if (most := max(sum(one is action for one in route.actions.values()) for route in self.routes))
        ]
        fails = sorted({route.fail.value for route in self.routes if not route.observes})
        return f"{', '.join(counts)}, fail = {' or '.join(fails)}"


OBSERVE_POLICY = Policy()


def read_policy(value: Json, *, musts: Collection[str], repairable: Collection[str]) -> Policy:
    """Return the policy of a TOML document, given the ids of all MUST checks and of the repairable checks.

    Raises:
        InvalidPolicyError: a name or value is unknown, or a check cannot be repaired.
    """
    document = _table(value, "policy", "names and values")
    _check_names(document, (*names_of(KEYS), "checks", "route"), "policy")
    default = {name: it for name, it in document.items() if name not in ("route", *_NO_RULES)}
    last = _route(default, "policy", musts, repairable)
    tables = document.get("route", [])
    if not isinstance(tables, list):
        raise InvalidPolicyError("policy: invalid route: expected tables that each begin with [[route]]")
    inherited = {name: document[name] for name in ("fail", "fallback") if name in document}
    routes = [
        _route({**inherited, **_table(table, where, "the lines after [[route]]")}, where, musts, repairable)
        for where, table in ((f"route {number}", table) for number, table in enumerate(tables, start=1))
    ]
    return Policy(routes=(*routes, last))


def flag_policy(  # noqa: PLR0913 - all policy flags
    repair: Iterable[str],
    block: Iterable[str],
    fail: str,
    fallback: str = Action.OBSERVE.value,
    *,
    musts: Collection[str],
    repairable: Collection[str],
) -> Policy:
    """Return the policy of `--repair` and `--block`: patterns of check ids; the longer match applies.

    Raises:
        InvalidPolicyError: as for `read_policy`.
    """
    rules: dict[str, Json] = {**dict.fromkeys(repair, "repair"), **dict.fromkeys(block, "block")}
    return read_policy({"fail": fail, "fallback": fallback, "checks": rules}, musts=musts, repairable=repairable)


def _route(table: Mapping[str, Json], where: str, musts: Collection[str], repairable: Collection[str]) -> Route:
    _check_names(table, names_of(KEYS, ROUTE), where)
    checks = _table(table.get("checks", {}), f"{where}, checks", _RULE)
    rules: dict[str, Action] = {}
    for pattern, word in checks.items():
        if isinstance(word, dict):
            raise InvalidPolicyError(
                f"{where}: invalid check {pattern}: expected a check id in quotation marks: {_RULE}"
            )
        rules[pattern] = action = _one_of(Action, word, f"{where}: invalid action of {pattern}")
        matches = {check for check in musts if fnmatchcase(check, pattern)}
        if not matches:
            raise InvalidPolicyError(
                f"{where}: invalid check: expected a MUST check (see `harmony-conformance checks`), got {pattern!r}"
            )
        if action is Action.REPAIR and not matches & set(repairable):
            known = ", ".join(sorted(repairable)) or "none"
            raise InvalidPolicyError(f"{where}: invalid repair: expected a repairable check ({known}), got {pattern!r}")
    fallback = _one_of(Action, table.get("fallback", Action.OBSERVE.value), f"{where}: invalid fallback")
    if fallback is Action.REPAIR:
        raise InvalidPolicyError(f"{where}: invalid fallback: expected 'observe' or 'block', got 'repair'")
    path = table.get("path", "*")
    if not isinstance(path, str):
        raise InvalidPolicyError(
            f"{where}: invalid path: expected a pattern such as '*/chat/completions', got {path!r}"
        )
    actions = {check: action for check in musts if (action := _action(check, rules, repairable)) is not Action.OBSERVE}
    fail = _one_of(FailMode, table.get("fail", FailMode.OPEN.value), f"{where}: invalid fail")
    return Route(path=path, actions=MappingProxyType(actions), fallback=fallback, fail=fail)


def _action(check: str, rules: Mapping[str, Action], repairable: Collection[str]) -> Action:
    """Return the action of the longest matching pattern. A check without a repair is observed instead of repaired."""
    matches = [pattern for pattern in rules if fnmatchcase(check, pattern)]
    action = rules[max(matches, key=lambda pattern: len(pattern.replace("*", "")))] if matches else Action.OBSERVE
    return Action.OBSERVE if action is Action.REPAIR and check not in repairable else action


def _one_of(kind: type[Word], value: Json, problem: str) -> Word:
    if value in (words := [word.value for word in kind]):
        return kind(value)
    raise InvalidPolicyError(f"{problem}: expected one of {', '.join(map(repr, words))}, got {value!r}")


def _table(value: Json, where: str, content: str) -> Mapping[str, Json]:
    if not isinstance(value, dict):
        raise InvalidPolicyError(f"{where}: invalid value: expected a table ({content}), got {value!r}")
    return value


def _check_names(table: Mapping[str, Json], names: Collection[str], where: str) -> None:
    if (unknown := next((name for name in table if name not in names), None)) is not None:
        raise InvalidPolicyError(f"{where}: invalid name: expected one of {', '.join(names)}, got {unknown!r}")
