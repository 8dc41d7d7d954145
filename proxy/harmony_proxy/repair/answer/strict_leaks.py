"""The stricter reading of blocking: leaks that the checks excuse, because the request quotes markers, and that it does not explain.

A check reports a marker as a variant if the request quotes one, or is about the format. For blocking, that must not suffice:
the caller writes the request. The answer itself shows a leak if it is laid out like the output of the model, and its text
is not in the request:

- it begins with a header of any channel, and a message follows;
- a message and the header of the next one stand before any other marker;
- it begins with a channel word that is joined to a message, up to the words of the next header, or with a call;
- words of a header are joined to the text before and after them;
- it begins with reasoning in tags that is about the task;
- a tool name that is not declared contains a marker.

These layouts are leaks if the message begins as a thought about the task. Otherwise explanations of the format have them too.

- it begins with a channel and a message without a marker between them;
- a header is joined to the text before it, or a final header without an end marker is;
- the words of the next header stand after a blank, also after a first channel word;
- reasoning ends with a closing tag, and has no opening one.

A request for unparsed text (`skip_special_tokens`) is no excuse either.

The text of a stream grows: `may_become_leak` is true while its beginning is in the request, and the rest may not be.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from harmony_conformance.apis.text_fields import AnswerTexts, FieldKind, TextField
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import share_request_views, unescaped_request_texts
from harmony_conformance.evidence.leaks.by_text import (
    TEMPLATE_CODE,
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
from harmony_conformance.runtime.caching import cached_view, share_view
from harmony_proxy.policy.policy import Action
from harmony_proxy.repair.answer.fixes import declared_functions

_WORDS = r"(?:analysis|commentary|final)\b"
_MESSAGE = r"[^<]{0,80}(?:<\|constrain\|>\s*\w+\s*)?<\|message\|>(?P<text>[^<]*(?:<(?!\|)[^<]*)*)"
_ASSISTANT = r"(?:<\|start\|>\s*)?(?:assistant\s*)?"
_FIRST_HEADER = re.compile(
    rf"\s*(?:<\|(?:end|return|call)\|>\s*)?{_ASSISTANT}(?:<\|channel\|>(?:\w{{1,40}}+|\s*{_WORDS})|{_WORDS}){_MESSAGE}"
)
_LATER_HEADER = re.compile(rf"(?<=[^\s>\"'\u201c\u2018]){_ASSISTANT}<\|channel\|>(?:\w{{1,40}}+|\s*{_WORDS}){_MESSAGE}")
_OPEN_HEADER = re.compile(rf"\s*{_ASSISTANT}<\|channel\|>\s*{_WORDS}(?P<text>[^<]*)")
_NEXT_HEADER = rf"<\|start\|>\s?assistant[^<\n]{{0,80}}<\|channel\|>\s?{_WORDS}[^<\n]{{0,80}}"
_NEXT_HEADERS = MappingProxyType(
    {
        FieldKind.CONTENT: re.compile(
            rf"<\|(?:end|return|call)\|>\s*{_NEXT_HEADER}|(?<=[.!?\u2026)\"']){_NEXT_HEADER}"
        ),
        FieldKind.REASONING: re.compile(rf"(?:<\|(?:end|return|call)\|>\s*)?{_NEXT_HEADER}"),
    }
)
_FIRST_WORD = re.compile(
    r"\s*(?:analysis|commentary)(?=[\w\"'(\[{<*#`])(?P<text>[\s\S]*?)assistant(?:final|analysis|commentary)"
)
_SPACED_WORDS = re.compile(
    rf"\s*(?=\S)(?P<first>(?:assistant\s+)?(?:analysis|commentary)\s+(?=\S))?(?P<text>[\s\S]*?[.!?\u2026)\"'])"
    rf"(?:\s*assistant\s+|\s+assistant)(?:{_WORDS}(?=\s+\S)|(?:analysis|commentary|final)(?=[A-Z\"'{{*#]))"
)
_CLOSED_REASONING = re.compile(
    r"(?P<text>[^<]*(?:<(?!/?(?:think|thinking|reasoning|thought)>)[^<]*)*)(?<=[.!?\u2026)\"'\n])</(?:think|thinking|reasoning|thought)>\s*\S"
)
_CALL = re.compile(r"\s*(?:assistant\s?)?(?:commentary\s?to=[\w.]+\s*(?:json|code)?|json|code)\s*(?P<text>\{[^\n]*)")
_OK = 200
_SHORTEST = len("<|end|>")
_SIGN = re.compile(r"[<&\\]|assistant|analysis|commentary")
_ENDS = ("<|end|>", "<|return|>", "<|call|>")
_AROUND = 30
_FEW = 200  # characters that are looked for in the request
_FIRST_THOUGHT = 40  # characters that show if a text is about the task
_UNFINISHED_ESCAPE = re.compile(r"(?:&(?:amp;?)?[\w#]{0,6}|\\+(?:u0{0,2}\w?)?)\Z")
_ESCAPE = 20  # characters


@cached_view
def request_words(x: Exchange) -> str:
    """Return the texts of a request with single spaces between words."""
    return " ".join(unescaped_request_texts(x).split())


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    """Text that is laid out like the output of the model: a leak if the request does not contain it.

    Attributes:
        excerpt: An excerpt for the finding.
        text: The text that is looked for in the request.
        is_growing: True if the text may continue.
        lacks_answer: True if it is a leak only with an answer after it, which is missing yet.
        is_name: True for the name of a tool, which no quotation explains.
        must_be_thought: True if it is a leak only if it begins as a thought about the task.
    """

    excerpt: str
    text: str
    is_growing: bool = False
    lacks_answer: bool = False
    is_name: bool = False
    must_be_thought: bool = False

    def is_leak(self, x: Exchange) -> bool:
        """Return True if the request does not explain the text."""
        if self.must_be_thought and not self._is_thought:
            return False
        return self.is_name or (not self.lacks_answer and self._is_own_text(x))

    def may_become_leak(self, x: Exchange) -> bool:
        """Return True if the request explains the text so far, and more text may change that."""
        if self.lacks_answer:
            return self._is_own_text(x)
        if self.must_be_thought and not self._is_thought:
            return self.is_growing and len(self._words) < _FIRST_THOUGHT
        return self.is_growing and len(self._words) < _FEW and not self._is_own_text(x)

    @property
    def _words(self) -> str:
        end = len(self.text) - _ESCAPE
        text = self.text[: max(0, end)] + _UNFINISHED_ESCAPE.sub("", self.text[max(0, end) :])
        return " ".join((text if self.is_growing else self.text).split())[:_FEW]

    @property
    def _is_thought(self) -> bool:
        return ABOUT_THE_TASK.match(self.text.lstrip()) is not None

    def _is_own_text(self, x: Exchange) -> bool:
        """Return True if the text has words, and the request does not contain it."""
        words = self._words
        return bool(words) and words not in request_words(x)


def as_answer(x: Exchange, actions: Mapping[str, Action]) -> tuple[Exchange, Mapping[str, Action]]:
    """Return the exchange as if it succeeded, and the actions on leaks alone: a client may show an answer whatever its status."""
    if x.response is None or x.response.is_success:
        return x, actions
    return as_success(x), {check: action for check, action in actions.items() if check in LEAK_CHECKS}


def as_success(x: Exchange) -> Exchange:
    """Return the exchange as if it succeeded."""
    if x.response is None or x.response.is_success:
        return x
    return replace(x, response=replace(x.response, status=_OK))


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
    for where, candidate in _candidates(x, find):
        if candidate.is_leak(x):
            message = RedactableText("{} shows a leak that the request does not explain", Location(where))
            yield Finding(message=message, location=where, excerpt=candidate.excerpt)


def find_text_leaks(x: Exchange, check: str, texts: Sequence[str], *, is_error: bool) -> Iterator[Finding]:
    """Yield the leaks of one check in texts that are no part of an answer, but that a client may show.

    An error may name a single marker, and an error of the chat template quotes its lines.
    """
    likely = tuple(text for text in dict.fromkeys(texts) if len(text) >= _SHORTEST and _SIGN.search(text) is not None)
    if check not in _RULES or not likely:
        return
    leaks, _ = _RULES[check]
    quoting = tuple(text for text in likely if not (is_error and TEMPLATE_CODE.search(text)))
    kind = FieldKind.OTHER if is_error else FieldKind.CONTENT
    for leak in leaks(_with_texts(x, quoting, kind), by_ids=False):
        if leak.strength is Strength.PROVEN:
            yield Finding(message=leak.message, location=leak.where, excerpt=leak.excerpt)
    yield from find_unexplained_leaks(_with_texts(x, likely, FieldKind.CONTENT), check)


def _with_texts(x: Exchange, texts: Iterable[str], kind: FieldKind) -> Exchange:
    """Return the exchange as one that succeeded, with these texts as its whole answer."""
    shown = replace(as_success(x))
    fields = tuple(TextField(where=f"text {place}", text=text, kind=kind) for place, text in enumerate(texts, 1))
    vars(shown).update(answers=(AnswerTexts(fields=fields),), turn=None, error=None)
    share_request_views(x, shown)
    share_view(request_words, x, shown)
    return shown


def may_become_leak(x: Exchange, checks: Iterable[str]) -> bool:
    """Return True if only the request excuses the text of an answer so far, and more text may undo the excuse."""
    rules = (_RULES[check] for check in checks if check in _RULES)
    return any(one.may_become_leak(x) for _, find in rules for _, one in _candidates(x, find))


def _candidates(x: Exchange, find: _Find) -> Iterator[tuple[str, _Candidate]]:
    """Yield the candidates in the texts of all answers, each with the path of its field."""
    for answer in x.answers:
        for field in answer.fields:
            if answer.ids is None and (candidate := find(x, field)) is not None:
                yield field.where, candidate


def _find_markers(x: Exchange, field: TextField) -> _Candidate | None:
    text = unescape_markers(field.text)
    if "<|" not in text or field.kind is FieldKind.OTHER:
        return None
    if field.kind is FieldKind.NAME:
        marker = MARKER.search(text)
        is_leak = marker is not None and field.text not in declared_functions(x)
        return _Candidate(excerpt=text[:_FEW], text=text, is_name=True) if is_leak else None
    header = _FIRST_HEADER.match(text)
    while header is not None and not header["text"].strip() and (more := _FIRST_HEADER.match(text, header.end())):
        header = more
    if header is not None:
        return _candidate_of(header)
    if (opened := _OPEN_HEADER.match(text)) is not None:
        return _candidate_of(opened, must_be_thought=True)
    plain = remove_code(text)
    first, pattern = MARKER.search(plain), _NEXT_HEADERS.get(field.kind)
    after = pattern.match(plain, first.start()) if first is not None and pattern is not None else None
    if after is not None and (
        field.kind is FieldKind.REASONING or after.group().startswith(_ENDS) or ABOUT_THE_TASK.match(plain.lstrip())
    ):
        return _Candidate(excerpt=excerpt_around(plain, after.group()), text=plain[: after.start()])
    later = _LATER_HEADER.search(plain) if field.kind is FieldKind.CONTENT else None
    return _candidate_of(later, must_be_thought=True) if later is not None else None


def _candidate_of(match: re.Match[str], *, must_be_thought: bool = False) -> _Candidate:
    """Return the candidate for the group `text` of a match."""
    excerpt, is_growing = excerpt_around(match.string, match["text"][:_FEW]), match.end("text") == len(match.string)
    return _Candidate(excerpt=excerpt, text=match["text"], is_growing=is_growing, must_be_thought=must_be_thought)


def _find_words(_x: Exchange, field: TextField) -> _Candidate | None:
    text = unescape_markers(field.text)
    if field.kind is not FieldKind.CONTENT or not may_hold_words(text):
        return None
    spaced = _SPACED_WORDS.match(text) if "assistant" in text else None
    if spaced is not None and (spaced["first"] or ABOUT_THE_TASK.match(spaced["text"])):
        return _candidate_of(spaced)
    if JOINED_WORDS.search(text) is None:
        return None
    if (first := _FIRST_WORD.match(text) or _CALL.match(text)) is not None:
        return _Candidate(excerpt=text[:_FEW], text=first["text"], is_growing=first.end("text") == len(text))
    plain = remove_code(text)
    joined = JOINED_WORDS.search(plain)
    if joined is None:
        return None
    end = joined.end() + _AROUND
    around = plain[max(0, joined.end() - _AROUND) : end]
    return _Candidate(excerpt=around, text=around, is_growing=len(plain) < end)


def _find_reasoning(_x: Exchange, field: TextField) -> _Candidate | None:
    if field.kind is not FieldKind.CONTENT:
        return None
    if "</" in field.text and (closed := _CLOSED_REASONING.match(remove_code(field.text))) is not None:
        return _candidate_of(closed, must_be_thought=True)
    tagged = TAGGED_REASONING.match(field.text)
    if tagged is None or ABOUT_THE_TASK.search(tagged["thought"].strip()) is None:
        return None
    return _Candidate(excerpt=field.text[:_FEW], text=tagged["thought"], lacks_answer=not tagged["rest"].strip())


_Find = Callable[[Exchange, TextField], _Candidate | None]
_Rule = tuple[Callable[..., Iterator[Leak]], _Find]
_RULES: Mapping[str, _Rule] = MappingProxyType(
    {
        "channels.no_marker_leak": (marker_leaks, _find_markers),
        "channels.no_channel_words": (word_leaks, _find_words),
        "channels.no_reasoning_in_content": (reasoning_leaks, _find_reasoning),
    }
)
LEAK_CHECKS = frozenset(_RULES)
"""The checks of leaks: those that this module reads more strictly."""
