"""What Prometheus is told. Everything is read from counts that are there anyway, when it asks: nothing is updated in the data path."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from harmony_proxy.judging.counters import ADDED, ANSWER_TTFT, BUCKETS, GAP, TTFT, Gauges, Tally

_MICROSECONDS = 1_000_000
_COUNTERS: Mapping[str, tuple[str, str, tuple[str, ...]]] = MappingProxyType(
    {
        "exchanges": ("harmony_guard_exchanges", "Exchanges that went by, by how they ended.", ("api", "end")),
        "judged": ("harmony_guard_judged", "Exchanges that were judged.", ()),
        "failing": ("harmony_guard_failing", "Exchanges that broke a MUST.", ()),
        "verdicts": ("harmony_guard_verdicts", "What each check said.", ("check", "outcome")),
        "acted": ("harmony_guard_acted", "What was done: repaired, blocked, left.", ("check", "what")),
        "dropped": ("harmony_guard_dropped", "Exchanges not judged because the queue was full.", ()),
        "lost": ("harmony_guard_lost", "Exchanges lost with a judge that ended.", ()),
        "restarts": ("harmony_guard_restarts", "How often the process that judges was begun again.", ()),
        "problems": ("harmony_guard_problems", "Errors of our own; the traffic was not touched by them.", ()),
    }
)
_HISTOGRAMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        TTFT: ("harmony_guard_time_to_first_byte_seconds", "Until the first byte of an answer."),
        ANSWER_TTFT: ("harmony_guard_time_to_first_answer_seconds", "Until the first content, which is no reasoning."),
        GAP: ("harmony_guard_gap_seconds", "Between two arrivals of a stream."),
        ADDED: ("harmony_guard_added_seconds", "Time spent acting on an answer; none is spent observing."),
    }
)


class CounterSource(Protocol):
    """Where the counts are."""

    @property
    def tally(self) -> Tally:
        """The counts so far."""
        ...

    @property
    def queued(self) -> int:
        """How many exchanges wait to be judged."""
        ...


class GuardCollector(Collector):
    """Counts as metrics."""

    def __init__(self, counted: CounterSource, gauges: Gauges) -> None:
        self._counted = counted
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        """All of them, as they are now."""
        counts = self._counted.tally
        for kind, (name, words, labels) in _COUNTERS.items():
            family = CounterMetricFamily(name, words, labels=labels)
            for key, times in sorted(counts.items()):
                if key[0] == kind:
                    family.add_metric(list(key[1:]), times)
            if not labels and (kind,) not in counts:
                family.add_metric([], 0)
            yield family
        for kind, (name, words) in _HISTOGRAMS.items():
            yield _histogram(name, words, counts, kind)
        yield GaugeMetricFamily("harmony_guard_open", "Exchanges that are going on.", value=self._gauges.open)
        yield GaugeMetricFamily("harmony_guard_held", "Answers that are held back.", value=self._gauges.held)
        yield GaugeMetricFamily("harmony_guard_queued", "Exchanges that wait to be judged.", value=self._counted.queued)


def serve_metrics(address: tuple[str, int], counted: CounterSource, gauges: Gauges) -> Callable[[], None]:
    """Serve them on a thread of its own; what it gives ends that.

    Raises:
        OSError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(GuardCollector(counted, gauges))
    server: WSGIServer
    thread: threading.Thread
    server, thread = start_http_server(address[1], addr=address[0], registry=registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


def _histogram(name: str, words: str, counts: Tally, kind: str) -> HistogramMetricFamily:
    total = 0
    buckets: list[tuple[str, float]] = []
    for place, end in enumerate((*map(str, BUCKETS), "+Inf")):
        total += counts[kind, str(place)]
        buckets.append((end, total))
    return HistogramMetricFamily(name, words, buckets=buckets, sum_value=counts[f"{kind}_sum",] / _MICROSECONDS)
