"""Patterns of markers in a text whose tokens are unknown: markup structure, single markers, and mentions of the format in requests."""

from __future__ import annotations

import re
from collections.abc import Iterable

from harmony_conformance.prompts.token_injection import SPECIAL_TOKEN

MARKER = SPECIAL_TOKEN

_ROLE = r"(?:assistant|user|system|developer|tool|functions\.)"
_CHANNEL = r"(?:analysis|commentary|final)\b"

STRUCTURE = re.compile(
    rf"<\|start\|>\s?{_ROLE}[^<\n]{{0,80}}<\|(?:channel|message|constrain)\|>"
    rf"|<\|channel\|>\s?{_CHANNEL}[^<\n]{{0,80}}<\|(?:message|constrain|channel)\|>"
    r"|<\|channel\|>\w[^<\n]{0,80}<\|message\|>"
    r"|<\|(?:end|return|call)\|><\|start\|>"
    rf"|<\|(?:end|return|call)\|>\s*<\|start\|>\s?{_ROLE}"
    r"|<\|constrain\|>\s*json\s*<\|message\|>"
    r"|<\|channel\|>\s?(?:analysis|commentary)\s+to=[\w.]+"
    rf"|\A(?:assistant\s?)?{_CHANNEL}\s?<\|message\|>"
    r"|to=functions\.[\w.-]+\s*(?:json|code)?\s*<\|"
)
"""Markup structure: markers in a header's order, a marker with a recipient, or a text that begins with a channel and a marker."""

_LEFT = r"<\|(?:start|channel|constrain|message|end|return|call|endoftext|reserved_\d{6})\|>"
LEFT_BEHIND = re.compile(rf"\A\s*{_LEFT}(?=\S)|<\|start\|>{_ROLE}|<\|channel\|>{_CHANNEL}|(?<=\S){_LEFT}\s*\Z")
"""A single marker where parsers typically leave one: at the beginning or end of the text, or before a header word."""

_ESCAPES = (
    (re.compile(r"&amp;(?=(?:lt|gt|vert|#)\b|#)"), "&"),
    (re.compile(r"\\+u003[cC]|&lt;|&#0*60;|&#[xX]0*3[cC];"), "<"),
    (re.compile(r"\\+u003[eE]|&gt;|&#0*62;|&#[xX]0*3[eE];"), ">"),
    (re.compile(r"\\+u007[cC]|&vert;|&verbar;|&#0*124;|&#[xX]0*7[cC];"), "|"),
)
_MAY_BE_ESCAPED = re.compile(r"\\u00|&(?:lt|gt|amp|vert|verbar|#)")

_CODE = re.compile(
    r"```[\s\S]*?```|~~~[\s\S]*?~~~|``[^\n]+?``|`[^`\n]+`"
    r"|(?:(?<=\A)|(?<=[\s([{:=,]))[\"'\u201c\u2018\xab](?=[^\n]{0,40}<\|)[^\n\"'\u201d\u2019\xbb]{1,160}[\"'\u201d\u2019\xbb](?=[\s.,;:!?)\]}]|\Z)"
)
_NEEDED_FOR_HARMONY = ("harmony", "token", "template", "markup", "chatml", "channel", "gpt-oss", "<|")
_ABOUT_HARMONY = re.compile(
    r"\bharmony\b[^.?!]{0,60}\b(?:formats?|responses?|templates?|prompts?|tokens?|parsers?|encoding|channels?|messages?|headers?|spec)\b"
    r"|\b(?:formats?|tokens?|parsers?|channels?) (?:of|in) harmony\b|\bopenai[ -_]harmony\b"
    r"|\b(?:special|control|stop|delimiter|marker|end-of-(?:text|turn|sequence|message)|EOS|EOT) tokens?\b"
    r"|\b(?:chat|prompt) (?:templates?|markup)\b|\bchatml\b|\btokeni[sz]ers?\b"
    r"|\b(?:analysis|commentary|final) channel\b"
    r"|\bgpt-oss\b[^.?!]{0,60}\b(?:format|template|tokens?|channels?|headers?|output)\b"
    r"|<\|\w+\|>",
    re.IGNORECASE,
)


def unescape_markers(text: str) -> str:
    r"""Unescape markers: `\u003c|end|\u003e` of JSON and `&lt;|end|&gt;` of HTML, also if escaped twice."""
    if ("&" not in text and "\\u00" not in text) or _MAY_BE_ESCAPED.search(text) is None:
        return text
    for pattern, letter in _ESCAPES:
        text = pattern.sub(letter, text)
    return text


def remove_code(text: str) -> str:
    """Remove closed code blocks, inline code, and short quotations with a marker."""
    if "`" not in text and "~~~" not in text and "<|" not in text:
        return text  # every match contains one of them
    return _CODE.sub(" ", text)


def has_harmony_mention(text: str) -> bool:
    """Return True if a text contains a marker or mentions the format, its tokens or templates."""
    return has_any_word(text, _NEEDED_FOR_HARMONY) and (
        MARKER.search(text) is not None or _ABOUT_HARMONY.search(text) is not None
    )


def has_any_word(text: str, needed: Iterable[str]) -> bool:
    """Return True if a text contains one of these lower-case words in any case. This fast test comes before slow patterns."""
    return has_any_folded_word(fold_case(text), needed)


def fold_case(text: str) -> str:
    """Fold the case of a text as patterns with `re.IGNORECASE` do."""
    if text.isascii():
        return text.lower()
    return text.replace("\u0130", "i").replace("\u0131", "i").casefold()  # these letters match an i too


def has_any_folded_word(folded_text: str, needed: Iterable[str]) -> bool:
    """Return True if a folded text contains one of these words."""
    for word in needed:  # noqa: SIM110 - a generator would cost more than the search
        if word in folded_text:
            return True
    return False


def can_mention_harmony(folded_text: str) -> bool:
    """Return False if a folded text cannot mention the format."""
    return has_any_folded_word(folded_text, _NEEDED_FOR_HARMONY)
