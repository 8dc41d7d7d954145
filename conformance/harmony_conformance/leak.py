"""Harmony that reached a client as text: markers, and channel words that lost their markers.

What is a leak depends on what is known. With the emitted ids known, a marker counts only as often as ordinary tokens do not spell it: the same letters
in ordinary tokens are content, and have to arrive. Without ids a leak has to show structure; what shows none is only suspected. No parser puts what it
leaks between backticks: what stands there the model wrote.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harmony_conformance.injection import SPECIAL
from harmony_conformance.prompt import pieces
from harmony_conformance.turn import Turn

MARKER = SPECIAL

STRUCTURE = re.compile(
    r"<\|start\|>\s*(?:assistant|user|system|developer|functions\.)"
    r"|<\|channel\|>\s*(?:analysis|commentary|final)"
    r"|<\|channel\|>\w[^<\n]{0,80}<\|message\|>"
    r"|<\|end\|>\s*<\|start\|>"
    r"|<\|constrain\|>\s*json\s*<\|message\|>"
    r"|to=functions\.[\w.-]+\s*<\|"
    r"|<\|(?:end|return|call|endoftext)\|>\s*$"
)
"""Markers in the order of a header, or one that closes the text: no model writes them so by chance."""

_GLUED = r"assistant(?:final|analysis|commentary)"
_BEGINS_A_TEXT = r"[\[{<#]|[^\W_a-z]|[\U0001f300-\U0001faff]"
GLUED = re.compile(
    rf"{_GLUED}(?={_BEGINS_A_TEXT})"
    rf"|(?<=[\w.!?)\]}}]){_GLUED}(?=[\"'*_\n]|$)"
    rf"|^(?:(?:analysis|commentary)(?=\w)|final(?=[A-Z\d\"'{{\[(]))[\s\S]*?{_GLUED}"
    r"|(?:^|assistant\s?)commentary\s?to=functions\."
    r"|^(?:analysis|commentary)\s?to=[\w.]+\s*(?:json|code)?\s*\{"
    r"|assistant(?:json|code)(?=\{)"
)
"""Channel words glued to the text, as they stand there once the special tokens were skipped."""

GLUED_IN_REASONING = re.compile(rf"{_GLUED}(?={_BEGINS_A_TEXT})")
"""The same in reasoning, where models talk about calls they are about to make."""

LEADING_WORD = re.compile(
    r"^(?!\w+\s*(?:=|\(|;|\.\w))(?:analysis|commentary|final)(?=[A-Z\"'{\[])|<(?:think|reasoning)>"
)
"""A lone leading channel word, or another model's wrapper: suspicious, and no proof."""

_CODE = re.compile(r"```[\s\S]*?```|`[^`\n]+`")
_ABOUT_HARMONY = re.compile(
    r"\bharmony\b[^.?!]{0,60}\b(?:formats?|responses?|templates?|prompts?|tokens?|parsers?|encoding|channels?|messages?)\b"
    r"|\bspecial tokens?\b|\bchat templates?\b|\bgpt-oss\b[^.?!]{0,60}\b(?:format|template|tokens?)\b",
    re.IGNORECASE,
)


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


def without_code(text: str) -> str:
    """The text with what stands in closed code blocks and inline code left out."""
    return _CODE.sub(" ", text)


def speaks_of_harmony(text: str) -> bool:
    """Whether a text is about the format itself: it holds a marker, or names the format or its tokens."""
    return MARKER.search(text) is not None or _ABOUT_HARMONY.search(text) is not None


def surplus(turn: Turn, ids: Sequence[int]) -> Iterator[tuple[Field, str]]:
    """Markers that reached a client more often than ordinary tokens spell them, with the field that holds them."""
    ordinary = "\0".join(text for text, is_special in pieces(ids) if not is_special)
    allowed = Counter(MARKER.findall(ordinary))
    texts = tuple(fields(turn))
    told = Counter(marker for field in texts for marker in MARKER.findall(field.text))
    for marker, count in told.items():
        if count > allowed[marker]:
            yield next(field for field in texts if marker in field.text), marker
