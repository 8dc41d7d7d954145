"""What becomes of a server when a client closes a stream before its end."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.helpers.before_after import aftermaths, differences
from harmony_conformance.engines.load_metric import requests_running
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, comparison, evidence, series_only
from harmony_conformance.redactable_text import RedactableText, quote


@series_only
@evidence
def has_plain_after_leaving(series: Series) -> bool:
    """plain requests before and after a stream that the client left"""
    return any(True for _ in aftermaths(series, on.client_left))


@comparison(MUST, spec="http#close", when=has_plain_after_leaving)
def server_survives_a_client_that_leaves(series: Series) -> Iterator[Finding]:
    """After a client closed a stream before its end, a plain request is answered as it was before.

    Every user who presses stop does this. A server that dies or hangs of it is lost to all others.
    """
    for one in aftermaths(series, on.client_left):
        yield from differences(one, RedactableText("a client left its stream"))


@evidence
def client_has_left(series: Series) -> bool:
    """series with a stream that the client left"""
    return any(map(on.client_left, series.exchanges.values()))


@evidence
def tells_its_load(series: Series) -> bool:
    """servers that tell how many requests they are working on: none before the stream that the client left, and the number after it"""
    before, after = _load(series)
    return before == 0 and after is not None


@comparison(SHOULD, spec="http#close", when=(client_has_left, tells_its_load))
def generation_stops_when_the_client_leaves(series: Series) -> Iterator[Finding]:
    """A few seconds after a client closed its stream the server works on no request any more.

    What nobody reads is paid for all the same, and takes the place of a request that somebody waits for.
    """
    _, after = _load(series)
    if after:
        yield Finding(
            message="the server goes on generating for a client that has left",
            at="metrics",
            expected="0 requests running",
            actual=quote(f"{after:g}"),
            exchange=next((x.id for x in series.exchanges.values() if on.client_left(x)), ""),
        )


def _load(series: Series) -> tuple[float | None, float | None]:
    """How many requests were running before the client left, and the last number told after it."""
    before: float | None = None
    after: float | None = None
    left = False
    for x in series.exchanges.values():
        left = left or on.client_left(x)
        if (running := requests_running(x)) is not None:
            before, after = (before, running) if left else (running, None)
    return before, after
