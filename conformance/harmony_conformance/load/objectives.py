"""Objectives such as `ttft_p95=500ms`, and the figures that they are compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt
from types import MappingProxyType

from harmony_conformance.load.load import LoadedRequest, timings
from harmony_conformance.runner.latency.latency_probe import Timing, UnmeasuredResponse
from harmony_conformance.runner.latency.statistics import Percentile, grouped_interval

_OBJECTIVE = re.compile(r"([a-z0-9]+)_p(\d{1,2})=(\d+(?:\.\d+)?)(ms|s)")
_SECONDS = {"ms": 0.001, "s": 1.0}

METRICS: Mapping[str, tuple[str, Callable[[Timing], Iterable[float | None]]]] = MappingProxyType(
    {
        "ttft": ("first token of any channel", lambda timing: [timing.first_token]),
        "answer": ("first token of the answer", lambda timing: [timing.first_answer]),
        "itl": (
            "between two tokens, or two events if tokens are not known",
            lambda timing: timing.token_gaps or timing.gaps,
        ),
        "tpot": ("per output token after the first", lambda timing: [timing.time_per_output_token]),
        "e2e": ("end of the answer", lambda timing: [timing.end]),
    }
)
"""Meaning and values of each metric of one answer."""


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A percentile of a metric that must not be above a limit in seconds."""

    metric: str
    percent: int
    limit: float

    def __str__(self) -> str:
        """Return the objective in words."""
        return f"{self.metric} p{self.percent} at most {self.limit:g} s"


class InvalidObjectiveError(ValueError):
    """An objective that cannot be read."""


def read_objectives(words: str) -> tuple[Objective, ...]:
    """Read objectives, separated by commas.

    Raises:
        InvalidObjectiveError: One is not of the form METRIC_pN=TIME.
    """
    objectives: list[Objective] = []
    for word in words.split(","):
        found = _OBJECTIVE.fullmatch(word.strip())
        if found is None or found[1] not in METRICS or int(found[2]) == 0:
            raise InvalidObjectiveError(
                f"expected METRIC_pN=TIME like ttft_p95=500ms with one of {', '.join(METRICS)}, got {word!r}"
            )
        limit = float(found[3]) * _SECONDS[found[4]]
        objectives.append(Objective(metric=found[1], percent=int(found[2]), limit=limit))
    return tuple(objectives)


def blocks_of(requests: Sequence[LoadedRequest], metric: str, failed: tuple[float, ...] = ()) -> list[list[float]]:
    """Return the values of a metric in blocks of consecutive requests. Their number is the root of that of the requests.

    The gaps of one request depend on each other, and so do requests that wait in one queue or meet one pause of the server.
    Blocks are long enough to be independent (batch means). `failed`: the values of a request that has no times.
    """
    _, read = METRICS[metric]
    values = [
        failed
        if isinstance(one.timing, UnmeasuredResponse)
        else tuple(value for value in read(one.timing) if value is not None)
        for one in requests
    ]
    count = round(sqrt(len(values)))
    ends = [number * len(values) // count for number in range(count + 1)] if count else []
    blocks = ([value for some in values[start:end] for value in some] for start, end in pairwise(ends))
    return [block for block in blocks if block]


def values_of(requests: Sequence[LoadedRequest], metric: str) -> list[float]:
    """Return the values of a metric in ascending order."""
    return sorted(value for block in blocks_of(requests, metric) for value in block)


@dataclass(frozen=True, kw_only=True)
class Judged:
    """An objective and its percentile. `is_missed`: the whole interval is above the limit; `is_met`: below it."""

    objective: Objective
    found: Percentile | None

    @property
    def is_missed(self) -> bool:
        """True if the objective is certainly missed, also without any value."""
        return self.found is None or self.found.low > self.objective.limit

    @property
    def is_met(self) -> bool:
        """True if the objective is certainly met."""
        return self.found is not None and self.found.high <= self.objective.limit


def judge_objectives(requests: Sequence[LoadedRequest], objectives: Sequence[Objective]) -> tuple[Judged, ...]:
    """Return each objective with its percentile. A request that failed was never answered: its time is infinite."""
    found = ((one, blocks_of(requests, one.metric, (float("inf"),))) for one in objectives)
    return tuple(
        Judged(objective=one, found=grouped_interval(blocks, one.percent) if blocks else None) for one, blocks in found
    )


def good_requests(requests: Sequence[LoadedRequest], objectives: Sequence[Objective]) -> int:
    """Return the number of requests that kept every limit by themselves; of several gaps, their mean counts. A failed request keeps no limit."""
    return sum(all(_keeps(timing, one) for one in objectives) for timing in timings(requests))


def _keeps(timing: Timing, objective: Objective) -> bool:
    _, read = METRICS[objective.metric]
    values = [value for value in read(timing) if value is not None]
    if not values:  # an answer that never began is none; an answer of one token has no gap
        return objective.metric != "answer"
    return sum(values) / len(values) <= objective.limit
