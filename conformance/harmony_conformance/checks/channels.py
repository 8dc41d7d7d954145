"""Family `channels`: what was written for the user is shown to the user, and nothing else is."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance import conditions as on
from harmony_conformance.check import MUST, SHOULD, Finding, check, condition, evidence, variant
from harmony_conformance.difference import text_difference
from harmony_conformance.exchange import Exchange
from harmony_conformance.leak import (
    GLUED,
    GLUED_IN_REASONING,
    LEADING_WORD,
    MARKER,
    STRUCTURE,
    fields,
    surplus,
    without_code,
)
from harmony_conformance.meaning import Meaning, told_in_order, written_tokens
from harmony_conformance.prompt import shorten
from harmony_conformance.turn import Usage
from harmony_ref import encode

_HEADER_TOKENS = 10  # what the headers and ends of an analysis and a final message cost beside their text


@check(MUST, spec="harmony#special-tokens", when=on.was_answered)
def no_marker_leak(x: Exchange) -> Iterator[Finding]:
    """No Harmony marker reaches a client: not in content, reasoning, tool names or arguments.

    Seen as tool names such as `f<|channel|>commentary`, raw headers in the content after a cut, and markup inside the reasoning
    (defects V04, V07, O01, R01, M03, P12). Where the ids are unknown and the request is about Harmony, or asks for the raw form, it is a variant.
    """
    turn = x.turn
    if turn is None:
        return
    if x.output.ids is not None and not on.asks_for_raw_text.holds(x):
        for field, marker in surplus(turn, x.output.ids):
            yield Finding(
                message=f"{marker} stands in {field.where} although the model wrote it as a special token",
                at=field.where,
                excerpt=_near(field.text, marker),
            )
        return
    for field in fields(turn):
        found = STRUCTURE.search(without_code(field.text))
        if found is None:
            continue
        if on.asks_for_raw_text.holds(x) or on.is_about_harmony.holds(x):
            yield variant(
                f"{field.where} holds Harmony markup, which the request is about or asks for",
                where=field.where,
                actual=_near(field.text, found.group()),
            )
        else:
            yield Finding(
                message=f"{field.where} holds Harmony markup", at=field.where, excerpt=_near(field.text, found.group())
            )


@check(MUST, spec="harmony#analysis", when=on.was_answered)
def no_channel_words(x: Exchange) -> Iterator[Finding]:
    """No channel word without its marker reaches a client: `analysisWe need…assistantfinalHello`.

    A server that decodes the completion as text and skips special tokens shows the chain of thought to the user, glued to the answer
    (defects T01, M08, M09, M15, P09).
    """
    turn = x.turn
    if turn is None or (x.meant is not None and _is_shown(x.meant, turn.content or "")):
        return
    quoted = x.request.body.decode("utf-8", "replace")
    for field, pattern in ((field, _GLUED_IN.get(field.where, GLUED_IN_REASONING)) for field in fields(turn)):
        found = pattern.search(without_code(field.text))
        if found is None or found.group() in quoted:
            continue
        if on.asks_for_raw_text.holds(x) or on.is_about_harmony.holds(x):
            yield variant("channel words stand in the text, which the request is about or asks for", where=field.where)
        else:
            yield Finding(
                message=f"channel words stand in {field.where}, glued to the text",
                at=field.where,
                excerpt=_near(field.text, found.group()[-_WORD:]),
            )


_GLUED_IN = {"content": GLUED}
_WORD = 20  # the end of what was found is the word itself


@check(SHOULD, spec="harmony#analysis", when=(on.was_answered, on.output_is_unknown, on.speaks_of_something_else))
def no_suspected_leak(x: Exchange) -> Iterator[Finding]:
    """No lone marker and no lone leading channel word stands in what a client shows.

    One marker, or one word, proves nothing: a model may well write about Harmony. It is worth a look.
    """
    turn = x.turn
    if turn is None:
        return
    for field in fields(turn):
        lone = MARKER.search(field.text) if STRUCTURE.search(field.text) is None else None
        word = (
            LEADING_WORD.search(field.text) if field.where == "content" and GLUED.search(field.text) is None else None
        )
        for found in filter(None, (lone, word)):
            yield Finding(
                message=f"{found.group()!r} in {field.where} may be a leak",
                at=field.where,
                excerpt=_near(field.text, found.group()),
            )


@condition
def shows_only_messages(x: Exchange) -> bool:
    """completions whose calls, if any, have a tool to go to"""
    return x.meant is not None and (not x.meant.calls or on.offered_tools.holds(x))


@check(MUST, spec="harmony#final", when=(on.is_chat, on.ended_well, on.meaning_is_known, shows_only_messages))
def content_is_the_answer(x: Exchange) -> Iterator[Finding]:
    """The content is what the model wrote for the user: its final messages, and preambles before a call; nothing is added or missing.

    Analysis text in the content is a leak of private reasoning; a missing final is an answer the user never saw (defects V06, R03, V14, R01).
    """
    turn, meant = x.turn, x.meant
    if turn is None or meant is None:
        return
    content = turn.content or ""
    if _is_shown(meant, content):
        return
    if (
        meant.preambles
        and told_in_order(meant.finals, content)
        and all(text in (turn.reasoning or "") for text in meant.preambles)
    ):
        yield variant("the preamble is shown as reasoning, not as content", where="content")
        return
    leaked = next((text for text in meant.reasoning if text.strip() and text in content), None)
    if leaked is not None:
        yield Finding(
            message="the content holds text of the analysis channel",
            at="content",
            excerpt=shorten(content),
            expected=shorten("".join(meant.shown)),
        )
        return
    expected, actual = text_difference("".join(meant.shown), content)
    problem = (
        "the content is empty although the model wrote an answer"
        if not content
        else "the content differs from what the model wrote for the user"
    )
    yield Finding(message=problem, at="content", expected=expected, actual=actual)


@check(MUST, spec="harmony#preambles", when=(on.is_chat, on.ended_well, on.meaning_is_known, on.meant_preamble))
def preamble_is_shown(x: Exchange) -> Iterator[Finding]:
    """A preamble (commentary without recipient) reaches the client.

    Engines that keep only the first analysis and the first final, or clear the content when a call follows, drop it (defects R03, L04).
    """
    turn, meant = x.turn, x.meant
    if turn is None or meant is None:
        return
    for text in meant.preambles:
        if _trimmed(text) in (turn.content or ""):
            continue
        if _trimmed(text) in (turn.reasoning or ""):
            yield variant("the preamble is shown as reasoning", where="reasoning")
        else:
            yield Finding(
                message="the preamble is lost",
                at="content",
                expected=shorten(text),
                actual=shorten(turn.content or "nothing"),
            )


@evidence
def tells_what_was_spent(x: Exchange) -> bool:
    """answers that report usage, or whose emitted tokens are known"""
    return on.has_usage.holds(x) or on.output_is_known.holds(x)


@check(MUST, spec="harmony#final", when=(on.is_chat, on.ended_well, tells_what_was_spent, on.wants_one_choice))
def nothing_is_lost(x: Exchange) -> Iterator[Finding]:
    """An answer that stopped by itself and spent tokens beyond its reasoning gives the client content or a call.

    `content: null`, no calls, `finish_reason: stop` and a bill: the parser ended in a state it does not flush (defects V06, V10, O21, M02, S01).
    """
    turn = x.turn
    if turn is None or turn.finish_reason == "length" or turn.says_something:
        return
    usage = turn.usage or Usage()
    spent = len(x.output.ids) if usage.completion_tokens is None and x.output.ids else usage.completion_tokens or 0
    if x.meant is not None and not "".join(x.meant.shown).strip() and not x.meant.calls:
        return
    reasoned = usage.reasoning_tokens or len(encode(turn.reasoning or ""))
    unaccounted = spent - reasoned - _HEADER_TOKENS
    if x.output.ids is not None:
        written = written_tokens(x.output.ids)
        if written.called and not written.shown and not on.offered_tools.holds(x):
            yield variant(
                "a call that the request does not allow was dropped, and nothing is shown instead", where="content"
            )
            return
        unaccounted = written.shown + written.called
    if unaccounted > 0:
        yield Finding(
            message=f"{spent} tokens were spent, about {reasoned} of them on reasoning, and the client got neither content nor a call",
            at="content",
            expected="content or tool_calls",
            actual=f"finish_reason {turn.finish_reason}, no content, no tool_calls",
        )


def _near(text: str, part: str, around: int = 40) -> str:
    index = text.find(part)
    start = max(0, index - around)
    return (
        ("…" if start else "")
        + text[start : index + len(part) + around]
        + ("…" if index + len(part) + around < len(text) else "")
    )


def _is_shown(meant: Meaning, content: str) -> bool:
    return told_in_order(meant.shown, content)


def _trimmed(text: str) -> str:
    return text.rstrip("\ufffd")
