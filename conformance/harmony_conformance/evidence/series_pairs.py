"""Pairs of exchanges in a series with the same request: not streamed and streamed, or repeated."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.evidence.exchange import Exchange, Series


def find_pair(series: Series, first: str, second: str) -> tuple[Exchange, Exchange] | None:
    """Return the exchanges of two steps, or None if one is missing or has no turn."""
    one, other = series.exchanges.get(first), series.exchanges.get(second)
    if one is None or other is None or one.turn is None or other.turn is None:
        return None
    return one, other


STREAM_SUFFIX = "+stream"
"""The ending of the step name of a streamed request. A further ending names another chunking."""


def stream_step_pairs(series: Series) -> Iterator[tuple[str, str]]:
    """Yield the step names of each request that was not streamed and of its streams, one or several per request."""
    for name in series.exchanges:
        whole, streamed, _ = name.partition(STREAM_SUFFIX)
        if streamed and whole in series.exchanges:
            yield whole, name


def same_request_pairs(series: Series) -> Iterator[tuple[Exchange, Exchange]]:
    """Yield pairs of answered exchanges with the same request: not streamed and streamed, `first` and `again`."""
    for first, second in (*((step, step + STREAM_SUFFIX) for step in series.exchanges), ("first", "again")):
        if (exchanges := find_pair(series, first, second)) is not None:
            yield exchanges


def prompt_count(x: Exchange) -> int | None:
    """Return the number of prompt tokens that the server reported, or None."""
    return x.prompt.count
