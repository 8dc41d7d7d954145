"""Pairs of requests that differ in one text: the difference of their prompt token counts is the cost of that text.

This works without prompt token ids, and text that a provider adds to every prompt cancels out. The names of a scenario's steps
make a pair: `plain X` and `marked X`, `tame X` and `odd X`, `short X` and `long X`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import find_pair, prompt_count
from harmony_conformance.json_value import dumps, strings
from harmony_conformance.judge.history_conditions import has_allowed_order
from harmony_conformance.prompts.expected_parts import PartKind
from harmony_conformance.redactable_text import RedactableText
from harmony_ref import encode

_FIRST_WORDS = {"plain": "marked", "tame": "odd", "short": "long"}
_NAMED_PAIRS = (("one instruction", "two instructions"),)
STEP_WITHOUT_TOOLS, STEP_WITH_TOOLS = "without tools", "with tools"
_SHORT, _LONG = ", short", ", long"
_HEADER_AND_SEPARATORS = 12  # maximum number of tokens around an additional message


@dataclass(frozen=True, kw_only=True)
class CountedPair:
    """Two answered requests, the second with a longer text, and the differences of their prompt counts and texts in tokens.

    `quoted_growth` is the difference if function results are quoted as JSON strings.
    `escaped_growth` is the difference if `<` and `>` in the arguments of calls are escaped, as Go's encoder does.
    """

    shorter: Exchange
    longer: Exchange
    prompt_growth: int
    expected_growth: int
    quoted_growth: int
    escaped_growth: int

    @property
    def additional_messages(self) -> int:
        """The number of messages that the longer request has more."""
        return len(self.longer.expected_parts) - len(self.shorter.expected_parts)

    @property
    def is_explained_by_headers(self) -> bool:
        """True if the headers and separators of additional messages explain the offset; their form is up to the server."""
        most = _HEADER_AND_SEPARATORS * self.additional_messages
        return self.additional_messages > 0 and 0 <= self.prompt_growth - self.expected_growth <= most

    @property
    def expected_in_words(self) -> RedactableText:
        """The expected difference of the prompts, with the headers of additional messages, whose number of tokens is up to the server."""
        texts = token_difference(self.expected_growth)
        if self.additional_messages < 1:
            return texts
        whose = "the message's header" if self.additional_messages == 1 else "the messages' headers"
        return RedactableText("{} and those of {}", texts, RedactableText(whose))


def counted_pairs(series: Series) -> Iterator[CountedPair]:
    """Yield the pairs of a series that differ in one text, if both prompts were counted."""
    words = [(step, *step.partition(" ")) for step in series.exchanges]
    by_first_word = [(step, f"{_FIRST_WORDS[word]} {rest}") for step, word, _, rest in words if word in _FIRST_WORDS]
    for first, second in (*_NAMED_PAIRS, *by_first_word):
        counted = counted_pair(series, first, second)
        if counted is not None:
            yield counted


def token_difference(growth: int) -> RedactableText:
    """Return a difference of token counts in words: `3 more tokens`, `3 fewer tokens`."""
    return RedactableText("{} {} tokens", abs(growth), RedactableText("more" if growth >= 0 else "fewer"))


def shorter_step(step: str) -> str:
    """Return the step that a step with a longer text is compared with. Empty: it is compared with none."""
    word, _, rest = step.partition(" ")
    by_first_word = {second: first for first, second in _FIRST_WORDS.items()}
    if word in by_first_word:
        return f"{by_first_word[word]} {rest}".rstrip()
    named = {second: first for first, second in (*_NAMED_PAIRS, (STEP_WITHOUT_TOOLS, STEP_WITH_TOOLS))}
    return named.get(step, step.removesuffix(_LONG) + _SHORT if step.endswith(_LONG) else "")


def counted_pair(series: Series, first: str, second: str) -> CountedPair | None:
    """Return two steps of a series as a pair, None if one was not answered or its prompt was not counted."""
    steps = find_pair(series, first, second)
    if steps is None:
        return None
    less, more = steps
    fewer, grown = prompt_count(less), prompt_count(more)
    if fewer is None or grown is None or not has_allowed_order.holds(less) or not has_allowed_order.holds(more):
        return None
    growth = _text_tokens(more) - _text_tokens(less)
    quoted = growth + _quotes(more) - _quotes(less)
    return CountedPair(
        shorter=less,
        longer=more,
        prompt_growth=grown - fewer,
        expected_growth=growth,
        quoted_growth=quoted,
        escaped_growth=growth + _escapes(more) - _escapes(less),
    )


def _text_tokens(x: Exchange) -> int:
    """Count the tokens of a request's texts: its messages and its declared tools."""
    declared = [text for tool in x.tools for text in strings(tool)]
    return sum(len(encode(text)) for text in (*[part.text for part in x.expected_parts], *declared))


def _escapes(x: Exchange) -> int:
    """Count the tokens that arguments of calls cost more with `<` and `>` escaped."""
    calls = [part.text for part in x.expected_parts if part.kind is PartKind.CALL]
    escaped = [text.replace("<", r"\u003c").replace(">", r"\u003e") for text in calls]
    return sum(len(encode(other)) - len(encode(text)) for text, other in zip(calls, escaped, strict=True))


def _quotes(x: Exchange) -> int:
    """Count the tokens that function results cost more as JSON strings."""
    results = [part.text for part in x.expected_parts if part.kind is PartKind.RESULT]
    return sum(len(encode(dumps(text))) - len(encode(text)) for text in results)
