"""Patterns of header words without markers, as left by a decoder that skips special tokens."""

from __future__ import annotations

import re

from harmony_conformance.evidence.leaks.markers import remove_code

_GLUED = r"assistant(?:final|analysis|commentary)"
_BEGINS_A_TEXT = r"[\[{<#]|[^\W_a-z]|[\u2600-\u27bf\U0001f300-\U0001faff]|[-|] "
_BEGINS_A_SENTENCE = r"[^\W\d_a-z][\w'\u2019]*,? [^\W_]|\*\*|#+ |[\u2600-\u27bf\U0001f300-\U0001faff]"
_ENDS_A_TEXT = r"(?:^|(?<=[.!?\u2026\u3002\uff01\uff1f)}*`])|(?<=[\w.!?][\"'\u201d]))"
JOINED_WORDS = re.compile(
    rf"{_ENDS_A_TEXT}{_GLUED}(?={_BEGINS_A_TEXT})"
    rf"|(?:(?<=\n)|(?<=[.!?] )){_GLUED}(?={_BEGINS_A_SENTENCE})"
    rf"|(?<=[.!?)\]}}]){_GLUED}(?=[\"'*_]| ?(?:\n|$))"
    rf"|^(?:(?:analysis|commentary)(?=[\w\"'(\[{{<*#`])|final(?=[A-Z\d\"'{{\[(]))[\s\S]*?{_GLUED}"
    r"|(?:^|assistant\s?)commentary\s?to=functions\."
    r"|assistant(?:analysis|commentary)\s?to=[a-zA-Z_]"
    r"|^(?:analysis|commentary)\s?to=[\w.]+\s*(?:\{|json|code)"
    r"|^assistant(?:json|code)(?=\{)|(?<=[.!?])assistant(?:json|code)(?=\{)"
)
"""Channel words joined to the text before and after them, as in `…done.assistantfinalThe answer`."""

JOINED_WORDS_IN_REASONING = re.compile(rf"{_ENDS_A_TEXT}{_GLUED}(?={_BEGINS_A_TEXT})")
"""The same for reasoning, with fewer patterns, since models mention planned calls there."""

SUSPECTED_WORDS = re.compile(
    r"^(?!\w+\s*(?:=|\(|;|:|\.\w|'s\b|\[\w+\]|<\w))(?:(?:analysis|commentary|final)(?=[A-Z\"'{\[])|assistant(?:final|analysis|commentary)(?=[^\W_]))"
    rf"|(?:(?<=[^\W_=])|(?<=\n)){_GLUED}(?={_BEGINS_A_TEXT}|\n|$)"
    r"|[.!?]assistantfinal(?!ly|i[sz]|e)(?=[^\W_])"
)
"""Channel words at the beginning of a text or joined to words: suspicious, but no proof."""


def may_hold_words(text: str) -> bool:
    """Return False if none of these patterns can match. This is much faster than the patterns, and most texts have no such word."""
    return "assistant" in text or "commentary" in text or "analysis" in text or text.startswith("final")


_FIRST_WORDS = ("analysis", "commentary", "final")
_GLUED_WORDS = tuple(f"assistant{word}" for word in (*_FIRST_WORDS, "json", "code"))


def has_words(text: str, *patterns: re.Pattern[str]) -> bool:
    """Return True if one of these patterns matches in a text without its code."""
    is_possible = (
        text.startswith(_FIRST_WORDS)
        or ("assistant" in text and any(word in text for word in _GLUED_WORDS))
        or ("commentary" in text and "to=functions." in text)
    )
    return is_possible and any(pattern.search(remove_code(text)) for pattern in patterns)
