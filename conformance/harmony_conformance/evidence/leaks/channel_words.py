"""Header words that lost their markers: what a text shows once the special tokens of a completion were skipped."""

from __future__ import annotations

import re

_GLUED = r"assistant(?:final|analysis|commentary)"
_BEGINS_A_TEXT = r"[\[{<#]|[^\W_a-z]|[\U0001f300-\U0001faff]"
_ENDS_A_TEXT = r"(?:^|(?<=[.!?\u2026\u3002\uff01\uff1f)}*`])|(?<=[\w.!?][\"'\u201d]))"
GLUED = re.compile(
    rf"{_ENDS_A_TEXT}{_GLUED}(?={_BEGINS_A_TEXT})"
    rf"|(?<=[.!?)\]}}]){_GLUED}(?=[\"'*_\n]|$)"
    rf"|^(?:(?:analysis|commentary)(?=[\w\"'(\[{{<*#`])|final(?=[A-Z\d\"'{{\[(]))[\s\S]*?{_GLUED}"
    r"|(?:^|assistant\s?)commentary\s?to=functions\."
    r"|^(?:analysis|commentary)\s?to=[\w.]+\s*(?:json|code)?\s*\{"
    r"|^assistant(?:json|code)(?=\{)|(?<=[.!?])assistant(?:json|code)(?=\{)"
)
"""Channel words glued to the end of a thought and to the text, as they stand there once the special tokens were skipped."""

GLUED_IN_REASONING = re.compile(rf"{_ENDS_A_TEXT}{_GLUED}(?={_BEGINS_A_TEXT})")
"""The same in reasoning, where models talk about calls they are about to make."""

LONE = re.compile(
    r"^(?!\w+\s*(?:=|\(|;|:|\.\w|'s\b|\[\w+\]|<\w))(?:(?:analysis|commentary|final)(?=[A-Z\"'{\[])|assistant(?:final|analysis|commentary)(?=[^\W_]))"
    rf"|(?<=[^\W_=]){_GLUED}(?={_BEGINS_A_TEXT}|\n|$)"
    r"|[.!?]assistantfinal(?!ly|i[sz]|e)(?=[^\W_])"
)
"""Channel words that begin the text, or stand glued to words: suspicious, and no proof."""


def may_hold_words(text: str) -> bool:
    """Whether a text holds what everything has that these patterns find. Most texts do not, and it is told much sooner than by the patterns."""
    return "assistant" in text or "commentary" in text or "analysis" in text or text.startswith("final")
