"""Family `multi_turn`: what of the chain of thought goes back into the model, and what must not."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance import conditions as on
from harmony_conformance.check import MUST, Finding, check, comparison, evidence
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.prompt import Keep, Kind, shorten, wanted
from harmony_ref import encode


def _holds(x: Exchange, thought: str) -> bool:
    return any(thought in message.content for message in (x.read.messages if x.read else ()))


@check(MUST, spec="harmony#drop-reasoning", when=(on.is_chat, on.prompt_is_known, on.has_finished_reasoning))
def finished_reasoning_is_dropped(x: Exchange) -> Iterator[Finding]:
    """After a final answer and a new user message, the reasoning before that answer is not in the prompt."""
    for part in wanted(x.asked):
        if part.kind is Kind.REASONING and part.keep is Keep.ABSENT and _holds(x, part.text):
            yield Finding(
                message="reasoning of a finished turn was fed to the model again",
                at=part.where,
                expected="not in the prompt",
                actual=shorten(part.text),
            )


@check(MUST, spec="harmony#keep-reasoning", when=(on.is_chat, on.prompt_is_known, on.has_loop_reasoning))
def loop_reasoning_is_kept(x: Exchange) -> Iterator[Finding]:
    """Inside a tool loop, the reasoning since the last user message is in the prompt, on the analysis channel, before its call.

    Without it the model forgets why it called (defects V17, V41, J10, L15, O14, O19).
    """
    messages = x.read.messages if x.read else ()
    for part in wanted(x.asked):
        if part.kind is not Kind.REASONING or part.keep is not Keep.PRESENT:
            continue
        held = next(
            (message for message in messages if message.role == "assistant" and part.text in message.content), None
        )
        if held is None:
            yield Finding(
                message="reasoning of the open tool loop is not in the prompt",
                at=part.where,
                expected=f"analysis: {shorten(part.text)}",
                actual="not in the prompt",
            )
        elif held.channel != "analysis":
            yield Finding(
                message="reasoning of the open tool loop stands on another channel",
                at=part.where,
                expected="analysis",
                actual=str(held.channel),
            )


@evidence
def has_finished_pair(series: Series) -> bool:
    """pairs of requests that differ in the length of a finished turn's reasoning, with prompts counted"""
    return (
        _difference(series, "finished, short", "finished, long") is not None
        and _difference(series, "open, short", "open, long") is not None
    )


@comparison(MUST, spec="harmony#drop-reasoning", when=has_finished_pair)
def reasoning_costs_what_it_must(series: Series) -> Iterator[Finding]:
    """By prompt_tokens: longer reasoning of a finished turn costs nothing, longer reasoning of an open tool loop costs its tokens.

    Works on a black box. Both have to hold: a server that never reads reasoning passes the first alone (defects V17, V41, J10, P10).
    """
    finished = _difference(series, "finished, short", "finished, long")
    opened = _difference(series, "open, short", "open, long")
    if finished is None or opened is None:
        return
    if finished[0] != 0:
        yield Finding(
            message="longer reasoning of a finished turn makes the prompt longer",
            at="/usage/prompt_tokens",
            expected="0 more tokens",
            actual=f"{finished[0]} more tokens",
            exchange=finished[2],
        )
    if opened[0] != opened[1]:
        yield Finding(
            message="longer reasoning of an open tool loop does not cost its tokens",
            at="/usage/prompt_tokens",
            expected=f"{opened[1]} more tokens",
            actual=f"{opened[0]} more tokens",
            exchange=opened[2],
        )


def _difference(series: Series, short: str, long: str) -> tuple[int, int, str] | None:
    """Tokens the prompt grew by, tokens it should have grown by were the reasoning kept, and the id of the longer exchange."""
    found = on.pair(series, short, long)
    if found is None:
        return None
    one, other = found
    counts = on.prompt_count(one), on.prompt_count(other)
    if counts[0] is None or counts[1] is None:
        return None
    return counts[1] - counts[0], _thought(other) - _thought(one), other.id


def _thought(x: Exchange) -> int:
    return sum(len(encode(part.text)) for part in wanted(x.asked) if part.kind is Kind.REASONING)
