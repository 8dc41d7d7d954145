"""Find the leaks of a response and the strength of the evidence: by the emitted ids if they are known, else by the text.

- With known ids, a leak is proven.
- Markup structure in a text: proven, or quoted if the request is about the format.
- A marker in a name or next to the JSON of arguments: proven; in a name, quoted if the request contains it.
- A single marker in a typical place, with missing reasoning or many unexplained tokens: proven, or quoted if the request contains it.
- Any other single marker or channel word: suspected.
- Markup structure in an error message: proven, unless the request is about the format.
- A special token among the log probabilities: quoted, since they show all tokens on request.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from typing import LiteralString

from harmony_conformance.apis.text_fields import AnswerTexts, FieldKind, TextField
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import is_about_harmony, is_in_request, request_texts
from harmony_conformance.evidence.leaks.by_token_ids import EmittedCompletion, parse_completion
from harmony_conformance.evidence.leaks.channel_words import (
    JOINED_WORDS,
    JOINED_WORDS_IN_REASONING,
    SUSPECTED_WORDS,
    may_hold_words,
)
from harmony_conformance.evidence.leaks.markers import LEFT_BEHIND, MARKER, STRUCTURE, remove_code, unescape_markers
from harmony_conformance.evidence.leaks.reasoning_tags import (
    REASONING_REQUEST,
    SINGLE_TAG,
    TAG_MENTION,
    TAGGED_REASONING,
    find_shared_thought,
    has_repeated_reasoning,
)
from harmony_conformance.evidence.leaks.unmarked_thought import begins_as_thought
from harmony_conformance.json_value import InvalidJsonError, loads, strings
from harmony_conformance.redactable_text import Location, RedactableText
from harmony_conformance.runtime.caching import cached_view
from harmony_ref import encode


class Strength(StrEnum):
    """The strength of the evidence for a leak. QUOTED: the request contains the text or is about the format."""

    PROVEN = "proven"
    QUOTED = "quoted"
    SUSPECTED = "suspected"


@dataclass(frozen=True, kw_only=True)
class Leak:
    """A leak: the field's path, the finding, an excerpt of the text, and the strength of the evidence."""

    where: str
    message: RedactableText
    excerpt: str
    strength: Strength = Strength.PROVEN


_ByText = Callable[[Exchange], tuple[tuple[Leak, ...], ...]]
_ByIds = Callable[[EmittedCompletion, AnswerTexts], Iterator[Leak]]


def marker_leaks(x: Exchange, *, by_ids: bool) -> Iterator[Leak]:
    """Yield special tokens that reach the client as text. `by_ids`: use the emitted ids if they are known."""
    yield from _leaks(x, _markers_of_ids if by_ids else None, _markers_of_text)
    for answer in x.answers:
        if (marker := next(filter(MARKER.fullmatch, answer.logprobs), None)) is not None:
            message = RedactableText("logprobs contain {}: they show the tokens of the whole completion", marker)
            yield Leak(where="logprobs", message=message, excerpt=marker, strength=Strength.QUOTED)
    for text in map(unescape_markers, strings(x.error)):
        # an error of the chat template quotes its lines, not the output
        structure = STRUCTURE.search(text) if "<|" in text and TEMPLATE_CODE.search(text) is None else None
        if structure is not None and not is_about_harmony(x):
            message = RedactableText("the error contains Harmony markup")
            yield Leak(where="error", message=message, excerpt=excerpt_around(text, structure.group()))


TEMPLATE_CODE = re.compile(r"\{[{%]|[%}]\}")
"""Code of a chat template, which an error may quote."""


def word_leaks(x: Exchange, *, by_ids: bool) -> Iterator[Leak]:
    """Yield header words that reach the client without their markers."""
    return _leaks(x, _words_of_ids if by_ids else None, _words_of_text)


def reasoning_leaks(x: Exchange, *, by_ids: bool) -> Iterator[Leak]:
    """Yield reasoning that reaches the client as the answer."""
    return _leaks(x, _thoughts_of_ids if by_ids else None, _thoughts_of_text)


def _leaks(x: Exchange, by_ids: _ByIds | None, by_text: _ByText) -> Iterator[Leak]:
    for place, answer in enumerate(x.answers):
        if answer.ids is not None and by_ids is not None:
            yield from by_ids(parse_completion(answer.ids), answer)
        else:
            yield from by_text(x)[place]


