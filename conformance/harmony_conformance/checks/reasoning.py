"""Family `reasoning`: the chain of thought as the client gets it, and the effort that the client requested."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from harmony_conformance.apis.text_fields import FieldKind
from harmony_conformance.checks.helpers.empty_answers import goes_beyond_limit
from harmony_conformance.checks.helpers.malformed_output import lenient_on_malformed_output
from harmony_conformance.checks.helpers.value_diff import text_difference
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.expected_output import has_texts_in_order, parse_output
from harmony_conformance.evidence.leaks.repetition import find_repeated_sentence, is_repetition_requested
from harmony_conformance.evidence.series_pairs import find_pair
from harmony_conformance.json_value import text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, check, comparison, mismatch, ruled, variant
from harmony_conformance.judge.condition import condition, series_only
from harmony_conformance.judge.rulings import COUNTS_OF_REASONING, EFFORTS_OF_THE_API
from harmony_conformance.redactable_text import Location, RedactableText, quote, shorten
from harmony_ref import encode


@condition
def is_cut_without_script(x: Exchange) -> bool:
    """answers that the token limit cut, in the model's own words"""
    return x.script is None and x.turn is not None and x.turn.finish_reason == "length"


@check(
    MUST,
    spec="raw-cot#output",
    when=(on.is_conversation, on.is_complete_answer, on.expected_output_is_known, on.expects_reasoning),
)
@lenient_on_malformed_output
def analysis_is_reasoning(x: Exchange) -> Iterator[Finding]:
    """The analysis channel arrives whole, and in order, in the reasoning field.

    A client sends this text back inside a tool loop; the model has forgotten any missing part (defects R03, V14). A server may name the field
    reasoning_content or thinking, or hide the reasoning altogether.
    """
    turn, output = x.turn, x.expected_output
    if turn is None or output is None:
        return
    if turn.reasoning is None:
        yield variant("the reasoning is hidden", where="reasoning")
        return
    if turn.reasoning_field != "reasoning":
        name = RedactableText("the reasoning field is called {}", Location(turn.reasoning_field))
        yield variant(name, where=turn.reasoning_field or "")
    position, count = 0, len(output.reasoning)
    for number, thought in enumerate(output.reasoning, 1):
        wanted = thought.rstrip("\ufffd").strip()
        start = turn.reasoning.find(wanted, position)
        if start < 0:
            template = "analysis message {} of {} did not arrive whole in {}"
            message = RedactableText(template, number, count, turn.reasoning_field)
            yield mismatch(message, turn.reasoning_field or "reasoning", shorten(thought), shorten(turn.reasoning))
            return
        position = start + len(wanted)
    accepted = (output.reasoning, (*output.reasoning, *output.preambles))
    if not any(has_texts_in_order(texts, turn.reasoning) for texts in accepted):
        expected, actual = text_difference("\n".join(output.reasoning), turn.reasoning)
        template, clause = "{} contains more than the thoughts of the model", ""
        if goes_beyond_limit(x, "\n".join(output.reasoning), turn.reasoning):
            template, clause = "{} continues beyond the limit", "chat#max-tokens"
        message = RedactableText(template, Location(turn.reasoning_field))
        finding = mismatch(message, turn.reasoning_field or "reasoning", expected, actual)
        yield replace(finding, clause=clause)


@check(
    SHOULD,
    spec="raw-cot#output",
    when=(on.is_conversation, on.was_answered_as_scripted, on.has_words_of_a_model, is_cut_without_script),
)
def thought_does_not_loop(x: Exchange) -> Iterator[Finding]:
    """A thought does not repeat one sentence ten times and more until the token limit.

    The user waits, pays, and gets no answer. This is only a suspicion: damaged weights, a wrong prompt or the model itself may be the cause. If the request
    contains the sentence, or asks for a repetition, nothing is reported.
    """
    for answer in x.answers:
        again = find_repeated_sentence(answer.longest_text(FieldKind.REASONING))
        if again is not None and not is_repetition_requested(x, again):
            yield mismatch(
                "the reasoning repeats the same sentence until the limit",
                "reasoning",
                "the sentence once",
                shorten(again),
            )


@check(
    MUST,
    spec="harmony#final",
    when=(on.is_conversation, on.is_complete_answer, on.expected_output_is_known, on.expects_final),
)
@lenient_on_malformed_output
def reasoning_holds_no_answer(x: Exchange) -> Iterator[Finding]:
    """Final text does not end up in the reasoning field.

    Clients hide the reasoning: the user never sees an answer in that field (defects V06, V14, O21).
    """
    turn, output = x.turn, x.expected_output
    if turn is None or output is None or not turn.reasoning:
        return
    thought = "\n".join(output.reasoning)
    for answer in output.finals:
        if answer.strip() and answer in turn.reasoning and answer not in thought:
            yield Finding(
                message="the final answer is in the reasoning field",
                location=turn.reasoning_field or "reasoning",
                expected=shorten(thought) or "no reasoning",
                actual=shorten(turn.reasoning),
                excerpt=shorten(turn.reasoning),
            )


