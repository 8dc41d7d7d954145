"""Counters of the traffic: additive, and sent as JSON. Keys are tuples of a name and labels.

- ("exchanges", api, end), ("unrecorded", limit), ("judged",), ("failing",)
- ("outcomes", outcome), ("verdicts", check, outcome), ("acted", check, action)
- ("answers", route, model, kind, verdict)
- ("dropped",), ("lost",), ("problems",), ("restarts",)
- ("<histogram>", bucket), ("<histogram>_sum",), in microseconds
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, integer, items, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import Result
from harmony_conformance.runtime.plural import number_of
from harmony_proxy.capture.build_exchange import BuiltExchange
from harmony_proxy.capture.recorder import OVER_MEMORY, End
from harmony_proxy.capture.routes import api_of, route_of
from harmony_proxy.judging.model_names import ModelNames

Tally = Counter[tuple[str, ...]]


@dataclass(kw_only=True)
class Gauges:
    """Exchanges that have begun and that have ended, responses that are buffered until they are complete, unknown paths, reloads."""

    exchanges_started: int = 0
    exchanges_ended: int = 0
    responses_buffered: int = 0
    unknown_passed: int = 0
    unknown_refused: int = 0
    reloads_done: int = 0
    reloads_failed: int = 0

    @property
    def exchanges_open(self) -> int:
        """The number of exchanges that have begun and not ended."""
        return self.exchanges_started - self.exchanges_ended


BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Upper bounds of the buckets of every histogram, in seconds; the last bucket, +Inf, is implied."""

TTFT, ANSWER_TTFT, GAP, ADDED_LATENCY = "ttft", "answer_ttft", "gap", "added"
_MICROSECONDS = 1_000_000
SERVER_FAULTS = frozenset({End.NO_CONNECTION, End.TIMEOUT, End.RESET, End.CUT})
"""Ends for which the server, or the way to it, is responsible."""
_FIRST_ERROR, _FIRST_SERVER_ERROR = 400, 500
_UNANSWERED = "errors.valid_request_is_answered"
_BUCKET_NAMES = tuple(str(index) for index in range(len(BUCKETS) + 1))


def count_exchange(
    counts: Tally, built: BuiltExchange, applied: Sequence[Result], not_applicable: int, models: ModelNames
) -> None:
    """Count one exchange: its times, the results of the checks that applied, and how many did not apply."""
    record = built.record
    if built.exchange is not None:
        _count_times(counts, built.exchange, record.times)  # first, because it may fail: nothing is counted twice
        counts["judged",] += 1
    counts["exchanges", api_of(record.path), built.end] += 1
    if not record.is_whole:
        counts["unrecorded", "memory" if record.limit == OVER_MEMORY else "size"] += 1
    if record.first_byte is not None:
        _observe(counts, TTFT, (record.first_byte,))
    if record.added_seconds:
        _observe(counts, ADDED_LATENCY, (record.added_seconds,))
    if not_applicable:
        counts["outcomes", Outcome.NOT_APPLICABLE] += not_applicable
    counts.update([("verdicts", result.check, result.outcome) for result in applied])
    others = [result for result in applied if result.outcome is not Outcome.PASS]
    if len(others) < len(applied):
        counts["outcomes", Outcome.PASS] += len(applied) - len(others)
    counts.update([("outcomes", result.outcome) for result in others])
    if is_failing(others):
        counts["unreachable" if built.end is End.NO_CONNECTION else "failing",] += 1
    if route := route_of(record.path):
        model = model_label(built, models)
        kind = "stream" if built.is_stream else "whole"
        counts["answers", route, model, kind, answer_verdict(built, others)] += 1
    for check, times in record.repair_counts.items():
        counts["acted", check, "repaired"] += times
    for action, checks in (("blocked", record.blocked_checks), ("left", record.unrepaired_reasons)):
        for check in checks:
            counts["acted", check, action] += 1


def model_label(built: BuiltExchange, models: ModelNames) -> str:
    """Return the name of the model as a label. Only a model that the server answered is added."""
    status = built.record.status
    return models.label(built.model, is_served=status is not None and status < _FIRST_ERROR)


def is_failing(results: Sequence[Result]) -> bool:
    """Return True if a MUST check failed."""
    return any(result.outcome is Outcome.FAIL and result.severity is Severity.MUST for result in results)


def answer_verdict(built: BuiltExchange, results: Sequence[Result]) -> str:
    """Return the one verdict of an answer: the first that applies."""
    record, status = built.record, built.record.status or 0
    verdicts = (
        ("blocked", bool(record.blocked_checks)),
        ("failed", bool(record.unrepaired_reasons) and is_failing(results)),
        ("repaired", bool(record.repair_counts)),
        ("error", status >= _FIRST_SERVER_ERROR or built.end in SERVER_FAULTS),
        ("failed", is_failing(results)),
        ("rejected", status >= _FIRST_ERROR),
        ("passed", built.exchange is not None),
    )
    return next((name for name, applies in verdicts if applies), "unjudged")


def to_json(counts: Tally) -> Json:
    """Return the counts as JSON: `[[key, count], ...]`."""
    return [[list(name), times] for name, times in counts.items()]


def from_json(value: Json) -> Tally:
    """Parse the result of `to_json`, without entries that are not counts."""
    counts: Tally = Counter()
    for entry in items(value):
        name = tuple(text(part) for part in items(value_at(entry, 0)))
        counts[name] += integer(value_at(entry, 1)) or 0
    return counts


def summary_line(counts: Tally) -> str:
    """Return the one-line summary that is printed at the end."""
    exchanges = sum(times for name, times in counts.items() if name[0] == "exchanges")
    parts = [
        number_of(exchanges, "exchange"),
        f"{counts['judged',]} judged",
        f"{counts['failing',]} failed a MUST check",
        *([f"{unreachable} without a connection to the upstream"] if (unreachable := counts["unreachable",]) else []),
    ]
    verdicts: Counter[str] = Counter()
    for name, times in counts.items():
        if name[0] == "answers":
            verdicts[name[-1]] += times
    parts.extend(f"{verdicts[verdict]} {verdict}" for verdict in ("repaired", "blocked") if verdicts[verdict])
    for name, one, description in (
        (("outcomes", Outcome.ERROR.value), "internal error", "of checks"),
        (("dropped",), "", "not judged: the queue was full"),
        (("lost",), "", "lost when the judge process ended"),
        (("problems",), "internal error", "of the guard"),
    ):
        if times := counts[name]:
            parts.append(f"{number_of(times, one) if one else times} {description}")
    failed = Counter({name[1]: times for name, times in counts.items() if name[0] == "verdicts" and name[2] == "fail"})
    failed -= Counter({_UNANSWERED: unreachable})  # no failure of the server's answers
    worst = ", ".join(f"{check} {times}" for check, times in failed.most_common(5))
    return ", ".join(parts) + (f"; most frequent failures: {worst}" if worst else "")


def _count_times(counts: Tally, x: Exchange, times: Sequence[float]) -> None:
    if x.stream is None:
        return
    _observe(counts, GAP, [later - earlier for earlier, later in pairwise(times)])
    for event in x.stream.events:
        if any(text(value_at(choice, "delta", "content")) for choice in items(value_at(event.value, "choices"))):
            _observe(counts, ANSWER_TTFT, (event.arrival_time,))
            return


def _observe(counts: Tally, name: str, values: Sequence[float]) -> None:
    for value in values:
        counts[name, _BUCKET_NAMES[bisect_left(BUCKETS, value)]] += 1
    if values:
        counts[f"{name}_sum",] += sum([max(round(value * _MICROSECONDS), 0) for value in values])
