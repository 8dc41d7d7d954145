"""The same request sent more than once within a series: whole and streamed, or again."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.evidence.exchange import Exchange, Series


def pair(series: Series, first: str, second: str) -> tuple[Exchange, Exchange] | None:
    """Two answered exchanges of a series by their step, None where one of them is missing."""
    one, other = series.exchanges.get(first), series.exchanges.get(second)
    return (
        (one, other)
        if one is not None and other is not None and one.turn is not None and other.turn is not None
        else None
    )


STREAMED = "+stream"


def whole_and_streamed(series: Series) -> Iterator[tuple[str, str]]:
    """The names of a step that was sent as a whole, and of each of its streams: as the tokens came, and with several in an event."""
    for name in series.exchanges:
        whole, streamed, _ = name.partition(STREAMED)
        if streamed and whole in series.exchanges:
            yield whole, name


def same_requests(series: Series) -> Iterator[tuple[Exchange, Exchange]]:
    """Pairs of answered exchanges with the same request: a whole answer and its stream, the first and its repetition."""
    names = [(step, step + STREAMED) for step in series.exchanges]
    for first, second in (*names, ("first", "again")):
        found = pair(series, first, second)
        if found is not None:
            yield found


def prompt_count(x: Exchange) -> int | None:
    """The number of prompt tokens the server reported."""
    return x.prompt.count
