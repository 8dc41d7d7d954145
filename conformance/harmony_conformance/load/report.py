"""Figures of a load as a table for a terminal and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import chain

from rich.table import Table

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.load.load import LoadedRequest, OfferedLoad, timings
from harmony_conformance.load.objectives import METRICS, Judged, Objective, blocks_of, good_requests, judge_objectives
from harmony_conformance.runner.latency.latency_probe import UnmeasuredResponse
from harmony_conformance.runner.latency.statistics import ENOUGH_FOR_P95, ENOUGH_FOR_P99, grouped_interval, percentile

_PERCENTS = (50, 95, 99)
_ENOUGH = {50: 1, 95: ENOUGH_FOR_P95, 99: ENOUGH_FOR_P99}
_MILLI = 1000


def load_json(load: OfferedLoad, requests: Sequence[LoadedRequest], objectives: Sequence[Objective]) -> JsonObject:
    """Return the figures of a load."""
    failures = Counter(one.timing.reason for one in requests if isinstance(one.timing, UnmeasuredResponse))
    span = max((one.done for one in requests), default=0.0)
    tokens = [timing.tokens for timing in timings(requests) if timing.tokens is not None]
    shares = [one.reasoning for one in requests if one.reasoning is not None]
    late = sorted(one.late for one in requests)
    metrics: JsonObject = {}
    for name, (about, _) in METRICS.items():
        if blocks := blocks_of(requests, name):
            values = sorted(chain.from_iterable(blocks))
            quantiles: list[Json] = [percentile(values, percent) for percent in range(101)]
            metrics[name] = {"about": about, "n": len(values), **_percentiles(blocks), "quantiles": quantiles}
    return {
        "load": load.name,
        "requests": len(requests),
        "failed": sum(failures.values()),
        "failures": dict[str, Json](sorted(failures.items())),
        "seconds": span,
        "concurrency": sum(one.done - one.due for one in requests) / span if span else None,
        "requests_per_second": len(timings(requests)) / span if span else None,
        "tokens_per_second": sum(tokens) / span if span and tokens else None,
        "reasoning_share": sum(shares) / len(shares) if shares else None,
        "client_late_p99": percentile(late, 99) if late else None,
        "metrics": metrics,
        "good": good_requests(requests, objectives) if objectives else None,
        "goodput": good_requests(requests, objectives) / span if objectives and span else None,
        "objectives": [_judged_json(one) for one in judge_objectives(requests, objectives)],
    }


def _percentiles(blocks: Sequence[Sequence[float]]) -> JsonObject:
    found = {percent: grouped_interval(blocks, percent) for percent in _PERCENTS if _is_enough(blocks, percent)}
    return {f"p{percent}": [one.value, _finite(one.low), _finite(one.high)] for percent, one in found.items()}


def _is_enough(blocks: Sequence[Sequence[float]], percent: int) -> bool:
    return sum(map(len, blocks)) >= _ENOUGH[percent]


def _finite(value: float) -> float | None:
    return value if abs(value) != float("inf") else None


def _judged_json(one: Judged) -> JsonObject:
    found: Json = None if one.found is None else [one.found.value, _finite(one.found.low), _finite(one.found.high)]
    limit: JsonObject = {"metric": one.objective.metric, "percent": one.objective.percent, "limit": one.objective.limit}
    return {"objective": str(one.objective), **limit, "found": found, "met": one.is_met, "missed": one.is_missed}


def metric_table(requests: Sequence[LoadedRequest]) -> Table:
    """Return the percentiles of each metric in milliseconds, with 95 % intervals."""
    table = Table(box=None, pad_edge=False)
    table.add_column("ms", no_wrap=True, min_width=6)
    for heading in ("n", *(f"p{percent} (95 % interval)" for percent in _PERCENTS)):
        table.add_column(heading, justify="right", no_wrap=True, min_width=6 if heading == "n" else 24)
    table.add_column("of", overflow="fold")
    for name, (about, _) in METRICS.items():
        blocks = blocks_of(requests, name)
        if not blocks:
            continue
        cells = [_cell(blocks, percent) if _is_enough(blocks, percent) else "-" for percent in _PERCENTS]
        table.add_row(name, str(sum(map(len, blocks))), *cells, about)
    return table


def _cell(blocks: Sequence[Sequence[float]], percent: int) -> str:
    found = grouped_interval(blocks, percent)
    low, high = ("?" if _finite(end) is None else f"{_MILLI * end:.3g}" for end in (found.low, found.high))
    return f"{_MILLI * found.value:.4g} ({low} to {high})"
