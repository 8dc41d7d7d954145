"""The latency lines of a report as rows of a table, metric by metric, so that loads stand below each other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from harmony_conformance.json_value import JsonObject, integer, items, members, number, text, value_at
from harmony_conformance.runtime.plural import number_of

COLUMNS = ("metric", "load", "n", "median", "min", "max", "p95", "p99")

NAMES = {
    "ttft": "TTFT, first token of any channel",
    "time_to_first_answer": "Time to first answer token",
    "inter_event_gap": "Gap between events",
    "itl": "ITL, gap between tokens",
    "tpot": "TPOT, time per output token",
    "end_to_end": "End to end",
    "output_tokens": "Output tokens",
}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One metric under one load; numbers are None where the sample is too small for them."""

    metric: str
    load: str
    unit: str
    n: int
    median: float
    min: float
    max: float
    p95: float | None
    p99: float | None

    def cells(self) -> tuple[str, ...]:
        """Return the size of the sample and its numbers with their unit; empty where the sample is too small."""
        numbers = (self.median, self.min, self.max, self.p95, self.p99)
        return str(self.n), *("" if value is None else format_value(value, self.unit) for value in numbers)


def figures(latency: Iterable[JsonObject]) -> tuple[Figure, ...]:
    """Every metric that was measured, the same metric of all loads together."""
    lines = tuple(latency)
    names = dict.fromkeys([*NAMES, *(name for load in lines for name in members(value_at(load, "metrics")))])
    found = (_figure(name, load) for name in names for load in lines)
    return tuple(figure for figure in found if figure is not None)


def by_metric(latency: Iterable[JsonObject]) -> dict[str, list[Figure]]:
    """Return the figures of each metric, by the metric's name for readers."""
    found: dict[str, list[Figure]] = {}
    for figure in figures(latency):
        found.setdefault(NAMES.get(figure.metric, figure.metric), []).append(figure)
    return found


def rows(latency: Iterable[JsonObject]) -> Iterator[tuple[str, ...]]:
    """Return the figures as cells, in the order of `COLUMNS`."""
    for metric, of in by_metric(latency).items():
        yield from ((metric, figure.load, *figure.cells()) for figure in of)


def notes(load: JsonObject) -> Iterator[str]:
    """Return what a load consisted of and what was noted about it."""
    yield f"{number_of(integer(value_at(load, 'requests')) or 0, 'request')}, {integer(value_at(load, 'failed'))} failed"
    yield from (
        f"{number_of(integer(count) or 0, 'time')} {reason}"
        for reason, count in members(value_at(load, "failures")).items()
    )
    yield from map(text, items(value_at(load, "notes")))


def format_value(value: float, unit: str) -> str:
    """Return a value with its unit: seconds from 1 s on, milliseconds below, with three significant digits."""
    if unit != "s":
        return f"{value:g}"
    if value >= 1:
        return f"{value:.2f} s"
    thousandths = value * 1000
    digits = next((digits for least, digits in ((100, 0), (10, 1), (1, 2)) if thousandths >= least), 3)
    return f"{thousandths:.{digits}f} ms"


def _figure(name: str, load: JsonObject) -> Figure | None:
    metric = value_at(load, "metrics", name)
    median, least, most = (number(value_at(metric, figure)) for figure in ("median", "min", "max"))
    if median is None or least is None or most is None:
        return None
    return Figure(
        metric=name,
        load=text(value_at(load, "load")),
        unit=text(value_at(metric, "unit")),
        n=integer(value_at(metric, "n")) or 0,
        median=median,
        min=least,
        max=most,
        p95=number(value_at(metric, "p95")),
        p99=number(value_at(metric, "p99")),
    )
