"""A stream, joined, and the whole answer to the same request: part by part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from harmony_conformance.apis.chat_completion import Turn, same_calls
from harmony_conformance.checks.helpers.value_diff import json_differences
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import whole_and_streamed
from harmony_conformance.json_value import Json, at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, comparison, evidence, variant
from harmony_conformance.redactable_text import RedactableText


@evidence
def has_same_output_twice(series: Series) -> bool:
    """requests that were sent both streamed and not, and of which the same emitted tokens are known"""
    return any(True for _ in _whole_and_streamed(series))


BOTH_WAYS = (on.has_whole_and_streamed, has_same_output_twice)


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def content_equals_whole(series: Series) -> Iterator[Finding]:
    """The content of a streamed answer, joined, is the content that the same request gets without streaming.

    Compared where both rest on the same emitted tokens: text split over chunks is where parsers lose it (defects V12, V14).
    """
    return _differing(series, lambda turn: {"content": turn.content or ""})


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def reasoning_equals_whole(series: Series) -> Iterator[Finding]:
    """The reasoning of a streamed answer, joined, is the reasoning of the whole one, in a field of the same name.

    A client reads one name in both; tokens at the border of two channels go astray in streams (defect V14). What stands between two thoughts is the
    server's choice, a line end or nothing, but the same in both.
    """
    return _differing(
        series,
        lambda turn: {
            "reasoning": turn.reasoning or "",
            "reasoning field": turn.reasoning_field if turn.reasoning else None,
        },
    )


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def calls_equal_whole(series: Series) -> Iterator[Finding]:
    """The calls of a streamed answer, joined by index, are those of the whole one: names and arguments, in order.

    Arguments that are equal as JSON and written differently are a variant (defects V12, V15, S04).
    """
    for whole, streamed, streamed_id in _whole_and_streamed(series):
        written_anew = _calls(whole) != _calls(streamed) and same_calls(whole, streamed)
        if written_anew:
            yield replace(
                variant("streamed, the arguments of a call are another text, equal as JSON", where="tool_calls"),
                exchange=streamed_id,
            )
        else:
            yield from _differences(_calls(whole), _calls(streamed), streamed_id)


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def finish_equals_whole(series: Series) -> Iterator[Finding]:
    """A streamed answer ends for the same reason as the whole one."""
    return _differing(series, lambda turn: {"finish_reason": turn.finish_reason})


@evidence
def reports_usage_both_ways(series: Series) -> bool:
    """requests whose usage is reported both streamed and not"""
    return any(whole.usage and streamed.usage for whole, streamed, _ in _whole_and_streamed(series))


@comparison(SHOULD, spec="chat#usage", when=(*BOTH_WAYS, reports_usage_both_ways))
def usage_equals_whole(series: Series) -> Iterator[Finding]:
    """The same emitted tokens are counted alike, streamed or not: completion_tokens, and reasoning_tokens where both are told."""
    for whole, streamed, streamed_id in _whole_and_streamed(series):
        if whole.usage is not None and streamed.usage is not None:
            told = ("completion_tokens", "reasoning_tokens")
            counts = {name: (getattr(whole.usage, name), getattr(streamed.usage, name)) for name in told}
            both = {name: pair for name, pair in counts.items() if None not in pair}
            yield from _differences(
                {f"usage.{name}": pair[0] for name, pair in both.items()},
                {f"usage.{name}": pair[1] for name, pair in both.items()},
                streamed_id,
            )


def _differing(series: Series, part: Callable[[Turn], Json]) -> Iterator[Finding]:
    for whole, streamed, streamed_id in _whole_and_streamed(series):
        yield from _differences(part(whole), part(streamed), streamed_id)


def _differences(whole: Json, streamed: Json, streamed_id: str) -> Iterator[Finding]:
    for found in json_differences(whole, streamed) if whole != streamed else ():
        alone = " in white space alone" if _is_white_space(at(whole, found.path), at(streamed, found.path)) else ""
        yield Finding(
            message=RedactableText("streamed, {} differs{}", found.path, RedactableText(alone)),
            at=found.path,
            expected=found.expected,
            actual=found.actual,
            exchange=streamed_id,
        )


def _is_white_space(whole: Json, streamed: Json) -> bool:
    """Whether two texts differ in nothing but white space, as that which servers put between several messages of a channel."""
    return isinstance(whole, str) and isinstance(streamed, str) and "".join(whole.split()) == "".join(streamed.split())


def _whole_and_streamed(series: Series) -> Iterator[tuple[Turn, Turn, str]]:
    """Answers to the same request that rest on the same emitted tokens, and the id of the streamed exchange."""
    for step, other in whole_and_streamed(series):
        whole, streamed = series.exchanges[step], series.exchanges[other]
        if whole.turn is not None and streamed.turn is not None and _same_output(whole, streamed):
            yield whole.turn, streamed.turn, streamed.id


def _same_output(whole: Exchange, streamed: Exchange) -> bool:
    known = whole.output.ids, streamed.output.ids
    if None not in known:
        return known[0] == known[1]
    return whole.script is not None and whole.script == streamed.script


def _calls(turn: Turn) -> Json:
    return {"tool_calls": [{"name": call.name, "arguments": call.arguments} for call in turn.tool_calls]}
