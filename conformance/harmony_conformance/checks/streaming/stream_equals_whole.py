"""Comparison of a joined stream with the whole answer to the same request.

The checks of single answers decide which of two different answers is right:

- They fail on the whole answer alone: the stream is right, and there is no second failure.
- They fail on the stream alone: the whole answer is the expected value.
- In all other cases a finding shows both answers, and neither is expected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial

from harmony_conformance.apis.chat_completion import Turn, has_same_calls, has_same_objects
from harmony_conformance.apis.registry import RESPONSES, find_api
from harmony_conformance.checks.helpers.api_words import ApiWords, words_of
from harmony_conformance.checks.helpers.call_alignment import NamedCall, align_calls, differ_by_completion
from harmony_conformance.checks.helpers.malformed_output import has_malformed_output, ruled_if_malformed
from harmony_conformance.checks.helpers.value_diff import json_differences, lacks_cut_character
from harmony_conformance.checks.streaming.right_side import (
    CALLS,
    CONTENT,
    FINISH,
    REASONING,
    RightSide,
    find_right_side,
)
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import parse_output
from harmony_conformance.evidence.series_pairs import stream_step_pairs
from harmony_conformance.json_value import Json, JsonObject, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, comparison, mismatch, ruled, variant
from harmony_conformance.judge.condition import evidence
from harmony_conformance.judge.rulings import CUT_CHARACTERS, EMPTY_ARGUMENTS, WHITE_SPACE_BETWEEN_MESSAGES
from harmony_conformance.redactable_text import Location, RedactableText, ReportText, shorten
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
    for pair in _whole_and_streamed(series):
        yield from _pair_findings(pair, CONTENT, lambda turn: {"content": turn.content or ""})


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def reasoning_equals_whole(series: Series) -> Iterator[Finding]:
    """The joined reasoning of a streamed answer equals the reasoning of the whole one, in a field of the same name.

    A client reads one name in both; streams lose tokens at the border of two channels (defect V14). The separator of two reasoning messages is
    the server's choice, a line end or nothing, but the same in both.
    """
    for pair in _whole_and_streamed(series):
        has_both = bool(pair.whole.reasoning and pair.streamed.reasoning)  # a missing one is another difference
        yield from _pair_findings(pair, REASONING, partial(_reasoning, with_field=has_both))


def _reasoning(turn: Turn, *, with_field: bool) -> Json:
    reasoning: JsonObject = {"reasoning": turn.reasoning or ""}
    return {**reasoning, "reasoning field": turn.reasoning_field} if with_field else reasoning


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def calls_equal_whole(series: Series) -> Iterator[Finding]:
    """The calls of a streamed answer, joined by index, equal those of the whole one: names and arguments, in order.

    Arguments that are equal as JSON and differ as text are a variant (defects V12, V15, S04). An API whose whole answers have objects as
    arguments can show neither a member twice nor arguments that the limit cut.
    """
    has_texts = find_api(series.api).has_text_arguments
    is_same = has_same_calls if has_texts else has_same_objects
    for pair in _whole_and_streamed(series):
        calls = partial(_calls, words=words_of(pair.exchanges[1]))
        if calls(pair.whole) != calls(pair.streamed) and is_same(pair.whole, pair.streamed):
            means = "are equal as JSON" if has_texts else "are the same object, as far as the whole answer can show it"
            message = f"streamed, the arguments of a call differ as text and {means}"
            finding = variant(message, where=words_of(pair.exchanges[1]).calls)
            yield replace(finding, exchange=pair.exchanges[1].id)
        else:
            yield from _pair_findings(pair, CALLS, calls, partial(_call_findings, words=words_of(pair.exchanges[1])))


@comparison(MUST, spec="chat#stream", when=BOTH_WAYS)
def finish_equals_whole(series: Series) -> Iterator[Finding]:
    """A streamed answer ends for the same reason as the whole one.

    A stream that ends in an error has no such reason, which other checks report.
    """
    for pair in _whole_and_streamed(series):
        if pair.exchanges[1].error is None:
            yield from _pair_findings(pair, FINISH, partial(_finish, words=words_of(pair.exchanges[1])))


@evidence
def reports_usage_both_ways(series: Series) -> bool:
    """requests whose usage is reported both streamed and not"""
    return any(pair.whole.usage and pair.streamed.usage for pair in _whole_and_streamed(series))


@comparison(SHOULD, spec="chat#usage", when=(*BOTH_WAYS, reports_usage_both_ways))
def usage_equals_whole(series: Series) -> Iterator[Finding]:
    """The same output tokens have the same counts, streamed or not: completion_tokens, and reasoning_tokens if both have it."""
    for pair in _whole_and_streamed(series):
        one, other = pair.whole.usage, pair.streamed.usage
        if one is not None and other is not None:
            names = ("completion_tokens", "reasoning_tokens")
            counts = {name: (getattr(one, name), getattr(other, name)) for name in names}
            both = {f"usage.{name}": values for name, values in counts.items() if None not in values}
            whole, streamed = ({name: values[side] for name, values in both.items()} for side in (0, 1))
            yield from _difference_findings(pair, whole, streamed, RightSide.UNKNOWN)


def _pair_findings(
    pair: _Pair, name: str, part: Callable[[Turn], Json], find: _FindDifferences | None = None
) -> Iterator[Finding]:
    one, other = part(pair.whole), part(pair.streamed)
    if one == other or (side := find_right_side(*pair.exchanges, name)) is RightSide.STREAM:
        return
    x = pair.exchanges[1]
    if has_malformed_output(x):  # that the stream is wrong does not show that the whole answer is right
        side = RightSide.UNKNOWN
    found = find(pair, side) if find is not None else _difference_findings(pair, one, other, side)
    for finding in found:
        is_joiner = finding.message.endswith(_IN_WHITE_SPACE) and _has_several(x, finding.location)
        if is_joiner and x.api == RESPONSES.name:
            continue  # items have no joiner: it is that of the translation
        if _differs_in_cut_character(one, other, finding.location):
            finding = ruled(finding, CUT_CHARACTERS)  # noqa: PLW2901 - the same finding, with its ruling
        yield ruled(finding, WHITE_SPACE_BETWEEN_MESSAGES) if is_joiner else ruled_if_malformed(finding, x)


def _differs_in_cut_character(whole: Json, streamed: Json, member: str) -> bool:
    """Return True if a text of the stream lacks nothing but the U+FFFD at the end of the whole answer."""
    one, other = value_at(whole, member), value_at(streamed, member)
    return isinstance(one, str) and isinstance(other, str) and lacks_cut_character(one, other)


def _has_several(x: Exchange, member: str) -> bool:
    """Return True if the content or the reasoning of an answer is of several messages, whose joiner no source defines."""
    output = parse_output(x.output.ids or ())
    if output is None:
        return (x.output.ids or ()).count(tokens.MESSAGE) > 1
    return len(output.reasoning if member == "reasoning" else output.user_texts) > 1


_IN_WHITE_SPACE = " in white space only"


def _difference_findings(pair: _Pair, whole: Json, streamed: Json, side: RightSide) -> Iterator[Finding]:
    for difference in json_differences(whole, streamed) if whole != streamed else ():
        one, other = value_at(whole, difference.path), value_at(streamed, difference.path)
        is_white_space = (
            isinstance(one, str) and isinstance(other, str) and "".join(one.split()) == "".join(other.split())
        )
        suffix = _IN_WHITE_SPACE if is_white_space else ""
        message = RedactableText("streamed, {} differs{}", difference.path, RedactableText(suffix))
        values = _both_values(difference.expected, difference.actual, side)
        yield mismatch(message, difference.path, *values, exchange=pair.exchanges[1].id)


def _both_values(whole: ReportText, streamed: ReportText, side: RightSide) -> tuple[ReportText, ReportText]:
    """Return the expected and the actual value. Neither is expected if no check decides which of them is right."""
    if side is not RightSide.UNKNOWN:
        return whole, streamed
    return "the same in both", RedactableText("whole: {}, streamed: {}", whole, streamed)


def _call_findings(pair: _Pair, side: RightSide, words: ApiWords) -> Iterator[Finding]:
    """Yield a finding for each call that one answer lacks, and for each difference of the others."""
    whole, streamed, x = pair.whole.tool_calls, pair.streamed.tool_calls, pair.exchanges[1]
    for one, other in align_calls(whole, streamed):
        at = f"{words.calls}[{one if other is None else other}]"
        if one is not None and other is not None:
            for difference in json_differences(*(_as_json(call, words) for call in (whole[one], streamed[other]))):
                path = Location(f"{at}.{difference.path}")
                message = RedactableText("streamed, {} differs{}", path, RedactableText(""))
                values = _both_values(difference.expected, difference.actual, side)
                finding = mismatch(message, path, *values, exchange=x.id)
                is_ruled = difference.path == words.arguments and _is_completed_by_responses(
                    x, whole[one], streamed[other]
                )
                yield ruled(finding, EMPTY_ARGUMENTS) if is_ruled else finding
        elif one is not None:
            call = _written(whole[one])
            message = RedactableText("the stream lacks the call {} of the whole answer", call)
            yield mismatch(message, at, *_both_values(call, "no such call", side), exchange=x.id)
        elif other is not None:
            call = _written(streamed[other])
            message = RedactableText("the stream has a call {} that the whole answer lacks", call)
            yield mismatch(message, at, *_both_values("no such call", call, side), exchange=x.id)


def _is_completed_by_responses(x: Exchange, one: NamedCall, other: NamedCall) -> bool:
    """Return True if the Responses API has empty arguments in one call, and an empty object in the other."""
    return x.api == RESPONSES.name and differ_by_completion(one.arguments, other.arguments)


def _written(call: NamedCall) -> RedactableText:
    return RedactableText("{}({})", shorten(call.name), shorten(call.arguments))


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A whole and a streamed answer to the same request with the same output tokens."""

    exchanges: tuple[Exchange, Exchange]
    whole: Turn
    streamed: Turn


_FindDifferences = Callable[[_Pair, RightSide], Iterator[Finding]]


def _whole_and_streamed(series: Series) -> Iterator[_Pair]:
    for step, other in stream_step_pairs(series):
        whole, streamed = series.exchanges[step], series.exchanges[other]
        if whole.turn is not None and streamed.turn is not None and _same_output(whole, streamed):
            yield _Pair(exchanges=(whole, streamed), whole=whole.turn, streamed=streamed.turn)


def _same_output(whole: Exchange, streamed: Exchange) -> bool:
    known = whole.output.ids, streamed.output.ids
    if None not in known:
        return known[0] == known[1]
    return whole.script is not None and whole.script == streamed.script


def _calls(turn: Turn, words: ApiWords) -> Json:
    return {words.calls: [_as_json(call, words) for call in turn.tool_calls]}


def _as_json(call: NamedCall, words: ApiWords) -> Json:
    return {"name": call.name, words.arguments: call.arguments}


def _finish(turn: Turn, words: ApiWords) -> Json:
    return {words.end: words.compared_end(turn.finish_reason)}
