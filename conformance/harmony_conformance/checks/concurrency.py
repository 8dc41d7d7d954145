"""Family `concurrency`: concurrent requests do not affect each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from harmony_conformance.apis.chat_completion import Turn
from harmony_conformance.apis.text_fields import turn_fields
from harmony_conformance.checks.helpers.api_words import words_of
from harmony_conformance.checks.helpers.value_diff import json_differences
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import Json
from harmony_conformance.judge.check import MUST, Finding, comparison, mismatch
from harmony_conformance.judge.condition import condition, evidence, series_only
from harmony_conformance.redactable_text import RedactableText, quote

CONCURRENT_PREFIX, ALONE_PREFIX = "lane ", "alone "


@series_only
@condition
def has_concurrent_requests(series: Series) -> bool:
    """concurrent requests, at least two, each with its own word"""
    concurrent = _concurrent(series).values()
    return len(concurrent) > 1 and all(x.concurrency != 1 for x in concurrent)


def _concurrent(series: Series) -> dict[str, Exchange]:
    sent = series.exchanges.items()
    return {step: x for step, x in sent if step.startswith(CONCURRENT_PREFIX) and x.turn is not None}


@comparison(MUST, spec="chat#message", when=has_concurrent_requests)
def answers_do_not_cross(series: Series) -> Iterator[Finding]:
    """No answer contains the word of another, concurrent request; no two answers share an id."""
    concurrent = _concurrent(series)
    words = {step: "canary-" + step.removeprefix(CONCURRENT_PREFIX).partition("+")[0] for step in concurrent}
    patterns = {word: re.compile(rf"{re.escape(word)}(?!\w)") for word in words.values()}
    seen: dict[str, str] = {}
    for step, x in concurrent.items():
        if x.turn is None:
            continue
        texts = " ".join(field.text for field in turn_fields(x.turn))
        others = (word for word, pattern in patterns.items() if word != words[step] and pattern.search(texts))
        foreign = next(others, None)
        if foreign is not None:
            message = "an answer contains the word of another request"
            yield mismatch(message, "content", quote(words[step]), quote(foreign), exchange=x.id)
        if x.turn.id:
            if x.turn.id in seen:
                message = "two answers have the same id"
                actual = RedactableText("shared with {}", seen[x.turn.id])
                yield mismatch(message, "/id", "an id for each answer", actual, exchange=x.id)
            seen.setdefault(x.turn.id, x.id)


@evidence
def has_alone_and_concurrent(series: Series) -> bool:
    """requests sent alone and concurrently, whose emitted tokens are known to be the same"""
    return any(True for _ in _alone_and_concurrent(series))


@comparison(MUST, spec="chat#message", when=(has_concurrent_requests, has_alone_and_concurrent))
def same_answer_as_alone(series: Series) -> Iterator[Finding]:
    """The same output of the model gives the same answer alone and under concurrency: reasoning, content, calls and end.

    Parsers have state, and a server under load may cut, drop or mix answers that it otherwise returns whole.
    """
    for alone, concurrent in _alone_and_concurrent(series):
        for difference in json_differences(_content(alone), _content(concurrent)):
            message = RedactableText("under concurrency, {} differs", difference.path)
            yield mismatch(message, difference.path, difference.expected, difference.actual, exchange=concurrent.id)


def _alone_and_concurrent(series: Series) -> Iterator[tuple[Exchange, Exchange]]:
    for step, concurrent in _concurrent(series).items():
        alone = series.exchanges.get(ALONE_PREFIX + step.removeprefix(CONCURRENT_PREFIX))
        if (
            alone is not None
            and None not in (alone.turn, concurrent.turn, alone.script)
            and alone.script == concurrent.script
        ):
            yield alone, concurrent


def _content(x: Exchange) -> Json:
    turn, words = x.turn or Turn(), words_of(x)
    return {
        "content": turn.content or "",
        "reasoning": turn.reasoning or "",
        words.calls: [{"name": call.name, words.arguments: call.arguments} for call in turn.tool_calls],
        words.end: words.compared_end(turn.finish_reason),
    }
