"""Detect lost characters, shown as U+FFFD, and requests whose answers may contain that character."""

from __future__ import annotations

import re

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import folded_request_texts, joined_request_texts, request_texts
from harmony_conformance.evidence.leaks.markers import has_any_folded_word, has_any_word

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
    if REPLACEMENT in joined_request_texts(x):
        return True
    return may_be_on_characters(folded_request_texts(x)) and any(map(is_on_characters, request_texts(x)))


def may_be_on_characters(folded_text: str) -> bool:
    """Return False if a text in folded case does not mention the encoding of texts."""
    return has_any_folded_word(folded_text, _NEEDED)


def is_on_characters(text: str) -> bool:
    """Return True if a text mentions the encoding of texts."""
    return has_any_word(text, _NEEDED) and _ON_CHARACTERS.search(text) is not None
