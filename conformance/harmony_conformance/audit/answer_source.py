"""The source of an answer for a report: model, provider, route, engine, API, delivery, time and user.

A name that is no plain word may be text of a user, and is left out. A user is known by a keyed hash alone.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256

from harmony_conformance.apis.registry import APIS
from harmony_conformance.audit.answer_names import ENGINE, NAME, answers_of, engine_of, model_of, plain
from harmony_conformance.audit.readers.records.http_pair import read_time
from harmony_conformance.audit.readers.records.record import CountedExchange, LoggedExchange
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import integer, text, value_at

_ROUTE = re.compile(r"(?:/[a-z][a-z0-9_.-]{0,30}){1,6}", re.ASCII)
_TIME = re.compile(r"[\d:.TZ +-]{1,40}", re.ASCII)
FIRST_CREATED = 1_500_000_000
"""Servers that have no clock send a small number as `created`."""
_USER_PLACES = (("user",), ("safety_identifier",), ("metadata", "user_id"))


def source_of(record: LoggedExchange, user_key: bytes = b"", *, is_full: bool = True) -> Mapping[str, str]:
    """Return the source of an exchange, each member empty if the log does not have it.

    Members: `model`, `provider`, `route`, `engine` (the fingerprint of the answer, else the header `server`), `api`, `delivery`, `started`,
    `day` (in UTC) and, with a key, `user`. Without `is_full` the route is left out unless it is that of an API.
    """
    x = record.exchange
    started = plain(_TIME, x.started or _created(x))
    user = _user(record) if user_key else ""
    users = {"user": hash_user(user, user_key) if user else ""} if user_key else {}
    return {
        "model": model_of(x),
        "provider": plain(NAME, record.provider),
        "route": plain(_ROUTE, x.request.path) if is_full or x.request.path == x.api_adapter.path else "",
        "engine": engine_of(x, record.engine),
        "api": x.api,
        "delivery": record.delivery.value,
        "started": started,
        "day": _day(started),
        **users,
    }


def source_of_counted(record: CountedExchange, user_key: bytes = b"", *, is_full: bool = True) -> Mapping[str, str]:
    """Return the source of an exchange whose content the log lacks, by the members of its line. It has no user."""
    line = record.line
    api = text(line.get("api"))
    path, started = text(line.get("path")), plain(_TIME, text(line.get("started")))
    known = APIS.get(api)
    return {
        "model": plain(NAME, text(line.get("model"))),
        "provider": "",
        "route": plain(_ROUTE, path) if is_full or (known and path == known.path) else "",
        "engine": plain(ENGINE, text(line.get("engine"))),
        "api": api if known else "",
        "delivery": record.delivery.value,
        "started": started,
        "day": _day(started),
        **({"user": ""} if user_key else {}),
    }


def _created(x: Exchange) -> str:
    """Return the time in an answer, in ISO 8601."""
    return created_time(next((at for answer in answers_of(x) if (at := integer(value_at(answer, "created")))), 0))


def created_time(seconds: int) -> str:
    """Return the time of an answer in ISO 8601, empty for a small number."""
    return read_time(seconds) or "" if seconds >= FIRST_CREATED else ""


def day_of(started: str) -> str:
    """Return the day of a time in UTC, empty if it is no time."""
    return _day(plain(_TIME, started))


def _day(started: str) -> str:
    try:
        moment = datetime.fromisoformat(started)
        return (moment.astimezone(UTC) if moment.tzinfo else moment).date().isoformat()
    except (ValueError, OverflowError):
        return ""


def _user(record: LoggedExchange) -> str:
    body = record.exchange.request.json
    named = (text(value_at(body, *place)) for place in _USER_PLACES)
    return record.user or next(filter(None, named), "")


def hash_user(user: str, key: bytes) -> str:
    """Return the first half of the HMAC-SHA256 of a user, in hexadecimal digits."""
    return hmac.new(key, user.encode("utf-8", "surrogatepass"), sha256).hexdigest()[:32]
