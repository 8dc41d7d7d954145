"""A record of a log, and the shape of the JSON value that it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString

from harmony_conformance.audit.scopes import Scope
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.judge.check import Outcome
from harmony_conformance.runtime.plural import number_of


class Delivery(StrEnum):
    """Delivery of an answer behind a proxy, to its client. `BLOCKED`: not the answer, or only its beginning."""

    UNKNOWN = ""
    UNCHANGED = "unchanged"
    REPAIRED = "repaired"
    BLOCKED = "blocked"


def delivery_notes(exchanges: Mapping[str, int]) -> Iterator[str]:
    """Yield what clients got instead of judged answers, by the numbers of exchanges of each delivery."""
    if blocked := exchanges.get(Delivery.BLOCKED, 0):
        yield f"{number_of(blocked, 'answer')} blocked by the proxy: judged as the server sent, but the client did not get the whole answer"
    if repaired := exchanges.get(Delivery.REPAIRED, 0):
        yield f"{number_of(repaired, 'answer')} repaired by the proxy: judged as the server sent, before the repair"


def counted_note(exchanges: int) -> str:
    """Return what a report says of exchanges that are counted by the outcomes in the log of the proxy."""
    counted = "is counted by its outcomes" if exchanges == 1 else "are counted by their outcomes"
    return f"{number_of(exchanges, 'exchange')} {counted} in the log of the proxy, which keeps at most ten samples for each check"


@dataclass(frozen=True, kw_only=True)
class LoggedExchange:
    """An exchange of a log, and the part of it that the log has. The exchange's id is the place of the record.

    `provider` is the name of the service that answered, `engine` the name and version of its software.
    `user` is the id of the user, `delivery` what a proxy did with the answer. Each is empty if the log does not have it.
    """

    exchange: Exchange
    scope: Scope = Scope.WHOLE
    provider: str = ""
    engine: str = ""
    user: str = ""
    delivery: Delivery = Delivery.UNKNOWN


@dataclass(frozen=True, kw_only=True)
class CountedExchange:
    """An exchange that a proxy judged, and whose content its log lacks.

    Attributes:
        line: The line of the log.
        delivery: What the proxy did with the answer.
        checks: The ids of the checks that did not pass, by outcome.
        outcomes: The number of the other checks by outcome.
    """

    line: JsonObject
    delivery: Delivery
    checks: Mapping[Outcome, tuple[str, ...]]
    outcomes: Mapping[Outcome, int]


@dataclass(frozen=True, kw_only=True)
class DiscoveryLine:
    """An exchange of discovery in a recorded run. It is counted but not judged."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One shape of a record.

    Attributes:
        name: The value of `--format` that selects it.
        title: A description in a few words.
        matches: Return True if a value has this shape.
        read: Return the exchange of a value; the second argument is its id. Raises `InvalidRecordError` with the reason.
    """

    name: str
    title: LiteralString
    matches: Callable[[JsonObject], bool]
    read: Callable[[Json, str], LoggedExchange | CountedExchange | DiscoveryLine]
