"""Harmony that reached a client as text: markers, and channel words that lost their markers.

What is a leak depends on what is known. With the emitted ids known, a marker counts only as often as ordinary tokens do not spell it: the same letters
in ordinary tokens are content, and have to arrive. Without ids a leak has to show structure; what shows none is only suspected.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harmony_conformance.prompt import show
from harmony_conformance.turn import Turn
from harmony_ref import tokens

MARKERS = ("<|start|>", "<|end|>", "<|message|>", "<|channel|>", "<|constrain|>", "<|return|>", "<|call|>")
MARKER = re.compile(r"<\|(?:start|end|message|channel|constrain|return|call)\|>")

STRUCTURE = re.compile(
    r"<\|start\|>\s*(?:assistant|user|system|developer|functions\.)"
    r"|<\|channel\|>\s*(?:analysis|commentary|final)"
    r"|<\|channel\|>[^<\n]{0,80}<\|message\|>"
    r"|<\|end\|>\s*<\|start\|>"
    r"|<\|constrain\|>\s*json\s*<\|message\|>"
    r"|to=functions\.[\w.-]+\s*<\|"
    r"|<\|(?:end|return|call)\|>\s*$"
)
"""Markers in the order of a header, or one that closes the text: no model writes them so by chance."""

GLUED = re.compile(
    r"assistant\s?(?:final|analysis|commentary)(?=[^a-z\s.,;:!?)]|[A-Z]|\s*to=|$)"
    r"|^(?:assistant\s?)?commentary\s?to=functions\."
    r"|^(?:assistant\s?)?(?:analysis|commentary)\s?to=[\w.]+\s*(?:json|code)?\s*\{"
    r"|^(?:analysis|commentary|final)(?=[A-Z\d\"'{\[(])[\s\S]*assistant(?:final|commentary)"
)
"""Channel words glued to the text, as they stand there once the special tokens were skipped."""

LEADING_WORD = re.compile(r"^(?:analysis|commentary|final)(?=[A-Z\"'{\[])|<(?:think|reasoning)>")
"""A lone leading channel word, or another model's wrapper: suspicious, and no proof."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A text of an answer, and where it stands."""

    where: str
    text: str


def fields(turn: Turn) -> Iterator[Field]:
    """Every text of an answer that reaches a client."""
    if turn.content:
        yield Field(where="content", text=turn.content)
    if turn.reasoning:
        yield Field(where=turn.reasoning_field or "reasoning", text=turn.reasoning)
    for index, call in enumerate(turn.tool_calls):
        yield Field(where=f"tool_calls/{index}/function/name", text=call.name)
        yield Field(where=f"tool_calls/{index}/function/arguments", text=call.arguments)


def spelled(ids: Sequence[int]) -> Mapping[str, int]:
    """How often ordinary tokens spell each marker: as often it may reach a client."""
    ordinary = "".join(part if index % 2 == 0 else "\0" for index, part in enumerate(re.split(r"⟦(\w+)⟧", show(ids))))
    return {marker: ordinary.count(marker) for marker in MARKERS}


def surplus(turn: Turn, ids: Sequence[int]) -> Iterator[tuple[Field, str]]:
    """Markers that reached a client although no ordinary token spells them, with the field that holds them."""
    allowed = spelled(ids)
    texts = tuple(fields(turn))
    for marker in MARKERS:
        held = [field for field in texts if marker in field.text]
        if sum(field.text.count(marker) for field in held) > allowed[marker]:
            yield held[0], marker


def special_count(ids: Sequence[int]) -> int:
    """How many of the ids are special tokens."""
    return sum(1 for token in ids if tokens.is_special(token))
