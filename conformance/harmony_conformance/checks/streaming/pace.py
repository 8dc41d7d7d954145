"""Arrival times of the deltas of a stream."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.streaming.views import has_output
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.json_value import items, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, Finding, comparison
from harmony_conformance.judge.condition import evidence, series_only
from harmony_conformance.redactable_text import RedactableText

_MIN_EVENTS = 20
_MIN_STREAMS = 4
_SLOW = 0.5  # seconds
PACED = "paced"


@series_only
@evidence
def has_slow_streams(series: Series) -> bool:
    """four streams of at least 20 deltas and half a second each, with few concurrent requests"""
    all_times = _delta_times_by_stream(series)
    return sum(len(times) >= _MIN_EVENTS and times[-1] > _SLOW for times in all_times) >= _MIN_STREAMS


@comparison(MUST, spec="chat#stream", when=has_slow_streams)
def deltas_come_as_generated(series: Series) -> Iterator[Finding]:
    """Deltas arrive while they are generated, not all together when the answer is complete.

    A buffering proxy or server makes a stream as slow as a whole answer. The check fails only if all streams are buffered,
    since a busy machine may delay one.
    """
    streams = _delta_times_by_stream(series)
    if all(times[-1] - times[0] < times[-1] / 20 for times in streams if times):
        yield Finding(
            message=RedactableText("in each of {} streams all deltas arrived together at the end", len(streams)),
            location="stream",
            expected="deltas spread over the generation time",
            actual="a spread of less than a twentieth of it",
            exchange=next(x.id for step, x in series.exchanges.items() if step.startswith(PACED)),
        )


def _delta_times_by_stream(series: Series) -> list[list[float]]:
    paced = (x for step, x in series.exchanges.items() if step.startswith(PACED) and on.is_complete_answer.holds(x))
    return [_delta_times(x) for x in paced if on.has_full_api_stream.holds(x)]


def _delta_times(x: Exchange) -> list[float]:
    events = x.stream.events if x.stream is not None else ()
    return [
        event.arrival_time
        for event in events
        if any(has_output(value_at(choice, "delta")) for choice in items(value_at(event.value, "choices")))
    ]
