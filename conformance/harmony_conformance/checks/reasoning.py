"""Family `reasoning`: the chain of thought as the client gets it, and the effort the model was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import told_in_order
from harmony_conformance.evidence.series_pairs import pair
from harmony_conformance.json_value import at, text
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, condition, series_only, variant
from harmony_conformance.redactable_text import Location, RedactableText, quote, shorten
from harmony_ref import encode


@check(MUST, spec="raw-cot#output", when=(on.is_conversation, on.ended_well, on.meaning_is_known, on.meant_reasoning))
def analysis_is_reasoning(x: Exchange) -> Iterator[Finding]:
    """The analysis channel arrives whole, and in order, in the reasoning field.

    A client sends this text back inside a tool loop; what is missing from it the model has forgotten (defects R03, V14). A server may name the field
    reasoning_content or thinking, or hide the reasoning altogether.
    """
    turn, meant = x.turn, x.expected_output
    if turn is None or meant is None:
        return
    if turn.reasoning is None:
        yield variant("the reasoning is hidden", where="reasoning")
        return
    if turn.reasoning_field != "reasoning":
        yield variant(
            RedactableText("the reasoning field is called {}", Location(turn.reasoning_field)),
            where=turn.reasoning_field or "",
        )
    position = 0
    for number, thought in enumerate(meant.reasoning):
        wanted = thought.rstrip("\ufffd").strip()
        found = turn.reasoning.find(wanted, position)
        if found < 0:
            yield Finding(
                message=RedactableText(
                    "analysis message {} of {} did not arrive whole in {}",
                    number + 1,
                    len(meant.reasoning),
                    turn.reasoning_field,
                ),
                at=turn.reasoning_field or "reasoning",
                expected=shorten(thought),
                actual=shorten(turn.reasoning),
            )
            return
        position = found + len(wanted)
    if not told_in_order(meant.reasoning, turn.reasoning) and not told_in_order(
        (*meant.reasoning, *meant.preambles), turn.reasoning
    ):
        expected, actual = text_difference("\n".join(meant.reasoning), turn.reasoning)
        yield Finding(
            message=RedactableText("{} holds more than the analysis channel", Location(turn.reasoning_field)),
            at=turn.reasoning_field or "reasoning",
            expected=expected,
            actual=actual,
        )


@check(MUST, spec="harmony#final", when=(on.is_conversation, on.ended_well, on.meaning_is_known, on.meant_final))
def reasoning_holds_no_answer(x: Exchange) -> Iterator[Finding]:
    """Final text does not end up in the reasoning field.

    Clients hide the reasoning; an answer that is routed there was not given (defects V06, V14, O21).
    """
    turn, meant = x.turn, x.expected_output
    if turn is None or meant is None or not turn.reasoning:
        return
    thought = "\n".join(meant.reasoning)
    for answer in meant.finals:
        if answer.strip() and answer in turn.reasoning and answer not in thought:
            yield Finding(
                message="the final answer stands in the reasoning field",
                at=turn.reasoning_field or "reasoning",
                expected=shorten(thought) or "no reasoning",
                actual=shorten(turn.reasoning),
                excerpt=shorten(turn.reasoning),
            )


@check(MUST, spec="harmony#system", when=(on.is_conversation, on.prompt_is_known, on.asks_effort))
def effort_is_rendered(x: Exchange) -> Iterator[Finding]:
    """The effort asked for stands in the system message: `Reasoning: low`, `medium` or `high`.

    A server that ignores the field answers at medium effort whatever was asked and billed (defects V29, T04, O10, M15).
    """
    asked = text(at(x.chat_request, "reasoning_effort"))
    line = _effort_line(x)
    if line == f"Reasoning: {asked}":
        return
    if line is None:
        yield Finding(
            message="the system message names no reasoning effort",
            at="system message",
            expected=RedactableText("Reasoning: {}", asked),
            actual="no such line",
        )
    else:
        yield Finding(
            message=RedactableText(
                "effort {} was asked for and {} rendered", asked, line.removeprefix("Reasoning:").strip()
            ),
            at="system message",
            expected=RedactableText("Reasoning: {}", asked),
            actual=quote(line),
        )


@check(MUST, spec="harmony#system", when=(on.is_conversation, on.asks_unknown_effort, on.is_refused_or_shows_prompt))
def unknown_effort_is_not_swallowed(x: Exchange) -> Iterator[Finding]:
    """An effort that Harmony does not have is refused, or mapped to the nearest level; it is not rendered as it is, nor silently medium.

    A client that asked for `extreme` believes it was given; a word that the model never saw is worse (defects V28, O22).
    """
    if x.parsed_prompt is None:
        return
    asked = text(at(x.chat_request, "reasoning_effort"))
    line = _effort_line(x) or ""
    level = line.removeprefix("Reasoning:").strip()
    if (
        level in _NEAREST.get(asked, ("low", "high"))
        or (asked in _NEAR_MEDIUM and level == "medium")
        or (not line and asked == "none")
    ):
        yield variant(
            RedactableText("effort {} was mapped to {}", asked, quote(level) or RedactableText("no line at all")),
            where="system message",
        )
    else:
        yield Finding(
            message=RedactableText(
                "effort {!r} was accepted and rendered as {}", asked, quote(line) or RedactableText("no line at all")
            ),
            at="system message",
            expected="a 4xx status, or the nearest of low, medium, high",
            actual=quote(line) or "no line",
        )


def _effort_line(x: Exchange) -> str | None:
    """The line of the system message that names the effort."""
    lines = x.system_message.content.splitlines() if x.system_message is not None else []
    return next((line for line in lines if line.startswith("Reasoning:")), None)


_NEAREST = {"minimal": ("low",), "none": ("low",), "xhigh": ("high",), "max": ("high",), "ultra": ("high",)}
_NEAR_MEDIUM = ("auto", "default")


@series_only
@condition
def has_cut_reasoning(series: Series) -> bool:
    """an answer with reasoning, and the same cut by the token limit"""
    found = pair(series, "uncut", "cut")
    return (
        found is not None
        and bool(found[0].turn and found[0].turn.reasoning)
        and bool(found[1].turn and found[1].turn.finish_reason == "length")
    )


@comparison(MUST, spec="raw-cot#output", when=has_cut_reasoning)
def cut_reasoning_is_returned(series: Series) -> Iterator[Finding]:
    """A server that returns reasoning returns it also where the limit cut it: as far as it got.

    Otherwise the client pays for an empty answer and cannot go on from it (defect V39).
    """
    found = pair(series, "uncut", "cut")
    cut = found[1] if found is not None else None
    if cut is not None and cut.turn is not None and not cut.turn.reasoning and not cut.turn.content:
        yield Finding(
            message="the limit fell into the reasoning and none of it was returned",
            at="reasoning",
            expected="the reasoning so far",
            actual="neither reasoning nor content",
            exchange=cut.id,
        )


@check(SHOULD, spec="chat#usage", when=(on.is_conversation, on.ended_well, on.has_usage, on.wants_one_choice))
def reasoning_tokens_agree(x: Exchange) -> Iterator[Finding]:
    """Reported reasoning tokens are those of the analysis messages: zero without any, and never more than all tokens.

    Absent counts, and counts that include headers or calls, are variants (defects V27, S09).
    """
    turn, meant = x.turn, x.expected_output
    if turn is None or turn.usage is None:
        return
    told, spent = turn.usage.reasoning_tokens, turn.usage.completion_tokens
    if told is None:
        if x.api_adapter.counts_reasoning:
            yield variant("reasoning tokens are not reported", where="usage/completion_tokens_details")
    elif spent is not None and told > spent:
        yield Finding(
            message="more reasoning tokens than completion tokens are reported",
            at="usage",
            expected=RedactableText("at most {}", spent),
            actual=quote(told),
        )
    elif meant is None:
        if told == 0 and (turn.reasoning or "").strip():
            yield Finding(
                message="reasoning is returned and no reasoning tokens are reported",
                at="usage",
                expected="more than 0",
                actual="0",
            )
    elif told != (exact := sum(len(encode(thought)) for thought in meant.reasoning)):
        counted_too = sum(len(encode(call.arguments)) + _CALL_HEADER for call in meant.calls)
        slack = _AROUND_A_THOUGHT * len(meant.reasoning)
        if max(1, exact - slack) <= told <= exact + slack + counted_too:
            yield variant("reasoning tokens are counted with headers or calls", where="usage/completion_tokens_details")
        else:
            yield Finding(
                message="reasoning tokens are not those of the reasoning",
                at="usage",
                expected=RedactableText("about {}", exact),
                actual=quote(told),
            )


_AROUND_A_THOUGHT = 6  # markers, role and channel of a message
_CALL_HEADER = 12
