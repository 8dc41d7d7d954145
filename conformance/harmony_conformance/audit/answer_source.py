"""The source of an answer for a report: model, provider, route, engine, API, delivery, time and user.

A name that is no plain word may be text of a user, and is left out. A user is known by a keyed hash alone.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from hashlib import sha256

from harmony_conformance.audit.readers.http_pair import read_time
from harmony_conformance.audit.readers.record import LoggedExchange
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import integer, text, value_at

_NAME = re.compile(r"[\w.:/@+-]{1,100}", re.ASCII)
_ENGINE = re.compile(r"[\w.:/@+() -]{1,100}", re.ASCII)
_ROUTE = re.compile(r"(?:/[a-z][a-z0-9_.-]{0,30}){1,6}", re.ASCII)
_TIME = re.compile(r"[\d:.TZ +-]{1,40}", re.ASCII)
_FIRST_CREATED = 1_500_000_000
"""Servers that have no clock send a small number as `created`."""
_USER_PLACES = (("user",), ("safety_identifier",), ("metadata", "user_id"))


def source_of(record: LoggedExchange, user_key: bytes = b"", *, is_full: bool = True) -> Mapping[str, str]:
    """Return the source of an exchange, each member empty if the log does not have it.

    Members: `model`, `provider`, `route`, `engine` (the fingerprint of the answer, else the header `server`), `api`, `delivery`, `started`,
    `day` (in UTC) and, with a key, `user`. Without `is_full` the route is left out unless it is that of an API.
    """
    x = record.exchange
    started = _plain(_TIME, x.started or _created(x))
    user = _user(record) if user_key else ""
    users = {"user": hash_user(user, user_key) if user else ""} if user_key else {}
    return {
        "model": _plain(_NAME, _model(x)),
        "provider": _plain(_NAME, record.provider),
        "route": _plain(_ROUTE, x.request.path) if is_full or x.request.path == x.api_adapter.path else "",
        "engine": _plain(_ENGINE, _engine(record)),
        "api": x.api,
        "delivery": record.delivery.value,
        "started": started,
        "day": _day(started),
        **users,
    }


def _model(x: Exchange) -> str:
    """Return the model that the response names, or that of a request that was answered."""
    if x.response is None or not x.response.is_success:
        return ""
    return _of_answer(x, "model") or text(value_at(x.chat_request, "model"))


def _engine(record: LoggedExchange) -> str:
    x = record.exchange
    header = x.response.headers.get("server", "") if x.response is not None else ""
    return record.engine or _of_answer(x, "system_fingerprint") or header


def _of_answer(x: Exchange, member: str) -> str:
    answers = (x.chat_completion, *x.chunks[:1])
    return next((name for answer in answers if (name := text(value_at(answer, member)))), "")


def _created(x: Exchange) -> str:
    """Return the time in an answer, in ISO 8601."""
    answers = (x.chat_completion, *x.chunks[:1])
    seconds = next((at for answer in answers if (at := integer(value_at(answer, "created")))), 0)
    return read_time(seconds) or "" if seconds >= _FIRST_CREATED else ""


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


def _plain(form: re.Pattern[str], name: str) -> str:
    return name if form.fullmatch(name) else ""
