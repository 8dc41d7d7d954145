"""Lines of the log of the proxy: samples of failing exchanges, and what the server sent before a repair or a block.

A line without content is counted by the outcomes of its checks, so that rates are those of the traffic.
"""

from __future__ import annotations

from dataclasses import replace

from harmony_conformance.apis.registry import refine_api
from harmony_conformance.audit.readers.records.record import (
    CountedExchange,
    Delivery,
    DiscoveryLine,
    LoggedExchange,
    Shape,
)
from harmony_conformance.audit.redaction import is_redacted
from harmony_conformance.audit.scopes import Scope
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange_json import DISCOVERY, NotAnExchangeError, read_exchange
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_conformance.judge.check import Outcome
from harmony_conformance.transport.messages import FailureKind

_STOPPED = "blocked"
"""The end of an exchange whose upstream the proxy stopped."""
_NOT_JUDGED = "no exchange: the proxy did not judge it; `unjudged` in its line is the reason"
_NO_OUTCOMES = "no exchange: the line of the proxy has no sample and no outcomes; it has samples of ten failures of each check at most"
_UNKNOWN_CHECK = (
    "no exchange: the line of the proxy has no sample, and names a failed check that this version does not know"
)
_NOT_RETAINED = "no exchange: the proxy did not retain the answer, which was beyond its limit of size or memory"
_MASKED = (
    "not judged: the sample of the proxy is redacted, its letters and digits are masked (`--capture full` keeps them)"
)
WITHOUT_SHARE = frozenset({_NO_OUTCOMES, _UNKNOWN_CHECK, _NOT_RETAINED, _MASKED})
"""Reasons why a line that the proxy judged is not counted. The other lines are then samples of failures, and no share of the traffic."""

_NAMED = {Outcome.FAIL: "failed", Outcome.VARIANT: "variants", Outcome.ERROR: "errors"}
"""The member of a line that names the checks with an outcome."""
_IDS = frozenset(rule.id for rule in CHECKS)


class _NoContentError(NotAnExchangeError):
    """The line has no content that can be judged again."""


def read_recorded(value: Json, name: str) -> LoggedExchange | DiscoveryLine:
    """Return a recorded exchange."""
    if DISCOVERY in (value_at(value, "kind"), value_at(value, "scenario")):
        return DiscoveryLine()
    return LoggedExchange(exchange=replace(read_exchange(value), id=name))


def _is_outcome_line(value: JsonObject) -> bool:
    return "judged" in value and "request_bytes" in value


def _read_outcome_line(value: Json, name: str) -> LoggedExchange | CountedExchange | DiscoveryLine:
    """Return the exchange of a line, or its outcomes if it has no content."""
    try:
        return _read_content(value, name)
    except _NoContentError as problem:
        return _read_outcomes(members(value), problem)


def _read_content(value: Json, name: str) -> LoggedExchange | DiscoveryLine:
    """Return the sample of a line; without one, what the server sent before the proxy repaired or blocked it."""
    if (sample := value_at(value, "sample")) is not None:
        _refuse_masks([value_at(sample, part) for part in ("request", "response")])
        logged = read_recorded(sample, name)
        if isinstance(logged, DiscoveryLine):
            return logged
    else:
        logged = _read_before(members(value), name)
    x = replace(logged.exchange, started=logged.exchange.started or text(value_at(value, "started")) or None)
    return replace(logged, exchange=x, delivery=_delivery(value))


def _read_before(line: JsonObject, name: str) -> LoggedExchange:
    if "before" not in line:
        raise _NoContentError(_NO_OUTCOMES)
    if not isinstance(before := line["before"], dict):
        raise _NoContentError(_NOT_RETAINED)
    asked = line.get("request")
    _refuse_masks([asked, before])
    end = text(line.get("end"))
    recorded: JsonObject = {
        "api": line.get("api"),
        "request": asked if isinstance(asked, dict) else {name: line.get(name) for name in ("method", "path")},
        "response": before,
        "failure": {"kind": end} if end in set(FailureKind) else None,
        "rebuilt": True,
    }
    x = replace(read_exchange(recorded), id=name)
    x = replace(x, api=refine_api(x.api, x.request.json))
    scope = Scope.BEGINNING if end == _STOPPED else Scope.WHOLE if isinstance(asked, dict) else Scope.ANSWER
    return LoggedExchange(exchange=x, scope=scope)


def _read_outcomes(line: JsonObject, problem: NotAnExchangeError) -> CountedExchange:
    """Return the outcomes of a line. Of a stream that the proxy stopped, they are the checks for which it was blocked.

    Raises:
        NotAnExchangeError: It has none, or names a check that is not known.
    """
    if line.get("judged") is not True:
        blocked = tuple(map(text, items(value_at(line, "acted", "blocked"))))
        if not blocked or not _IDS.issuperset(blocked):
            raise NotAnExchangeError(_UNKNOWN_CHECK if blocked else _NOT_JUDGED)
        checks = {outcome: blocked if outcome is Outcome.FAIL else () for outcome in _NAMED}
        return CountedExchange(line=line, delivery=_delivery(line), checks=checks, outcomes={})
    counts = {outcome: integer(value_at(line, "outcomes", outcome.value)) for outcome in Outcome}
    if not all(isinstance(line.get(name), list) for name in _NAMED.values()) or None in counts.values():
        raise problem
    checks = {outcome: tuple(map(text, items(line[name]))) for outcome, name in _NAMED.items()}
    if not all(_IDS.issuperset(names) for names in checks.values()):
        raise NotAnExchangeError(_UNKNOWN_CHECK)
    if any(not 0 <= (count or 0) <= len(_IDS) for count in counts.values()):
        raise problem
    others = {outcome: count for outcome, count in counts.items() if count and outcome not in _NAMED}
    return CountedExchange(line=line, delivery=_delivery(line), checks=checks, outcomes=others)


def _refuse_masks(value: Json) -> None:
    if is_redacted(value):
        raise _NoContentError(_MASKED)


def _delivery(line: Json) -> Delivery:
    """Return what the proxy did. It records what the client got of answers that it repaired, blocked or replaced by an error."""
    is_repaired, is_blocked = (bool(value_at(line, "acted", name)) for name in ("repaired", "blocked"))
    if is_blocked or ("after" in members(line) and not is_repaired):
        return Delivery.BLOCKED
    return Delivery.REPAIRED if is_repaired else Delivery.UNCHANGED


PROXY_LOG = Shape(
    name="proxy",
    title="samples, repairs and blocks in the log of the proxy",
    matches=_is_outcome_line,
    read=_read_outcome_line,
)
