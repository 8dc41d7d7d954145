"""Family `robustness`: long texts, long conversations and repeated requests reach the model unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.checks.helpers.counted_pairs import CountedPair, counted_pair, token_difference
from harmony_conformance.checks.helpers.length_refusal import is_refused_for_length
from harmony_conformance.checks.helpers.value_diff import first_difference
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import same_request_pairs
from harmony_conformance.judge.check import MUST, Finding, comparison, mismatch
from harmony_conformance.judge.condition import evidence, series_only, within_limits
from harmony_conformance.prompts.expected_parts import format_ids
from harmony_conformance.redactable_text import RedactableText, shorten
from harmony_ref import decode

MESSAGE_LENGTH_STEPS = ("ten lines", "very many lines")
"""Steps whose one message differs in length."""
CONVERSATION_LENGTH_STEPS = ("two messages", "very many messages")
"""Steps whose conversations differ in length."""


@within_limits
def accepts_long_messages(series: Series) -> bool:
    """very long messages that the endpoint does not refuse for their length"""
    return not is_refused_for_length(series.exchanges.get(MESSAGE_LENGTH_STEPS[1]))


@within_limits
def accepts_long_conversations(series: Series) -> bool:
    """very long conversations that the endpoint does not refuse for their length"""
    return not is_refused_for_length(series.exchanges.get(CONVERSATION_LENGTH_STEPS[1]))


@series_only
@evidence
def has_long_message(series: Series) -> bool:
    """a short and a very long message, both answered and with prompts counted"""
    return counted_pair(series, *MESSAGE_LENGTH_STEPS) is not None


@comparison(MUST, spec="chat#messages", when=(accepts_long_messages, has_long_message))
def long_message_is_whole(series: Series) -> Iterator[Finding]:
    """A very long message is refused, or costs all of its tokens.

    Works on a black box. If a server cuts the middle out, the model answers about a text that it has not seen.
    """
    pair = counted_pair(series, *MESSAGE_LENGTH_STEPS)
    if pair is not None and pair.prompt_growth != pair.expected_growth:
        yield _growth_mismatch("the long message", pair)


@series_only
@evidence
def has_long_conversation(series: Series) -> bool:
    """a short and a very long conversation, both answered and with prompts counted"""
    return counted_pair(series, *CONVERSATION_LENGTH_STEPS) is not None


@comparison(MUST, spec="chat#messages", when=(accepts_long_conversations, has_long_conversation))
def many_messages_are_kept(series: Series) -> Iterator[Finding]:
    """A very long conversation is refused, or costs the tokens of all its messages.

    Works on a black box: each turn costs its texts and the same headers. A sliding window over the conversation loses the first user messages.
    """
    pair = counted_pair(series, *CONVERSATION_LENGTH_STEPS)
    if pair is None:
        return
    turns = (len(pair.longer.messages) - len(pair.shorter.messages)) // 2
    if not pair.is_explained_by_headers or (pair.prompt_growth - pair.expected_growth) % turns:
        yield _growth_mismatch("the long conversation", pair, "and the same for the headers of each turn")


def _growth_mismatch(what: LiteralString, pair: CountedPair, besides: LiteralString = "") -> Finding:
    return Finding(
        message=RedactableText(f"{what} gave the prompt {{}}", token_difference(pair.prompt_growth)),
        location="/usage/prompt_tokens",
        expected=RedactableText(f"{{}} more tokens {besides}".rstrip(), pair.expected_growth),
        actual=token_difference(pair.prompt_growth),
        exchange=pair.longer.id,
    )


def _prompts(series: Series) -> Iterator[tuple[Exchange, tuple[int, ...], tuple[int, ...]]]:
    """Yield the second exchange and the prompt ids of both, for each pair of exchanges with the same request."""
    for first, second in same_request_pairs(series):
        one, other = first.prompt.ids, second.prompt.ids
        if one is not None and other is not None:
            yield second, one, other


def _prompt_without_date(ids: tuple[int, ...]) -> str:
    """Return a prompt without its date: it may change between two requests."""
    return _DATE.sub("", decode(ids))


_DATE = re.compile(r"(?<=Current date: )\d{4}-\d\d-\d\d")


@series_only
@evidence
def has_same_prompt_twice(series: Series) -> bool:
    """requests that were sent twice, streamed or not, and whose prompt tokens are shown"""
    return any(True for _ in _prompts(series))


@comparison(MUST, spec="chat#stream", when=has_same_prompt_twice)
def same_request_same_prompt(series: Series) -> Iterator[Finding]:
    """The same request gives the same prompt: streamed or not, and each time it is sent.

    Streams and unstreamed answers often have separate code: a member of the request that only one of them reads is lost in the other.
    """
    for second, one, other in _prompts(series):
        if one == other or _prompt_without_date(one) == _prompt_without_date(other):
            continue
        place = first_difference("".join(map(chr, one)), "".join(map(chr, other))) or 0
        message = "the same request gave another prompt"
        expected = shorten(format_ids(one[max(0, place - 8) : place + 8]))
        actual = shorten(format_ids(other[max(0, place - 8) : place + 8]))
        yield mismatch(message, f"prompt token {place}", expected, actual, exchange=second.id)
