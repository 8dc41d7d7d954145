"""Leaks of an answer, each with how strong the evidence is: by the emitted ids where they are known, else by the text.

- ids known: proven, or no leak.
- Structure in the text: proven; quoted where the request is about the format.
- A marker in a name, or beside the arguments: proven; in a name quoted where the request holds it.
- One marker in a place where parsers leave one, and no reasoning, or many tokens unaccounted for: proven; quoted where the request holds it.
- One marker, or one channel word, alone: suspected.
- Structure in an error, which the server makes of what it could not parse: proven, where the request is not about the format.
- A special token among the log probabilities: quoted, since who asks for them is shown the tokens.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import LiteralString

from harmony_conformance.apis.text_fields import AnswerTexts, FieldKind, TextField
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.leaks.about_harmony import is_about_harmony, quotes, said
from harmony_conformance.evidence.leaks.by_token_ids import Emitted, emitted
from harmony_conformance.evidence.leaks.channel_words import GLUED, GLUED_IN_REASONING, LONE, may_hold_words
from harmony_conformance.evidence.leaks.markers import LEFT_BEHIND, MARKER, STRUCTURE, readable, without_code
from harmony_conformance.evidence.leaks.reasoning_tags import ASKS_TO_THINK_ALOUD, OPENED, TAGGED, WRAPPED, repeated
from harmony_conformance.json_value import strings
from harmony_conformance.redactable_text import Location, RedactableText
from harmony_conformance.runtime.caching import cached_view
from harmony_ref import encode


class Strength(StrEnum):
    """How much speaks for a leak. QUOTED: the request holds it, or is about it."""

    PROVEN = "proven"
    QUOTED = "quoted"
    SUSPECTED = "suspected"


@dataclass(frozen=True, kw_only=True)
class Leak:
    """What stands where, in words, and what speaks for its being a leak."""

    where: str
    message: RedactableText
    excerpt: str
    strength: Strength = Strength.PROVEN


_ByText = Callable[[Exchange], tuple[tuple[Leak, ...], ...]]
_ByIds = Callable[[Emitted, AnswerTexts], Iterator[Leak]]


def marker_leaks(x: Exchange, *, by_ids: bool) -> Iterator[Leak]:
    """Special tokens that a client is shown as text."""
    yield from _read(x, _markers_of_ids if by_ids else None, _markers_of_text)
    for answer in x.answers:
        shown = next((token for token in answer.logprobs if MARKER.fullmatch(token)), None)
        if shown is not None:
            message = RedactableText("logprobs name {}: they show the tokens of the whole completion", shown)
            yield Leak(where="logprobs", message=message, excerpt=shown, strength=Strength.QUOTED)
    yield from _in_an_error(x)


def _in_an_error(x: Exchange) -> Iterator[Leak]:
    """What an error quotes of the model's output. One of a template's quotes the lines of the template, one of the request what stood there."""
    for told in strings(x.error):
        text = readable(told)
        found = STRUCTURE.search(text) if "<|" in text and _OF_A_TEMPLATE.search(text) is None else None
        if found is not None and not is_about_harmony(x):
            yield Leak(
                where="error",
                message=RedactableText("the error holds Harmony markup"),
                excerpt=near(text, found.group()),
            )


_OF_A_TEMPLATE = re.compile(r"\{[{%]|[%}]\}")


def word_leaks(x: Exchange, *, by_ids: bool) -> Iterator[Leak]:
    """Words of headers that a client is shown without their markers."""
    return _read(x, _words_of_ids if by_ids else None, _words_of_text)


def reasoning_leaks(x: Exchange, *, by_ids: bool) -> Iterator[Leak]:
    """Reasoning that a client is shown as the answer."""
    return _read(x, _thoughts_of_ids if by_ids else None, _thoughts_of_text)


def _read(x: Exchange, by_ids: _ByIds | None, by_text: _ByText) -> Iterator[Leak]:
    for place, answer in enumerate(x.answers):
        if answer.ids is not None and by_ids is not None:
            yield from by_ids(emitted(answer.ids), answer)
        else:
            yield from by_text(x)[place]


@cached_view
def _markers_of_text(x: Exchange) -> tuple[tuple[Leak, ...], ...]:
    return tuple(tuple(_markers(x, answer)) for answer in x.answers)


@cached_view
def _words_of_text(x: Exchange) -> tuple[tuple[Leak, ...], ...]:
    return tuple(tuple(_words(x, answer)) for answer in x.answers)


@cached_view
def _thoughts_of_text(x: Exchange) -> tuple[tuple[Leak, ...], ...]:
    return tuple(tuple(_thoughts(x, answer)) for answer in x.answers)


def _markers_of_ids(completion: Emitted, answer: AnswerTexts) -> Iterator[Leak]:
    for leaked in completion.markers(answer):
        where = leaked.field.where
        message = RedactableText(
            "{} stands in {} although the model wrote it as a special token", leaked.text, Location(where)
        )
        yield Leak(where=where, message=message, excerpt=near(readable(leaked.field.text), leaked.text))


def _words_of_ids(completion: Emitted, answer: AnswerTexts) -> Iterator[Leak]:
    for leaked in completion.words(answer):
        where = leaked.field.where
        message = RedactableText(
            "words of a header stand in {}, next to what a special token parted them from", Location(where)
        )
        yield Leak(where=where, message=message, excerpt=_around_seam(leaked.field.text, leaked.text))


def _thoughts_of_ids(completion: Emitted, answer: AnswerTexts) -> Iterator[Leak]:
    for leaked in completion.thoughts(answer):
        where = leaked.field.where
        yield Leak(
            where=where,
            message=RedactableText("the content holds text of the analysis channel"),
            excerpt=leaked.text[:_LONGEST],
        )


def _markers(x: Exchange, answer: AnswerTexts) -> Iterator[Leak]:
    for field in answer.fields:
        text = readable(field.text)
        if "<|" in text and MARKER.search(text) is not None:
            yield from _MARKERS_IN[field.place](x, answer, field, text)


def _in_text(x: Exchange, answer: AnswerTexts, field: TextField, text: str) -> Iterator[Leak]:
    plain = without_code(text)
    found = STRUCTURE.search(plain)
    if found is not None:
        strength = Strength.QUOTED if is_about_harmony(x) else Strength.PROVEN
        if _CITES in field.where and strength is Strength.PROVEN:
            strength = Strength.SUSPECTED
        message = RedactableText("{} holds Harmony markup", Location(field.where))
        yield Leak(where=field.where, message=message, excerpt=near(plain, found.group()), strength=strength)
        return
    lone = MARKER.search(plain)
    if lone is None:
        return
    marker = lone.group()
    left = LEFT_BEHIND.search(plain)
    message = RedactableText("{} stands alone in {}", marker, Location(field.where))
    if quotes(x, marker) or is_about_harmony(x):
        strength = Strength.QUOTED
    elif left is not None and field.place is not FieldKind.OTHER and (because := _corroborated(x, answer)):
        strength, message = (
            Strength.PROVEN,
            RedactableText(
                "{} stands in {} where a parser leaves one, and {}",
                marker,
                Location(field.where),
                RedactableText(because),
            ),
        )
    else:
        strength = Strength.SUSPECTED
    excerpt = near(plain, left.group().strip() if left is not None else marker)
    yield Leak(where=field.where, message=message, excerpt=excerpt, strength=strength)


def _in_a_name(x: Exchange, _answer: AnswerTexts, field: TextField, text: str) -> Iterator[Leak]:
    marker = next(found.group() for found in MARKER.finditer(text))
    yield Leak(
        where=field.where,
        message=RedactableText("{} stands in {}, which is a name", marker, Location(field.where)),
        excerpt=near(text, marker),
        strength=Strength.QUOTED if quotes(x, marker) else Strength.PROVEN,
    )


def _in_arguments(x: Exchange, answer: AnswerTexts, field: TextField, text: str) -> Iterator[Leak]:
    beside = _beside_json(text)
    found = MARKER.search(beside)
    if found is None:
        yield from _in_text(x, answer, field, text)
        return
    message = RedactableText("{} stands in {}, beside the arguments", found.group(), Location(field.where))
    yield Leak(where=field.where, message=message, excerpt=near(text, found.group()))


_MARKERS_IN: dict[FieldKind, Callable[[Exchange, AnswerTexts, TextField, str], Iterator[Leak]]] = {
    FieldKind.CONTENT: _in_text,
    FieldKind.REASONING: _in_text,
    FieldKind.NAME: _in_a_name,
    FieldKind.ARGUMENTS: _in_arguments,
    FieldKind.OTHER: _in_text,
}
_CITES = "url_citation"  # what a page says that the answer cites


def _beside_json(text: str) -> str:
    """What stands before and behind the JSON value of a text; nothing, where it holds none."""
    start = next((index for index, letter in enumerate(text) if letter in "{["), None)
    if start is None:
        return ""
    try:
        _, length = json.JSONDecoder().raw_decode(text[start:])
    except (ValueError, RecursionError):
        return text[:start]
    return f"{text[:start]} {text[start + length :]}"


def _corroborated(x: Exchange, answer: AnswerTexts) -> LiteralString:
    """What speaks for a leak where one marker stands alone; nothing, if nothing does."""
    reasoning = answer.text_of(FieldKind.REASONING)
    if not reasoning.strip():
        return "the answer has no reasoning"
    usage = x.turn.usage if x.turn is not None else None
    if usage is None or usage.completion_tokens is None:
        return ""
    calls = sum(len(encode(one.text)) for one in answer.fields if one.place in (FieldKind.ARGUMENTS, FieldKind.NAME))
    told = len(encode(answer.text_of(FieldKind.CONTENT))) + calls
    thought = usage.reasoning_tokens if usage.reasoning_tokens is not None else 0
    unseen = usage.completion_tokens - told - max(thought, len(encode(reasoning)))
    return "many more tokens were spent than are shown" if unseen > _HEADERS + told + calls else ""


_HEADERS = 24  # what the headers of a few messages cost


def _words(x: Exchange, answer: AnswerTexts) -> Iterator[Leak]:
    for field in answer.fields:
        text = readable(field.text)
        if not may_hold_words(text):
            continue
        plain = without_code(text)
        found = _GLUED_IN[field.place].search(plain)
        if found is None:
            yield from _leading_word(x, field, plain)
            continue
        word = found.group()[-_WORD:]
        if quotes(x, found.group(), *_words_of(word)):
            continue
        yield Leak(
            where=field.where,
            message=RedactableText("channel words stand in {}, glued to the text", Location(field.where)),
            excerpt=near(plain, word),
            strength=Strength.QUOTED if is_about_harmony(x) else Strength.PROVEN,
        )


def _words_of(found: str) -> Iterator[str]:
    """The glued words at the end of what was found."""
    yield from (word for word in ("assistantfinal", "assistantanalysis", "assistantcommentary") if found.endswith(word))


def _leading_word(x: Exchange, field: TextField, plain: str) -> Iterator[Leak]:
    found = LONE.search(plain) if field.place is FieldKind.CONTENT else None
    if found is not None and not is_about_harmony(x):
        message = RedactableText("{!r} in {} may be a leak", found.group(), Location(field.where))
        yield Leak(where=field.where, message=message, excerpt=plain[:_AROUND], strength=Strength.SUSPECTED)


_GLUED_IN = {place: GLUED if place is FieldKind.CONTENT else GLUED_IN_REASONING for place in FieldKind}
_WORD = 20  # the end of what was found is the word itself


def _thoughts(x: Exchange, answer: AnswerTexts) -> Iterator[Leak]:
    reasoning = answer.text_of(FieldKind.REASONING)
    for field in answer.fields:
        if field.place is not FieldKind.CONTENT:
            continue
        wrapped = WRAPPED.match(field.text)
        if wrapped is not None:
            yield Leak(
                where=field.where,
                message=RedactableText("{} begins with a thought in tags", Location(field.where)),
                excerpt=field.text[:_AROUND],
                strength=Strength.QUOTED if _speaks_of_tags(x) else Strength.PROVEN,
            )
        elif (
            "<" in field.text
            and (opened := OPENED.search(without_code(field.text))) is not None
            and not _speaks_of_tags(x)
        ):
            message = RedactableText("{!r} in {} may be a leak", opened.group(), Location(field.where))
            excerpt = near(field.text, opened.group())
            yield Leak(where=field.where, message=message, excerpt=excerpt, strength=Strength.SUSPECTED)
        if repeated(reasoning, field.text):
            asked = any(ASKS_TO_THINK_ALOUD.search(text) for text in said(x))
            yield Leak(
                where=field.where,
                message=RedactableText("{} repeats the whole reasoning", Location(field.where)),
                excerpt=reasoning[:_LONGEST],
                strength=Strength.QUOTED if asked else Strength.PROVEN,
            )


def _speaks_of_tags(x: Exchange) -> bool:
    return any(TAGGED.search(text) for text in said(x))


_AROUND = 40
_LONGEST = 80


def near(text: str, part: str) -> str:
    """A part of a text with what stands around it."""
    index = text.find(part)
    start, end = max(0, index - _AROUND), index + len(part) + _AROUND
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")


def _around_seam(text: str, seam: str) -> str:
    """Where a text without its blanks stands in one that has them."""
    places = [index for index, letter in enumerate(text) if not letter.isspace()]
    at = "".join(text.split()).find(seam)
    if at < 0:
        return text[:_LONGEST]
    return near(text, text[places[at] : places[at + len(seam) - 1] + 1])