@check(MUST, spec="harmony#system", when=(on.is_conversation, on.prompt_is_known, on.asks_effort))
def effort_is_rendered(x: Exchange) -> Iterator[Finding]:
    """The requested effort is in the system message: `Reasoning: low`, `medium` or `high`.

    A server that ignores the field answers at medium effort, whatever was requested and billed (defects V29, T04, O10, M15).
    """
    effort = text(value_at(x.chat_request, "reasoning_effort"))
    line, expected = _effort_line(x), RedactableText("Reasoning: {}", effort)
    if line == expected:
        return
    if line is None:
        yield mismatch("the system message has no reasoning effort", "system message", expected, "no such line")
    else:
        level = line.removeprefix("Reasoning:").strip()
        message = RedactableText("effort {} was requested and {} rendered", effort, level)
        yield mismatch(message, "system message", expected, quote(line))


@check(MUST, spec="harmony#system", when=(on.is_conversation, on.asks_unknown_effort, on.is_refused_or_shows_prompt))
def unknown_effort_is_not_swallowed(x: Exchange) -> Iterator[Finding]:
    """An effort that Harmony does not define is refused, or mapped to the nearest level; it is not rendered unchanged, nor silently medium.

    A client that requested `extreme` believes that it has effect; a word that the model never saw is worse (defects V28, O22).
    """
    if x.parsed_prompt is None:
        return
    effort = text(value_at(x.chat_request, "reasoning_effort"))
    line, no_line = _effort_line(x) or "", RedactableText("no line at all")
    level = line.removeprefix("Reasoning:").strip()
    is_medium = effort in _NEAR_MEDIUM and level == "medium"
    if is_medium or level in _NEAREST.get(effort, ("low", "high")) or (not line and effort == "none"):
        mapped = RedactableText("effort {} was mapped to {}", effort, quote(level) or no_line)
        yield variant(mapped, where="system message")
    else:
        message = RedactableText("effort {!r} was accepted and rendered as {}", effort, quote(line) or no_line)
        expected = "a 4xx status, or the nearest of low, medium, high"
        finding = mismatch(message, "system message", expected, quote(line) or "no line")
        yield ruled(finding, EFFORTS_OF_THE_API) if effort in _EFFORTS_OF_THE_API else finding


def _effort_line(x: Exchange) -> str | None:
    """Return the line of the system message with the effort."""
    lines = x.system_message.content.splitlines() if x.system_message is not None else []
    return next((line for line in lines if line.startswith("Reasoning:")), None)


_NEAREST = {"minimal": ("low",), "none": ("low",), "xhigh": ("high",), "max": ("high",), "ultra": ("high",)}
_EFFORTS_OF_THE_API = ("none", "minimal", "xhigh")
_NEAR_MEDIUM = ("auto", "default", "")  # an empty value is the default


@series_only
@condition
def has_cut_reasoning(series: Series) -> bool:
    """an answer with reasoning, and the same cut by the token limit"""
    exchanges = find_pair(series, "uncut", "cut")
    if exchanges is None or exchanges[0].turn is None or exchanges[1].turn is None:
        return False
    return bool(exchanges[0].turn.reasoning) and exchanges[1].turn.finish_reason == "length"


@comparison(MUST, spec="raw-cot#output", when=has_cut_reasoning)
def cut_reasoning_is_returned(series: Series) -> Iterator[Finding]:
    """A server that returns reasoning also returns the part that was generated before the limit cut it.

    Otherwise the client pays for an empty answer and cannot continue from it (defect V39).
    """
    exchanges = find_pair(series, "uncut", "cut")
    cut = exchanges[1] if exchanges is not None else None
    if cut is not None and cut.turn is not None and not cut.turn.reasoning and not cut.turn.content:
        message = "the limit fell into the reasoning and none of it was returned"
        yield mismatch(message, "reasoning", "the reasoning so far", "neither reasoning nor content", exchange=cut.id)


@check(SHOULD, spec="chat#usage", when=(on.is_conversation, on.is_complete_answer, on.has_usage, on.wants_one_choice))
def reasoning_tokens_agree(x: Exchange) -> Iterator[Finding]:
    """The reported number of reasoning tokens is that of the analysis messages: zero without any, and more than zero with one.

    Absent counts, and counts that include headers or calls, are variants (defects V27, S09). `usage.adds_up` compares it with all tokens.
    """
    turn, output = x.turn, x.expected_output
    if turn is None or turn.usage is None:
        return
    reported = turn.usage.reasoning_tokens
    if reported is None:
        if x.api_adapter.counts_reasoning:
            yield variant("reasoning tokens are not reported", where="usage/completion_tokens_details")
    elif output is None:
        if reported == 0 and (turn.reasoning or "").strip():
            message = "reasoning is returned and no reasoning tokens are reported"
            yield ruled(mismatch(message, "usage", "more than 0", "0"), COUNTS_OF_REASONING)
    elif reported != (exact := sum(len(encode(thought)) for thought in output.reasoning)):
        counted_too = sum(len(encode(call.arguments)) + _CALL_HEADER for call in output.calls)
        emitted = parse_output(x.output.ids) if x.output.ids is not None else None  # rows do not list empty thoughts
        slack = _AROUND_A_THOUGHT * len((emitted or output).reasoning)
        if max(1, exact - slack) <= reported <= exact + slack + counted_too:
            yield variant("reasoning tokens are counted with headers or calls", where="usage/completion_tokens_details")
        else:
            message = "reasoning tokens are not those of the reasoning"
            finding = mismatch(message, "usage", RedactableText("about {}", exact), quote(reported))
            yield ruled(finding, COUNTS_OF_REASONING)


_AROUND_A_THOUGHT = 6  # markers, role and channel of a message
_CALL_HEADER = 12
