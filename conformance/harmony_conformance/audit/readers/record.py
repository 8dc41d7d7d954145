"""A record of a log, and the shape of the JSON value that it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString

from harmony_conformance.audit.scopes import Scope
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject
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
    read: Callable[[Json, str], LoggedExchange | DiscoveryLine]
