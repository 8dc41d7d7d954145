"""A record of a log, and the shape of the JSON value that it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import LiteralString

from harmony_conformance.audit.scopes import Scope
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject


@dataclass(frozen=True, kw_only=True)
class LoggedExchange:
    """An exchange of a log, and the part of it that the log has. The exchange's id is the place of the record.

    `provider` is the name of the service that answered, `engine` the name and version of its software, `user` the id of the
    user. Each is empty if the log does not have it.
    """

    exchange: Exchange
    scope: Scope = Scope.WHOLE
    provider: str = ""
    engine: str = ""
    user: str = ""


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
