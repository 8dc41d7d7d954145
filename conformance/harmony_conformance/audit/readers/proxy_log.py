"""Lines of the log of the proxy: samples of failing exchanges, and what the server sent before a repair or a block."""

from __future__ import annotations

from dataclasses import replace

from harmony_conformance.apis.registry import refine_api
from harmony_conformance.audit.readers.record import Delivery, DiscoveryLine, LoggedExchange, Shape
from harmony_conformance.audit.redaction import is_redacted
from harmony_conformance.audit.scopes import Scope
from harmony_conformance.evidence.exchange_json import DISCOVERY, NotAnExchangeError, read_exchange
from harmony_conformance.json_value import Json, JsonObject, members, text, value_at
from harmony_conformance.transport.messages import FailureKind

_STOPPED = "blocked"
"""The end of an exchange whose upstream the proxy stopped."""
_NO_SAMPLE = "no exchange: the line of the proxy has no sample (`--capture full` keeps failing exchanges)"
_NOT_RETAINED = "no exchange: the proxy did not retain the answer, which was beyond its limit of size or memory"
_MASKED = (
    "not judged: the sample of the proxy is redacted, its letters and digits are masked (`--capture full` keeps them)"
)


def read_recorded(value: Json, name: str) -> LoggedExchange | DiscoveryLine:
    """Return a recorded exchange."""
    if DISCOVERY in (value_at(value, "kind"), value_at(value, "scenario")):
        return DiscoveryLine()
    return LoggedExchange(exchange=replace(read_exchange(value), id=name))


def _is_outcome_line(value: JsonObject) -> bool:
    return "judged" in value and "request_bytes" in value


def _read_outcome_line(value: Json, name: str) -> LoggedExchange | DiscoveryLine:
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
        raise NotAnExchangeError(_NO_SAMPLE)
    if not isinstance(before := line["before"], dict):
        raise NotAnExchangeError(_NOT_RETAINED)
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


def _refuse_masks(value: Json) -> None:
    if is_redacted(value):
        raise NotAnExchangeError(_MASKED)


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
