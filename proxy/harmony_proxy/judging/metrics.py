"""Prometheus metrics, and the live page next to them. Metrics are computed from the counters at each scrape: the data path updates nothing for them."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from socketserver import ThreadingMixIn
from threading import Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app  # pyright: ignore[reportUnknownVariableType]
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from harmony_proxy.judging.counters import ADDED_LATENCY, ANSWER_TTFT, BUCKETS, GAP, TTFT, Gauges, Tally
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.live.app import create_live_app
from harmony_proxy.judging.live.state import live_state
from harmony_proxy.judging.model_names import OTHER, ModelNames

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

_MICROSECONDS = 1_000_000
_REQUEST_SECONDS = 10.0  # of silence within a request
_COUNTERS: Mapping[str, tuple[str, str, tuple[str, ...]]] = MappingProxyType(
    {
        "exchanges": ("harmony_guard_exchanges", "Exchanges, by API and end.", ("api", "end")),
        "unrecorded": (
            "harmony_guard_unrecorded",
            "Exchanges not judged because of a limit: size, memory.",
            ("limit",),
        ),
        "judged": ("harmony_guard_judged", "Judged exchanges.", ()),
        "failing": ("harmony_guard_failing", "Exchanges that failed a MUST check.", ()),
        "verdicts": ("harmony_guard_verdicts", "Results of each check.", ("check", "outcome")),
        "acted": ("harmony_guard_acted", "Actions on responses: repaired, blocked, left.", ("check", "what")),
        "answers": (
            "harmony_guard_answers",
            "Answers of known routes, each with one verdict. Further models are `other`.",
            ("route", "model", "kind", "verdict"),
        ),
        "dropped": ("harmony_guard_dropped", "Exchanges not judged because the queue was full.", ()),
        "lost": ("harmony_guard_lost", "Exchanges lost when the judge process ended.", ()),
        "restarts": ("harmony_guard_restarts", "Restarts of the judge process.", ()),
        "problems": ("harmony_guard_problems", "Internal errors of the guard; the traffic was not affected.", ()),
    }
)
_HISTOGRAMS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        TTFT: ("harmony_guard_time_to_first_byte_seconds", "Time to the first byte of a response."),
        ANSWER_TTFT: ("harmony_guard_time_to_first_answer_seconds", "Time to the first content other than reasoning."),
        GAP: ("harmony_guard_gap_seconds", "Time between two chunks of a stream."),
        ADDED_LATENCY: ("harmony_guard_added_seconds", "Time spent on repairs and blocks; zero when observing."),
    }
)


class GuardCollector(Collector):
    """Prometheus collector of the counters and gauges."""

    def __init__(self, queue: JudgeQueue, gauges: Gauges) -> None:
        self._queue = queue
        self._gauges = gauges
        self._models = ModelNames()  # each judge process has separate names

    def collect(self) -> Iterator[Metric]:
        """Yield the current value of every metric."""
        counts = self._bounded(self._queue.tally)
        for kind, (name, description, labels) in _COUNTERS.items():
            family = CounterMetricFamily(name, description, labels=labels)
            for key, times in sorted(counts.items()):
                if key[0] == kind:
                    family.add_metric(list(key[1:]), times)
            if not labels and (kind,) not in counts:
                family.add_metric([], 0)
            yield family
        for kind, (name, description) in _HISTOGRAMS.items():
            yield _histogram(name, description, counts, kind)
        unknown = CounterMetricFamily(
            "harmony_guard_unknown_paths",
            "Requests on paths that are neither guarded nor known to be harmless.",
            labels=("action",),
        )
        unknown.add_metric(["passed"], self._gauges.unknown_passed)
        unknown.add_metric(["refused"], self._gauges.unknown_refused)
        yield unknown
        reloads = CounterMetricFamily("harmony_guard_reloads", "Reloads of the policy, by result.", labels=("result",))
        reloads.add_metric(["done"], self._gauges.reloads_done)
        reloads.add_metric(["failed"], self._gauges.reloads_failed)
        yield reloads
        for name, description, value in (
            ("harmony_guard_open", "Open exchanges.", self._gauges.exchanges_open),
            ("harmony_guard_held", "Responses buffered until they are complete.", self._gauges.responses_buffered),
            ("harmony_guard_memory_bytes", "Memory that open exchanges have taken.", self._queue.memory.used_bytes),
            ("harmony_guard_queued", "Exchanges in the queue of the judge.", self._queue.queue_length),
            ("harmony_guard_judge_up", "1 while the judge process runs, otherwise 0.", int(self._queue.is_judging)),
        ):
            yield GaugeMetricFamily(name, description, value=value)

    def _bounded(self, counts: Tally) -> Tally:
        """Return the counts with the names of models of all judge processes bounded together."""
        bounded: Tally = Counter()
        for key, times in counts.items():
            if key[0] == "answers":
                kind, route, model, *others = key
                bounded[kind, route, self._models.label(model, is_served=model != OTHER), *others] += times
            else:
                bounded[key] += times
        return bounded


def serve_metrics(
    address: tuple[str, int],
    queue: JudgeQueue,
    gauges: Gauges,
    is_upstream_ready: Callable[[], bool] | None = None,
) -> Callable[[], None]:
    """Serve the metrics and the live page in a thread, and return a function that stops it.

    Raises:
        OSError: the address cannot be listened on.
    """
    registry = CollectorRegistry()
    registry.register(GuardCollector(queue, gauges))
    read_state = partial(live_state, queue, gauges, is_upstream_ready)
    metrics = cast("WSGIApplication", make_wsgi_app(registry))
    app = create_live_app(address[0], read_state, metrics)
    kind = _Server6 if ":" in address[0] else _Server
    server = make_server(*address, app, kind, _Handler)
    thread = Thread(target=server.serve_forever, name="harmony-guard-metrics", daemon=True)
    thread.start()

    def stop() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return stop


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing if a client leaves."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
        """Print nothing for a request."""


def _histogram(name: str, description: str, counts: Tally, kind: str) -> HistogramMetricFamily:
    total = 0
    buckets: list[tuple[str, float]] = []
    for index, end in enumerate((*map(str, BUCKETS), "+Inf")):
        total += counts[kind, str(index)]
        buckets.append((end, total))
    return HistogramMetricFamily(name, description, buckets=buckets, sum_value=counts[f"{kind}_sum",] / _MICROSECONDS)
