"""The requests of a series whose prompts are counted: their counts are compared with each other."""

from __future__ import annotations

from collections.abc import Sequence

from harmony_conformance.evidence.exchange import Series
from harmony_conformance.evidence.series_pairs import find_pair, prompt_count
from harmony_conformance.judge.condition import evidence, series_only
from harmony_conformance.judge.history_conditions import has_allowed_order
from harmony_conformance.prompts.token_accounting import RequestSet

BASE_STEP = "plainest"
"""The step that the others are compared with. It is sent again at the end and has to cost the same."""
REPEATED_BASE_STEP = "plainest, again"
_FEWEST = 4


@series_only
@evidence
def has_comparable_counts(series: Series) -> bool:
    """series of requests that compare prompt_tokens, where the repeated request has the same count"""
    counts = prompt_counts(series)
    again = find_pair(series, BASE_STEP, REPEATED_BASE_STEP)
    if again is None or prompt_count(again[0]) != prompt_count(again[1]):
        return False
    return BASE_STEP in counts and len(counts) > _FEWEST


def counted_requests(series: Series) -> tuple[RequestSet, Sequence[int]]:
    """Return the requests of a series that have a prompt count, and these counts."""
    counts = prompt_counts(series)
    bodies = tuple((name, series.exchanges[name].chat_request_body) for name in counts)
    return RequestSet(bodies=bodies, base_name=BASE_STEP), tuple(counts.values())


def prompt_counts(series: Series) -> dict[str, int]:
    """Return the prompt count of each step, without the repetition."""
    answered = ((step, x) for step, x in series.exchanges.items() if x.turn is not None and has_allowed_order.holds(x))
    counts = ((step, prompt_count(x)) for step, x in answered if step != REPEATED_BASE_STEP)
    return {step: count for step, count in counts if count}
