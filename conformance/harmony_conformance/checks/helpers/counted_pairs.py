"""Pairs of requests that differ in one text, so that the difference of their prompt counts is what that text costs: a black box opened by arithmetic.

A scenario names them: `plain X` and `marked X`, `tame X` and `odd X`, `short X` and `long X`. Whatever a provider adds to every prompt cancels out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.series_pairs import pair, prompt_count
from harmony_conformance.json_value import strings
from harmony_ref import encode

_FIRST_WORDS = {"plain": "marked", "tame": "odd", "short": "long"}
_NAMED = (("one instruction", "two instructions"),)
_HEADER_AND_SEPARATORS = 12  # tokens around a message more, at most


@dataclass(frozen=True, kw_only=True)
class CountedPair:
    """Two answered requests with their prompts counted. `grown` is by how many tokens the second prompt is longer, `expected` by how many it has to be."""

    less: Exchange
    more: Exchange
    grown: int
    expected: int

    @property
    def is_explained_by_headers(self) -> bool:
        """Whether a message more explains a small offset: its header and separators are the server's form."""
        messages = len(self.more.expected_parts) - len(self.less.expected_parts)
        return messages > 0 and 0 <= self.grown - self.expected <= _HEADER_AND_SEPARATORS * messages


def counted_pairs(series: Series) -> Iterator[CountedPair]:
    """The pairs of a series that differ in one text, as far as both prompts were counted."""
    for first, second in (*_NAMED, *_pairs_by_name(series)):
        pair = counted_pair(series, first, second)
        if pair is not None:
            yield pair


def counted_pair(series: Series, first: str, second: str) -> CountedPair | None:
    """Two steps of a series as a pair, None where one was not answered or its prompt not counted."""
    found = pair(series, first, second)
    if found is None:
        return None
    counts = tuple(map(prompt_count, found))
    if counts[0] is None or counts[1] is None:
        return None
    less, more = found
    return CountedPair(less=less, more=more, grown=counts[1] - counts[0], expected=_tokens(more) - _tokens(less))


def _pairs_by_name(series: Series) -> Iterator[tuple[str, str]]:
    for step in series.exchanges:
        word, _, rest = step.partition(" ")
        if word in _FIRST_WORDS:
            yield step, f"{_FIRST_WORDS[word]} {rest}"


def _tokens(x: Exchange) -> int:
    """Tokens of the texts of a request: of its messages, and of the tools it offers."""
    said = [part.text for part in x.expected_parts]
    told = [word for tool in x.tools for word in strings(tool)]
    return sum(len(encode(text)) for text in (*said, *told))
