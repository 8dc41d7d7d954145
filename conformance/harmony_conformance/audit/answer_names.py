"""The names of model and engine in an answer. A name that is no plain word may be text of a user, and is left out."""

from __future__ import annotations

import re

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, text, value_at

NAME = re.compile(r"[\w.:/@+-]{1,100}", re.ASCII)
ENGINE = re.compile(r"[\w.:/@+() -]{1,100}", re.ASCII)


def model_of(x: Exchange) -> str:
    """Return the model that the response names, or that of a request that was answered."""
    if x.response is None or not x.response.is_success:
        return ""
    return plain(NAME, _of_answer(x, "model") or text(value_at(x.chat_request, "model")))


def engine_of(x: Exchange, named: str = "") -> str:
    """Return the engine that the log names, else the fingerprint of the answer, else the header `server`."""
    header = x.response.headers.get("server", "") if x.response is not None else ""
    return plain(ENGINE, named or _of_answer(x, "system_fingerprint") or header)


def answers_of(x: Exchange) -> tuple[Json, ...]:
    """Return the whole answer, and the first chunk of a streamed one."""
    return (x.chat_completion, *x.joined_chunks[:1])


def plain(form: re.Pattern[str], name: str) -> str:
    """Return a name that has this form, otherwise an empty text."""
    return name if form.fullmatch(name) else ""


def _of_answer(x: Exchange, member: str) -> str:
    return next((name for answer in answers_of(x) if (name := text(value_at(answer, member)))), "")
