"""Counts of what went by, which add up in any order and travel as JSON: names and labels to numbers.

("exchanges", api, end) · ("judged",) · ("failing",) · ("outcomes", outcome) · ("verdicts", check, outcome) · ("acted", check, what)
("dropped",) · ("lost",) · ("problems",) · ("restarts",) · ("<histogram>", bucket), ("<histogram>_sum",)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, at, items, number, text
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.judge.judge import Result
from harmony_proxy.capture.build_exchange import BuiltExchange
from harmony_proxy.capture.routes import api_of

Tally = Counter[tuple[str, ...]]


@dataclass(kw_only=True)
class Gauges:
    """What is going on right now: exchanges that have begun and that have ended, and answers that are held back."""

    begun: int = 0
    ended: int = 0
    held: int = 0

    @property
    def open(self) -> int:
        """Exchanges that have begun and not ended."""
        return self.begun - self.ended


BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper ends of the buckets of every histogram, in seconds; there is one more for all above."""

TTFT, ANSWER_TTFT, GAP, ADDED = "ttft", "answer_ttft", "gap", "added"
HISTOGRAMS = (TTFT, ANSWER_TTFT, GAP, ADDED)
_MICROSECONDS = 1_000_000
_BUCKET_NAMES = tuple(str(place) for place in range(len(BUCKETS) + 1))


def count(counts: Tally, told: BuiltExchange, applied: Sequence[Result], aside: int) -> None:
    """Count one exchange. `applied`: what was said by the checks that applied to it; to how many it did not, `aside`."""
    kept = told.kept
    if told.exchange is not None:
        _count_times(counts, told.exchange, kept.times)  # first: it may fail, and then nothing is counted twice
        counts["judged",] += 1
    counts["exchanges", api_of(kept.path), told.end] += 1
    if kept.first_byte is not None:
        _observe(counts, TTFT, (kept.first_byte,))
    if kept.added:
        _observe(counts, ADDED, (kept.added,))
    if aside:
        counts["outcomes", Outcome.NOT_APPLICABLE] += aside
    counts.update([("verdicts", said.check, said.outcome) for said in applied])
    more = [said for said in applied if said.outcome is not Outcome.PASS]
    if len(more) < len(applied):
        counts["outcomes", Outcome.PASS] += len(applied) - len(more)
    for said in more:
        counts["outcomes", said.outcome] += 1
    if any(said.outcome is Outcome.FAIL and said.severity is Severity.MUST for said in more):
        counts["failing",] += 1
    for check, times in kept.repaired.items():
        counts["acted", check, "repaired"] += times
    for what, checks in (("blocked", kept.blocked), ("left", kept.left)):
        for check in checks:
            counts["acted", check, what] += 1


def to_json(counts: Tally) -> Json:
    """As JSON."""
    return [[list(name), times] for name, times in counts.items()]


def from_json(value: Json) -> Tally:
    """Back again; what is no count is left out."""
    counts: Tally = Counter()
    for entry in items(value):
        name = tuple(text(part) for part in items(at(entry, 0)))
        counts[name] += number(at(entry, 1)) or 0
    return counts


def sentence(counts: Tally) -> str:
    """The one line that is said at the end."""
    gone = sum(times for name, times in counts.items() if name[0] == "exchanges")
    told = [
        f"{gone} exchanges went by",
        f"{counts['judged',]} judged",
        f"{counts['failing',]} broke a MUST",
    ]
    for name, words in (
        (("outcomes", Outcome.ERROR.value), "errors of our own checks"),
        (("dropped",), "not judged: the queue was full"),
        (("lost",), "lost with a judge that ended"),
        (("problems",), "problems of our own (see the log of the program)"),
    ):
        if counts[name]:
            told.append(f"{counts[name]} {words}")
    failed = Counter({name[1]: times for name, times in counts.items() if name[0] == "verdicts" and name[2] == "fail"})
    worst = ", ".join(f"{check} {times}" for check, times in failed.most_common(5))
    return ", ".join(told) + (f"; failed most: {worst}" if worst else "")


def _count_times(counts: Tally, x: Exchange, times: Sequence[float]) -> None:
    if x.stream is None:
        return
    _observe(counts, GAP, [later - earlier for earlier, later in pairwise(times)])
    first = next(
        (
            event.at
            for event in x.stream.events
            if any(text(at(choice, "delta", "content")) for choice in items(at(event.value, "choices")))
        ),
        None,
    )
    _observe(counts, ANSWER_TTFT, [] if first is None else [first])


def _observe(counts: Tally, name: str, values: Sequence[float]) -> None:
    for value in values:
        counts[name, _BUCKET_NAMES[bisect_left(BUCKETS, value)]] += 1
    if values:
        counts[f"{name}_sum",] += sum([max(round(value * _MICROSECONDS), 0) for value in values])
