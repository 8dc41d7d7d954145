"""Latency as benchmarks of pytest-benchmark: one item per metric and load, named `latency.ttft[8 at a time]`.

The probe measures; pytest-benchmark only gets the times. Its options then work as in any other suite: `--benchmark-autosave`, `--benchmark-compare`,
`--benchmark-compare-fail=median:10%`, `--benchmark-json`, `--benchmark-only`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Protocol

import pytest

from harmony_conformance.pytest_plugin.items import MODULE
from harmony_conformance.runner.latency.latency_probe import TIMES, MeasuredLoad
from harmony_conformance.runtime.plural import number_of

PLUGIN = "benchmark"
"""Name of pytest-benchmark among the plugins of a session."""

LatencyCallback = Callable[[str], MeasuredLoad]
"""Returns the measurement of a load, by its name."""


class _BenchmarkSession(Protocol):
    """The session of pytest-benchmark, with what its fixture `benchmark` uses."""

    disabled: bool
    options: Mapping[str, object]
    benchmarks: list[object]
    logger: object


class _Benchmark(Protocol):
    """The fixture `benchmark` of pytest-benchmark."""

    extra_info: dict[str, object]

    def pedantic(self, target: Callable[[], object], *, rounds: int) -> object: ...


class _Replay:
    """A timer that returns measured times: `target()` is called at the start and at the end of each round."""

    def __init__(self, seconds: tuple[float, ...]) -> None:
        self._readings = (reading for value in seconds for reading in (0.0, value))

    def target(self) -> float:
        """Return the next reading of the clock."""
        return next(self._readings)


class LatencyItem(pytest.Item):
    """A metric of a load, as a benchmark. A failed request fails it: the times of the others do not stand for the load."""

    fixturenames: tuple[str, ...] = (PLUGIN,)  # by which pytest-benchmark knows its benchmarks
    metric: str
    load: str
    measure: LatencyCallback
    measured: MeasuredLoad
    funcargs: dict[str, _Benchmark]

    @classmethod
    def create(cls, parent: pytest.Collector, metric: str, load: str, measure: LatencyCallback) -> LatencyItem:
        """Return the item of a metric and a load."""
        item: LatencyItem = cls.from_parent(parent, name=f"latency.{metric}[{load}]")  # pyright: ignore[reportUnknownMemberType]
        item.metric, item.load, item.measure, item.funcargs = metric, load, measure, {}
        return item

    def setup(self) -> None:
        """Read the measurement, and make the benchmark."""
        session = _session(self.config)
        if session.disabled:
            pytest.skip("latency is not measured: pytest-benchmark is disabled")
        self.measured = self.measure(self.load)
        replay = _Replay(tuple(self.measured.values.get(self.metric, ())))
        create: Callable[..., _Benchmark] = import_module("pytest_benchmark.fixture").BenchmarkFixture
        own: dict[str, object] = {"timer": replay, "group": self.metric, "warmup": False}
        self.funcargs[PLUGIN] = create(
            self,
            add_stats=session.benchmarks.append,
            logger=session.logger,
            warner=self.warn,
            disabled=False,
            **{**session.options, **own},
        )

    def runtest(self) -> None:
        """Give each time to pytest-benchmark as one round."""
        measured = self.measured
        if failed := sum(measured.failures.values()):
            reasons = ", ".join(f"{reason}: {count}" for reason, count in sorted(measured.failures.items()))
            pytest.fail(
                f"{failed} of {number_of(measured.requests, 'request')} had no complete answer ({reasons})",
                pytrace=False,
            )
        values = measured.values.get(self.metric, ())
        if not values:
            pytest.skip(f"no value of {self.metric} is known")
        benchmark = self.funcargs[PLUGIN]
        benchmark.extra_info.update(load=self.load, requests=measured.requests)
        benchmark.pedantic(lambda: None, rounds=len(values))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return a place with a line, which pytest needs for an item that a marker skips."""
        return self.path, 0, self.location[2]

    @cached_property
    def location(self) -> tuple[str, int | None, str]:
        """Name of the module, and the headline of a failure."""
        return MODULE, None, f"latency: {self.metric}, {self.load}"


def latency_items(parent: pytest.Collector, loads: tuple[str, ...], measure: LatencyCallback) -> Iterator[LatencyItem]:
    """Yield an item per metric and load."""
    for metric in TIMES:
        for load in loads:
            yield LatencyItem.create(parent, metric, load, measure)


def measures(config: pytest.Config) -> bool:
    """Return False if pytest-benchmark is disabled, as under pytest-xdist."""
    return not _session(config).disabled


def _session(config: pytest.Config) -> _BenchmarkSession:
    session: _BenchmarkSession = getattr(config, "_benchmarksession")  # noqa: B009 - an attribute that pytest-benchmark adds
    return session
