"""Server behaviour after a client closes a stream before its end."""

from __future__ import annotations

from collections.abc import Iterator

from harmony_conformance.checks.helpers.before_after import before_and_after, behaviour_changes
from harmony_conformance.engines.load_metric import requests_running
from harmony_conformance.evidence.exchange import Series
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.check import MUST, SHOULD, Finding, comparison
from harmony_conformance.judge.condition import evidence, series_only
from harmony_conformance.redactable_text import RedactableText, quote


@series_only
@evidence
def has_plain_after_leaving(series: Series) -> bool:
    """plain requests before and after a stream that the client left"""
    return any(True for _ in before_and_after(series, on.client_left))


@comparison(MUST, spec="http#close", when=has_plain_after_leaving)
def server_survives_a_client_that_leaves(series: Series) -> Iterator[Finding]:
    """After a client closes a stream before its end, a plain request is answered as before.

    Every user who presses stop closes a stream. A server that crashes or hangs after it fails for all other users.
    """
    for one in before_and_after(series, on.client_left):
        yield from behaviour_changes(one, RedactableText("a client left its stream"))


@evidence
def client_has_left(series: Series) -> bool:
    """series with a stream that the client left"""
    return any(map(on.client_left, series.exchanges.values()))


@evidence
def reports_load(series: Series) -> bool:
    """servers that report their running requests: zero before the stream that the client left, and a number after it"""
    before, after = _load(series)
    return before == 0 and after is not None


@comparison(SHOULD, spec="http#close", when=(client_has_left, reports_load))
def generation_stops_when_the_client_leaves(series: Series) -> Iterator[Finding]:
    """A few seconds after a client closes its stream, the server has no running request.

    Output without a reader still costs money, and takes capacity from waiting requests.
    """
    _, after = _load(series)
    if after:
        yield Finding(
            message="the server continues to generate for a client that has disconnected",
            location="metrics",
            expected="0 requests running",
            actual=quote(f"{after:g}"),
            exchange=next((x.id for x in series.exchanges.values() if on.client_left(x)), ""),
        )


def _load(series: Series) -> tuple[float | None, float | None]:
    """Return the numbers of running requests last reported before and after the client left."""
    before: float | None = None
    after: float | None = None
    has_left = False
    for x in series.exchanges.values():
        has_left = has_left or on.client_left(x)
        if (running := requests_running(x)) is not None:
            before, after = (before, running) if has_left else (running, None)
    return before, after