def _markers_of_ids(completion: EmittedCompletion, answer: AnswerTexts) -> Iterator[Leak]:
    for leaked in completion.leaked_markers(answer):
        where = leaked.field.where
        message = RedactableText(
            "{} is in {} although the model emitted it as a special token", leaked.text, Location(where)
        )
        yield Leak(
            where=where, message=message, excerpt=excerpt_around(unescape_markers(leaked.field.text), leaked.text)
        )


def _words_of_ids(completion: EmittedCompletion, answer: AnswerTexts) -> Iterator[Leak]:
    for leaked in completion.leaked_header_words(answer):
        where = leaked.field.where
        message = RedactableText(
            "{} contains header words, joined to text that a special token separated", Location(where)
        )
        yield Leak(where=where, message=message, excerpt=_around_seam(leaked.field.text, leaked.text))


def _thoughts_of_ids(completion: EmittedCompletion, answer: AnswerTexts) -> Iterator[Leak]:
    for leaked in completion.leaked_reasoning(answer):
        message = RedactableText("the content contains text of the analysis channel")
        yield Leak(where=leaked.field.where, message=message, excerpt=leaked.text[:_LONGEST])


def _by_answer(find: Callable[[Exchange, AnswerTexts], Iterator[Leak]]) -> _ByText:
    """Decorate a function that searches one answer: apply it to all answers of an exchange, once."""

    @wraps(find)
    def find_all(x: Exchange) -> tuple[tuple[Leak, ...], ...]:
        return tuple(tuple(find(x, answer)) for answer in x.answers)

    return cached_view(find_all)


@_by_answer
def _markers_of_text(x: Exchange, answer: AnswerTexts) -> Iterator[Leak]:
    for field in answer.fields:
        text = unescape_markers(field.text)
        if "<|" in text and MARKER.search(text) is not None:
            yield from _MARKERS_IN[field.kind](x, answer, field, text)


def _in_text(x: Exchange, answer: AnswerTexts, field: TextField, text: str) -> Iterator[Leak]:
    plain = remove_code(text)
    if (structure := STRUCTURE.search(plain)) is not None:
        strength = Strength.SUSPECTED if _CITATION in field.where else Strength.PROVEN
        strength = Strength.QUOTED if is_about_harmony(x) else strength
        message = RedactableText("{} contains Harmony markup", Location(field.where))
        yield Leak(
            where=field.where, message=message, excerpt=excerpt_around(plain, structure.group()), strength=strength
        )
        return
    if (lone := MARKER.search(plain)) is None:
        return
    marker = lone.group()
    left = LEFT_BEHIND.search(plain)
    message = RedactableText("{} is alone in {}", marker, Location(field.where))
    strength = Strength.SUSPECTED
    if is_in_request(x, marker) or is_about_harmony(x):
        strength = Strength.QUOTED
    elif left is not None and field.kind is not FieldKind.OTHER and (reason := _further_evidence(x, answer)):
        strength = Strength.PROVEN
        message = RedactableText(
            "{} is in {} where parsers leave one, and {}", marker, Location(field.where), RedactableText(reason)
        )
    excerpt = excerpt_around(plain, left.group().strip() if left is not None else marker)
    yield Leak(where=field.where, message=message, excerpt=excerpt, strength=strength)


def _in_a_name(x: Exchange, _answer: AnswerTexts, field: TextField, text: str) -> Iterator[Leak]:
    marker = next(match.group() for match in MARKER.finditer(text))
    yield Leak(
        where=field.where,
        message=RedactableText("{} is in {}, which is a name", marker, Location(field.where)),
        excerpt=excerpt_around(text, marker),
        strength=Strength.QUOTED if is_in_request(x, marker) else Strength.PROVEN,
    )


def _in_arguments(x: Exchange, answer: AnswerTexts, field: TextField, text: str) -> Iterator[Leak]:
    marker = MARKER.search(_outside_json(text))
    if marker is None:
        for value in _values_of(text):
            yield from _in_value(x, answer, field, value) if MARKER.search(value) is not None else ()
        return
    message = RedactableText("{} is in {}, outside the JSON", marker.group(), Location(field.where))
    yield Leak(where=field.where, message=message, excerpt=excerpt_around(text, marker.group()))


