"""Detect requests about the Harmony format: their answers may rightly contain markers.

Earlier messages of the assistant do not count: they may contain leaks of earlier turns.
"""

from __future__ import annotations

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.markers import (
    can_mention_harmony,
    fold_case,
    has_harmony_mention,
    unescape_markers,
)
from harmony_conformance.json_value import member_names, members, strings, value_at
from harmony_conformance.runtime.caching import cached_view, share_view


@cached_view
def request_texts(x: Exchange) -> tuple[str, ...]:
    """Return all texts of a request but the assistant's: messages, tools, the schema of the answer, and their member names."""
    others = (value for name, value in members(x.chat_request).items() if name not in ("messages", "model"))
    return (
        *(text for message in x.messages if value_at(message, "role") != "assistant" for text in strings(message)),
        *(text for value in others for text in (*strings(value), *member_names(value))),
    )


@cached_view
def joined_request_texts(x: Exchange) -> str:
    """Return the texts of `request_texts` joined by NUL characters, for one search in all of them."""
    return "\0".join(request_texts(x))


@cached_view
def unescaped_request_texts(x: Exchange) -> str:
    """Return `joined_request_texts` with its markers unescaped."""
    return unescape_markers(joined_request_texts(x))


@cached_view
def folded_request_texts(x: Exchange) -> str:
    """Return `joined_request_texts` in folded case."""
    return fold_case(joined_request_texts(x))


@cached_view
def is_about_harmony(x: Exchange) -> bool:
    """Return True if the request, without the assistant's messages, mentions the format, its tokens or templates."""
    return can_mention_harmony(fold_case(unescaped_request_texts(x))) and any(
        has_harmony_mention(unescape_markers(text)) for text in request_texts(x)
    )


def is_in_request(x: Exchange, *parts: str) -> bool:
    """Return True if the request contains one of these texts, plain or escaped."""
    return any(part in unescaped_request_texts(x) for part in parts)


def share_request_views(source: Exchange, target: Exchange) -> None:
    """Store the views of a request in another exchange with the same request: a stream is judged often, its request is read once."""
    for view in (request_texts, joined_request_texts, unescaped_request_texts, is_about_harmony):
        share_view(view, source, target)
