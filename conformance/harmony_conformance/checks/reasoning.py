"""Family `reasoning`: the chain of thought as the client gets it, and the effort the model was asked for."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance import conditions as on
from harmony_conformance.check import MUST, SHOULD, Finding, check, variant
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import at, text
from harmony_conformance.prompt import shorten


@check(MUST, spec="raw-cot#output", when=(on.is_chat, on.ended_well, on.meaning_is_known, on.meant_reasoning))
def analysis_is_reasoning(x: Exchange) -> Iterator[Finding]:
    """The analysis channel arrives whole, and in order, in the reasoning field.

    A client sends this text back inside a tool loop; what is missing from it the model has forgotten (defects R03, V14). A server may name the field
    reasoning_content or thinking, or hide the reasoning altogether.
    """
    turn, meant = x.turn, x.meant
    if turn is None or meant is None:
        return
    if turn.reasoning is None:
        yield variant("the reasoning is hidden", where="reasoning")
        return
    if turn.reasoning_field != "reasoning":
        yield variant(f"the reasoning field is called {turn.reasoning_field}", where=turn.reasoning_field or "")
    position = 0
    for number, thought in enumerate(meant.reasoning):
        wanted = thought.rstrip("\ufffd").strip()
        found = turn.reasoning.find(wanted, position)
        if found < 0:
            yield Finding(
                message=f"analysis message {number + 1} of {len(meant.reasoning)} did not arrive whole in {turn.reasoning_field}",
                at=turn.reasoning_field or "reasoning",
                expected=shorten(thought),
                actual=shorten(turn.reasoning),
            )
            return
        position = found + len(wanted)


@check(MUST, spec="harmony#final", when=(on.is_chat, on.ended_well, on.meaning_is_known, on.meant_final))
def reasoning_holds_no_answer(x: Exchange) -> Iterator[Finding]:
    """Final text does not end up in the reasoning field.

    Clients hide the reasoning; an answer that is routed there was not given (defects V06, V14, O21).
    """
    turn, meant = x.turn, x.meant
    if turn is None or meant is None or not turn.reasoning:
        return
    thought = "\n".join(meant.reasoning)
    for answer in meant.finals:
        if answer.strip() and answer in turn.reasoning and answer not in thought:
            yield Finding(
                message="the final answer stands in the reasoning field",
                at=turn.reasoning_field or "reasoning",
                excerpt=shorten(turn.reasoning),
            )


@check(MUST, spec="harmony#system", when=(on.is_chat, on.prompt_is_known, on.asks_effort))
def effort_is_rendered(x: Exchange) -> Iterator[Finding]:
    """The effort asked for stands in the system message: `Reasoning: low`, `medium` or `high`.

    A server that ignores the field answers at medium effort whatever was asked and billed (defects V29, T04, O10, M15).
    """
    asked = text(at(x.asked, "reasoning_effort"))
    system = next((message for message in x.read.messages if message.role == "system"), None) if x.read else None
    line = next(
        (line for line in (system.content if system else "").splitlines() if line.startswith("Reasoning:")), None
    )
    if line == f"Reasoning: {asked}":
        return
    if line is None:
        yield Finding(
            message="the system message names no reasoning effort",
            at="system message",
            expected=f"Reasoning: {asked}",
            actual="no such line",
        )
    else:
        yield Finding(
            message=f"effort {asked} was asked for and {line.removeprefix('Reasoning:').strip()} rendered",
            at="system message",
            expected=f"Reasoning: {asked}",
            actual=line,
        )


@check(SHOULD, spec="chat#usage", when=(on.is_chat, on.ended_well, on.has_usage, on.meaning_is_known))
def reasoning_tokens_agree(x: Exchange) -> Iterator[Finding]:
    """Reported reasoning tokens are above zero exactly when there was reasoning, and never more than all tokens.

    Absent counts and counts that include headers are variants (defects V27, S09).
    """
    turn, meant = x.turn, x.meant
    if turn is None or meant is None or turn.usage is None:
        return
    told, spent = turn.usage.reasoning_tokens, turn.usage.completion_tokens
    if told is None:
        yield variant("reasoning tokens are not reported", where="usage/completion_tokens_details")
    elif spent is not None and told > spent:
        yield Finding(
            message="more reasoning tokens than completion tokens are reported",
            at="usage",
            expected=f"at most {spent}",
            actual=str(told),
        )
    elif told == 0 and any(thought.strip() for thought in meant.reasoning):
        yield Finding(
            message="the model reasoned and no reasoning tokens are reported",
            at="usage",
            expected="more than 0",
            actual="0",
        )
