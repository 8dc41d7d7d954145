"""Refusals of a request for its length."""

from __future__ import annotations

import re

from harmony_conformance.evidence.exchange import Exchange

_REFUSED, _TOO_LARGE = range(400, 500), 413
_LENGTH = re.compile(
    r"\b(?:context|input|prompt|messages?|request|content|body)\b.*\b(?:length|long|longer|large|larger|size|tokens?|characters|bytes|exceed\w*)\b"
    r"|\b(?:length|tokens?|characters|bytes|context)\b.*\b(?:exceed\w*|maximum|limit\w*|most|too)\b|context_length_exceeded",
    re.IGNORECASE | re.DOTALL,
)


def is_refused_for_length(x: Exchange | None) -> bool:
    """Return True if a request was refused for its length: by 413, or another 4xx whose text mentions the length."""
    response = x.response if x is not None else None
    if response is None or response.status not in _REFUSED:
        return False
    return response.status == _TOO_LARGE or _LENGTH.search(response.body.decode("utf-8", "replace")) is not None