def _in_input(x: Exchange, answer: AnswerTexts, field: TextField, text: str) -> Iterator[Leak]:
    """Yield a stop token that ends the input of a tool, or else what any text has."""
    last = _LAST_STOP_TOKEN.search(remove_code(text))
    if last is None or is_in_request(x, last[1]) or is_about_harmony(x):
        yield from _in_text(x, answer, field, text)
        return
    message = RedactableText("{} ends {}, which is what the model wrote for a tool", last[1], Location(field.where))
    yield Leak(where=field.where, message=message, excerpt=excerpt_around(text, last[1]))


_LAST_STOP_TOKEN = re.compile(r"(?<=\S)(<\|(?:call|end|return)\|>)\s*\Z")

_MARKERS_IN: dict[FieldKind, Callable[[Exchange, AnswerTexts, TextField, str], Iterator[Leak]]] = {
    FieldKind.CONTENT: _in_text,
    FieldKind.REASONING: _in_text,
    FieldKind.NAME: _in_a_name,
    FieldKind.ARGUMENTS: _in_arguments,
    FieldKind.INPUT: _in_input,
    FieldKind.OTHER: _in_text,
}
_CITATION = "url_citation"  # the text of a cited page


def _in_value(x: Exchange, answer: AnswerTexts, field: TextField, value: str) -> Iterator[Leak]:
    """Yield the leaks in a text within arguments. A file may be about the format: a leak is proven if the text is laid out like output."""
    first = MARKER.search(value)
    is_output = first is not None and (not value[: first.start()].strip() or _NEXT_MESSAGE.match(value, first.start()))
    for leak in _in_text(x, answer, field, value):
        is_weak = leak.strength is Strength.PROVEN and not is_output
        yield replace(leak, strength=Strength.SUSPECTED) if is_weak else leak


_NEXT_MESSAGE = re.compile(r"<\|(?:end|return|call)\|>\s*<\|start\|>")


def _values_of(arguments: str) -> tuple[str, ...]:
    """Return the texts in the JSON of arguments, or the arguments themselves. The quotes of JSON are no quotation."""
    try:
        return tuple(map(unescape_markers, strings(loads(arguments))))
    except InvalidJsonError:
        return (arguments,)


def _outside_json(text: str) -> str:
    """Return the text before and after the JSON value in a text, or an empty text if there is no such value."""
    start = next((index for index, letter in enumerate(text) if letter in "{["), None)
    if start is None:
        return ""
    try:
        _, length = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text[:start]
    return f"{text[:start]} {text[start + length :]}"


def _further_evidence(x: Exchange, answer: AnswerTexts) -> LiteralString:
    """Return the evidence that a single marker is a leak, or an empty text."""
    reasoning = answer.longest_text(FieldKind.REASONING)
    if not reasoning.strip():
        return "the answer has no reasoning"
    usage = x.turn.usage if x.turn is not None else None
    if usage is None or usage.completion_tokens is None:
        return ""
    calls = sum(len(encode(one.text)) for one in answer.fields if one.kind in _OF_CALLS)
    visible = len(encode(answer.longest_text(FieldKind.CONTENT))) + calls
    missing = usage.completion_tokens - visible - max(usage.reasoning_tokens or 0, len(encode(reasoning)))
    return "many more tokens were emitted than are shown" if missing > _HEADERS + visible + calls else ""


_HEADERS = 24  # tokens in the headers of a few messages
_OF_CALLS = frozenset({FieldKind.ARGUMENTS, FieldKind.INPUT, FieldKind.NAME})


