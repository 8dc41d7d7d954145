"""The source of an answer for a report: model, provider, API and time. A name that is no plain word may be text of a user, and is left out."""

from __future__ import annotations

import re

from harmony_conformance.audit.readers.record import LoggedExchange
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, text, value_at

_NAME = re.compile(r"[\w.:/@+-]{1,100}", re.ASCII)
_TIME = re.compile(r"[\d:.TZ +-]{1,40}", re.ASCII)


def source_of(record: LoggedExchange) -> JsonObject:
    """Return the members `model`, `provider`, `api` and `started` of a row, null if the log does not have them."""
    x = record.exchange
    return {
        "model": _plain(_NAME, _model(x)),
        "provider": _plain(_NAME, record.provider),
        "api": x.api,
        "started": _plain(_TIME, x.started or ""),
    }


def _model(x: Exchange) -> str:
    """Return the model that the response names, or that of a request that was answered."""
    if x.response is None or not x.response.is_success:
        return ""
    answers = (x.chat_completion, *x.chunks[:1])
    named = next((name for answer in answers if (name := text(value_at(answer, "model")))), "")
    return named or text(value_at(x.chat_request, "model"))


def _plain(form: re.Pattern[str], name: str) -> Json:
    return name if form.fullmatch(name) else None
