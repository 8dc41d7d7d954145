"""Detect lost characters, shown as U+FFFD, and requests whose answers may contain that character."""

from __future__ import annotations

import re

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import all_folded, all_said, said
from harmony_conformance.evidence.leaks.markers import holds_any, holds_one

REPLACEMENT = "\ufffd"
"""The replacement character for invalid bytes."""

_ON_CHARACTERS = re.compile(
    r"\b(?:unicode|utf-?\d*|encod\w+|decod\w+|mojibake|replacement character|u\+fffd|bytes?|binary|garbled|corrupt\w*|latin-?1|ascii)\b",
    re.IGNORECASE,
)
_NEEDED = (
    *("unicode", "utf", "encod", "decod", "mojibake", "replacement", "u+fffd"),
    *("byte", "binary", "garbled", "corrupt", "latin", "ascii"),
)


def asks_about_characters(x: Exchange) -> bool:
    """Return True if the request contains U+FFFD or mentions the encoding of texts."""
    if REPLACEMENT in all_said(x):
        return True
    return holds_one(all_folded(x), _NEEDED) and any(
        holds_any(text, _NEEDED) and _ON_CHARACTERS.search(text) for text in said(x)
    )
