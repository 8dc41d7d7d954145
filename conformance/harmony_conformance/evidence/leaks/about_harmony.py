"""What a request says of the format: a marker that it quotes may come back, and who asks about Harmony is told of it.

What the assistant said before is no quotation: an endpoint that leaks once leaks again, into a conversation that holds its first leak.
"""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.markers import folded, may_speak_of_harmony, readable, speaks_of_harmony
from harmony_conformance.json_value import Json, at, items, members, strings
from harmony_conformance.runtime.caching import cached_view


@cached_view
def said(x: Exchange) -> tuple[str, ...]:
    """Every text of a request but those of the assistant: messages, tools, the schema of the answer."""
    return tuple(_said(x))


@cached_view
def all_said(x: Exchange) -> str:
    """The same in one text, to look for what none of them holds."""
    return "\0".join(said(x))


@cached_view
def all_folded(x: Exchange) -> str:
    """The same, folded."""
    return folded(all_said(x))


def _said(x: Exchange) -> Iterator[str]:
    for message in items(at(x.chat_request, "messages")):
        if at(message, "role") != "assistant":
            yield from strings(message)
    for name, value in members(x.chat_request).items():
        if name not in ("messages", "model"):
            yield from strings(value)
            yield from _names(value)


@cached_view
def is_about_harmony(x: Exchange) -> bool:
    """Whether anybody but the assistant speaks of the format, its tokens or templates."""
    return may_speak_of_harmony(folded(readable(all_said(x)))) and any(
        speaks_of_harmony(readable(text)) for text in said(x)
    )


def quotes(x: Exchange, *parts: str) -> bool:
    """Whether the request holds one of these texts, spelled or escaped."""
    return any(part in readable(text) for text in said(x) for part in parts)


def _names(value: Json) -> Iterator[str]:
    match value:
        case list():
            for item in value:
                yield from _names(item)
        case dict():
            for name, member in value.items():
                yield name
                yield from _names(member)
        case _:
            return
