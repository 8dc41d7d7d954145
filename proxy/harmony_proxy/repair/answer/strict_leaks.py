"""The stricter reading of blocking: leaks that the checks excuse, because the request quotes markers, and that it does not explain.

A check reports a marker as a variant if the request quotes one, or is about the format. For blocking, that must not suffice:
the caller writes the request. The answer itself shows a leak if it is laid out like the output of the model, and its text
is not in the request:

- it begins with a header, and a message follows;
- a message and the header of the next one stand before any other marker;
- it begins with a channel word that is joined to a message, up to the words of the next header, or with a call;
- words of a header are joined to the text before and after them;
- it begins with reasoning in tags that is about the task;
- a tool name that is not declared contains a marker.

A request for unparsed text (`skip_special_tokens`) is no excuse either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.apis.text_fields import AnswerTexts, FieldKind, TextField
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import joined_request_texts
from harmony_conformance.evidence.leaks.by_text import (
    Leak,
    Strength,
    excerpt_around,
    marker_leaks,
    reasoning_leaks,
    word_leaks,
)
from harmony_conformance.evidence.leaks.channel_words import JOINED_WORDS, may_hold_words
from harmony_conformance.evidence.leaks.markers import MARKER, remove_code, unescape_markers
from harmony_conformance.evidence.leaks.reasoning_tags import ABOUT_THE_TASK, TAGGED_REASONING
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import Finding
from harmony_conformance.redactable_text import Location, RedactableText
from harmony_proxy.repair.answer.fixes import declared_functions

_CHANNEL = r"(?:analysis|commentary|final)\b[^<\n]{0,80}"
_FIRST_HEADER = re.compile(
    rf"\s*(?:<\|start\|>\s?)?(?:assistant\s?)?(?:<\|channel\|>\s?)?{_CHANNEL}(?:<\|constrain\|>\s?\w+\s?)?<\|message\|>(?P<text>[^<]*)"
)
_NEXT_HEADER = rf"<\|start\|>\s?assistant[^<\n]{{0,80}}<\|channel\|>\s?{_CHANNEL}"
_NEXT_HEADERS = MappingProxyType(
    {
        FieldKind.CONTENT: re.compile(rf"<\|(?:end|return|call)\|>\s*{_NEXT_HEADER}"),
        FieldKind.REASONING: re.compile(rf"(?:<\|(?:end|return|call)\|>\s*)?{_NEXT_HEADER}"),
    }
)
_FIRST_WORD = re.compile(
    r"\s*(?:analysis|commentary)(?=[\w\"'(\[{<*#`])(?P<text>[\s\S]*?)assistant(?:final|analysis|commentary)"
)
_CALL = re.compile(r"\s*(?:assistant\s?)?(?:commentary\s?to=[\w.]+\s*(?:json|code)?|json|code)\s*(?P<text>\{[^\n]*)")
_AROUND = 30
_FEW = 200  # characters that are looked for in the request


def find_unexplained_leaks(x: Exchange, check: str) -> Iterator[Finding]:
    """Yield the leaks of one check that the request does not explain; none for checks of other things."""
    rules = _RULES.get(check)
    if rules is None or x.response is None or not x.response.is_success:
        return
    leaks, find = rules
    if on.asks_for_raw_text.holds(x):
        for leak in leaks(x, by_ids=True):
            if leak.strength is Strength.PROVEN:
                yield Finding(message=leak.message, location=leak.where, excerpt=leak.excerpt)
    for answer in x.answers:
        for field in answer.fields:
            if answer.ids is None and (excerpt := find(x, answer, field)):
                message = RedactableText("{} shows a leak that the request does not explain", Location(field.where))
                yield Finding(message=message, location=field.where, excerpt=excerpt)


def _find_markers(x: Exchange, _answer: AnswerTexts, field: TextField) -> str:
    text = unescape_markers(field.text)
    if "<|" not in text:
        return ""
    if field.kind is FieldKind.NAME:
        marker = MARKER.search(text)
        return text[:_FEW] if marker is not None and field.text not in declared_functions(x) else ""
    if field.kind is FieldKind.OTHER:
        return ""
    if (header := _FIRST_HEADER.match(text)) is not None:
        return excerpt_around(text, header["text"][:_FEW]) if _is_own_text(x, header["text"]) else ""
    plain = remove_code(text)
    first, pattern = MARKER.search(plain), _NEXT_HEADERS.get(field.kind)
    after = pattern.match(plain, first.start()) if first is not None and pattern is not None else None
    is_leak = after is not None and _is_own_text(x, plain[: after.start()])
    return excerpt_around(plain, after.group()) if is_leak and after is not None else ""


def _find_words(x: Exchange, _answer: AnswerTexts, field: TextField) -> str:
    text = unescape_markers(field.text)
    if field.kind is not FieldKind.CONTENT or not may_hold_words(text) or JOINED_WORDS.search(text) is None:
        return ""
    if (first := _FIRST_WORD.match(text) or _CALL.match(text)) is not None:
        return text[:_FEW] if _is_own_text(x, first["text"]) else ""
    plain = remove_code(text)
    joined = JOINED_WORDS.search(plain)
    if joined is None:
        return ""
    around = plain[max(0, joined.end() - _AROUND) : joined.end() + _AROUND]
    return around if _is_own_text(x, around) else ""


def _find_reasoning(x: Exchange, _answer: AnswerTexts, field: TextField) -> str:
    tagged = TAGGED_REASONING.match(field.text) if field.kind is FieldKind.CONTENT else None
    is_leak = (
        tagged is not None and ABOUT_THE_TASK.search(tagged["thought"].strip()) is not None and tagged["rest"].strip()
    )
    return field.text[:_FEW] if is_leak and tagged is not None and _is_own_text(x, tagged["thought"]) else ""


def _is_own_text(x: Exchange, text: str) -> bool:
    """Return True if the text has words, and the request does not contain it."""
    words = " ".join(text.split())[:_FEW]
    return bool(words) and words not in " ".join(unescape_markers(joined_request_texts(x)).split())


_Rule = tuple[Callable[..., Iterator[Leak]], Callable[[Exchange, AnswerTexts, TextField], str]]
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "channels.no_marker_leak": (marker_leaks, _find_markers),
        "channels.no_channel_words": (word_leaks, _find_words),
        "channels.no_reasoning_in_content": (reasoning_leaks, _find_reasoning),
    }
)