@_by_answer
def _words_of_text(x: Exchange, answer: AnswerTexts) -> Iterator[Leak]:
    for field in answer.fields:
        text = unescape_markers(field.text)
        if not may_hold_words(text):
            continue
        plain = remove_code(text)
        glued = (JOINED_WORDS if field.kind is FieldKind.CONTENT else JOINED_WORDS_IN_REASONING).search(plain)
        glued = glued or _first_words(field, plain)
        if glued is None:
            lone = SUSPECTED_WORDS.search(plain) if field.kind is FieldKind.CONTENT else None
            if lone is not None and not is_about_harmony(x):
                message = RedactableText("{!r} in {} may be a leak", lone.group(), Location(field.where))
                yield Leak(where=field.where, message=message, excerpt=plain[:_AROUND], strength=Strength.SUSPECTED)
            continue
        word = glued.group()[-_WORD:]
        if is_in_request(x, glued.group(), *filter(word.endswith, _GLUED_WORDS)):
            continue
        yield Leak(
            where=field.where,
            message=RedactableText("{} contains channel words joined to the text", Location(field.where)),
            excerpt=excerpt_around(plain, word),
            strength=Strength.QUOTED if is_about_harmony(x) else Strength.PROVEN,
        )


def _first_words(field: TextField, text: str) -> re.Match[str] | None:
    """Return the channel words at the beginning of an input, or of a text in arguments: elsewhere a file or a page may have them."""
    match field.kind:
        case FieldKind.INPUT:
            return JOINED_WORDS.match(text)
        case FieldKind.ARGUMENTS:
            return next(filter(None, map(JOINED_WORDS.match, _values_of(text))), None)
        case _:
            return None


_WORD = 20  # a match ends with the word itself
_GLUED_WORDS = ("assistantfinal", "assistantanalysis", "assistantcommentary")


@_by_answer
def _thoughts_of_text(x: Exchange, answer: AnswerTexts) -> Iterator[Leak]:
    reasoning = answer.longest_text(FieldKind.REASONING)
    for field in answer.fields:
        if field.kind is not FieldKind.CONTENT:
            continue
        if TAGGED_REASONING.match(field.text):
            yield Leak(
                where=field.where,
                message=RedactableText("{} begins with reasoning in tags", Location(field.where)),
                excerpt=field.text[:_AROUND],
                strength=Strength.QUOTED if _mentions_tags(x) else Strength.PROVEN,
            )
        elif (
            "<" in field.text
            and (opened := SINGLE_TAG.search(remove_code(field.text))) is not None
            and not _mentions_tags(x)
        ):
            message = RedactableText("{!r} in {} may be a leak", opened.group(), Location(field.where))
            excerpt = excerpt_around(field.text, opened.group())
            yield Leak(where=field.where, message=message, excerpt=excerpt, strength=Strength.SUSPECTED)
        if has_repeated_reasoning(reasoning, field.text):
            yield Leak(
                where=field.where,
                message=RedactableText("{} repeats the whole reasoning", Location(field.where)),
                excerpt=reasoning[:_LONGEST],
                strength=Strength.QUOTED if _asks_for_reasoning(x) else Strength.PROVEN,
            )
        else:
            yield from _suspected_thoughts(x, reasoning, field)


def _suspected_thoughts(x: Exchange, reasoning: str, field: TextField) -> Iterator[Leak]:
    shared = find_shared_thought(reasoning, field.text)
    is_alone = shared is None and not reasoning.strip() and begins_as_thought(field.text)
    thought = shared or (field.text[:_LONGEST] if is_alone else "")
    if thought and not _asks_for_reasoning(x) and not is_in_request(x, thought):
        template = "{} shares a thought with the reasoning" if shared else "{} begins as a thought about the task"
        message = RedactableText(template, Location(field.where))
        yield Leak(where=field.where, message=message, excerpt=thought[:_LONGEST], strength=Strength.SUSPECTED)


def _asks_for_reasoning(x: Exchange) -> bool:
    return any(REASONING_REQUEST.search(text) for text in request_texts(x))


def _mentions_tags(x: Exchange) -> bool:
    return any(TAG_MENTION.search(text) for text in request_texts(x))


_AROUND = 40
_LONGEST = 80


def excerpt_around(text: str, part: str) -> str:
    """Return the first occurrence of a part with up to 40 characters before and after it."""
    index = text.find(part)
    start, end = max(0, index - _AROUND), index + len(part) + _AROUND
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _around_seam(text: str, seam: str) -> str:
    """Return the excerpt around `seam`, which occurs in the text if white space is ignored."""
    places = [index for index, letter in enumerate(text) if not letter.isspace()]
    at = "".join(text.split()).find(seam)
    if at < 0:
        return text[:_LONGEST]
    return excerpt_around(text, text[places[at] : places[at + len(seam) - 1] + 1])
