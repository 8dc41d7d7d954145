"""Detect requests about the Harmony format: their answers may rightly contain markers.

Earlier messages of the assistant do not count: they may contain leaks of earlier turns.
"""

from __future__ import annotations

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.markers import folded, may_speak_of_harmony, readable, speaks_of_harmony
from harmony_conformance.json_value import at, member_names, members, strings
from harmony_conformance.runtime.caching import cached_view


@cached_view
def said(x: Exchange) -> tuple[str, ...]:
    """Return all texts of a request but the assistant's: messages, tools, the schema of the answer, and their member names."""
    others = (value for name, value in members(x.chat_request).items() if name not in ("messages", "model"))
    return (
        *(text for message in x.messages if at(message, "role") != "assistant" for text in strings(message)),
        *(text for value in others for text in (*strings(value), *member_names(value))),
    )


@cached_view
def all_said(x: Exchange) -> str:
    """Return the texts of `said` joined by NUL characters, for one search in all of them."""
    return "\0".join(said(x))


@cached_view
def all_folded(x: Exchange) -> str:
    """Return `all_said` in folded case."""
    return folded(all_said(x))


@cached_view
def is_about_harmony(x: Exchange) -> bool:
    """Return True if the request, without the assistant's messages, mentions the format, its tokens or templates."""
    return may_speak_of_harmony(folded(readable(all_said(x)))) and any(
        speaks_of_harmony(readable(text)) for text in said(x)
    )


def quotes(x: Exchange, *parts: str) -> bool:
    """Return True if the request contains one of these texts, plain or escaped."""
    return any(part in readable(text) for text in said(x) for part in parts)
