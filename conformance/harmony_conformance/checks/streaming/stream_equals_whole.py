"""Comparison of a joined stream with the whole answer to the same request."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from harmony_conformance.apis.chat_completion import Turn, has_same_calls
from harmony_conformance.checks.helpers.value_diff import json_differences
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import parse_output
from harmony_conformance.evidence.series_pairs import stream_step_pairs
from harmony_conformance.json_value import Json, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, comparison, mismatch, ruled, variant
from harmony_conformance.judge.condition import evidence
from harmony_conformance.judge.rulings import WHITE_SPACE_BETWEEN_MESSAGES
from harmony_conformance.redactable_text import RedactableText
from harmony_ref import tokens


@evidence
def has_same_output_twice(series: Series) -> bool:
    """requests that were sent both streamed and not, with known and equal output tokens"""
    return any(True for _ in _whole_and_streamed(series))


BOTH_WAYS = (on.has_whole_and_streamed, has_same_output_twice)


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def content_equals_whole(series: Series) -> Iterator[Finding]:
    """The joined content of a streamed answer equals the content of the answer to the same request without streaming.

    Only answers with the same output tokens are compared. Parsers lose text that is split over chunks (defects V12, V14).
    """
    return _part_findings(series, lambda turn: {"content": turn.content or ""})


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def reasoning_equals_whole(series: Series) -> Iterator[Finding]:
    """The joined reasoning of a streamed answer equals the reasoning of the whole one, in a field of the same name.

    A client reads one name in both; streams lose tokens at the border of two channels (defect V14). The separator of two reasoning messages is
    the server's choice, a line end or nothing, but the same in both.
    """
    return _part_findings(
        series,
        lambda turn: {
            "reasoning": turn.reasoning or "",
            "reasoning field": turn.reasoning_field if turn.reasoning else None,
        },
    )


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def calls_equal_whole(series: Series) -> Iterator[Finding]:
    """The calls of a streamed answer, joined by index, equal those of the whole one: names and arguments, in order.

    Arguments that are equal as JSON and differ as text are a variant (defects V12, V15, S04).
    """
    for whole, streamed, streamed_id in _whole_and_streamed(series):
        if _calls(whole) != _calls(streamed) and has_same_calls(whole, streamed):
            message = "streamed, the arguments of a call differ as text and are equal as JSON"
            finding = variant(message, where="tool_calls")
            yield replace(finding, exchange=streamed_id)
        else:
            yield from _difference_findings(_calls(whole), _calls(streamed), streamed_id)


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def finish_equals_whole(series: Series) -> Iterator[Finding]:
    """A streamed answer ends for the same reason as the whole one."""
    return _part_findings(series, lambda turn: {"finish_reason": turn.finish_reason})


@evidence
def reports_usage_both_ways(series: Series) -> bool:
    """requests whose usage is reported both streamed and not"""
    return any(whole.usage and streamed.usage for whole, streamed, _ in _whole_and_streamed(series))


@comparison(SHOULD, spec="chat#usage", when=(*BOTH_WAYS, reports_usage_both_ways))
def usage_equals_whole(series: Series) -> Iterator[Finding]:
    """The same output tokens have the same counts, streamed or not: completion_tokens, and reasoning_tokens if both have it."""
    for whole, streamed, streamed_id in _whole_and_streamed(series):
        if whole.usage is not None and streamed.usage is not None:
            names = ("completion_tokens", "reasoning_tokens")
            counts = {name: (getattr(whole.usage, name), getattr(streamed.usage, name)) for name in names}
            both = {f"usage.{name}": pair for name, pair in counts.items() if None not in pair}
            one, other = ({name: pair[side] for name, pair in both.items()} for side in (0, 1))
            yield from _difference_findings(one, other, streamed_id)


def _part_findings(series: Series, part: Callable[[Turn], Json]) -> Iterator[Finding]:
    exchanges = {x.id: x for x in series.exchanges.values()}
    for whole, streamed, streamed_id in _whole_and_streamed(series):
        for finding in _difference_findings(part(whole), part(streamed), streamed_id):
            is_joiner = finding.message.endswith(_IN_WHITE_SPACE) and _has_several(
                exchanges[streamed_id], finding.location
            )
            yield ruled(finding, WHITE_SPACE_BETWEEN_MESSAGES) if is_joiner else finding


def _has_several(x: Exchange, member: str) -> bool:
    """Return True if the content or the reasoning of an answer is of several messages, whose joiner no source defines."""
    output = parse_output(x.output.ids or ())
    if output is None:
        return (x.output.ids or ()).count(tokens.MESSAGE) > 1
    return len(output.reasoning if member == "reasoning" else output.user_texts) > 1


_IN_WHITE_SPACE = " in white space only"


def _difference_findings(whole: Json, streamed: Json, streamed_id: str) -> Iterator[Finding]:
    for difference in json_differences(whole, streamed) if whole != streamed else ():
        one, other = value_at(whole, difference.path), value_at(streamed, difference.path)
        is_white_space = (
            isinstance(one, str) and isinstance(other, str) and "".join(one.split()) == "".join(other.split())
        )
        suffix = _IN_WHITE_SPACE if is_white_space else ""
        message = RedactableText("streamed, {} differs{}", difference.path, RedactableText(suffix))
        yield mismatch(message, difference.path, difference.expected, difference.actual, exchange=streamed_id)


def _whole_and_streamed(series: Series) -> Iterator[tuple[Turn, Turn, str]]:
    """Yield answers to the same request with the same output tokens, and the id of the streamed exchange."""
    for step, other in stream_step_pairs(series):
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
