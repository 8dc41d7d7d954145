"""The report of sampled rates: lines for a terminal, and a JSON document."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from harmony_conformance.json_value import JsonObject, dumps, members
from harmony_conformance.report.formats.terminal import visible
from harmony_conformance.report.intervals import (
    SIGNIFICANCE,
    adjust_discrete,
    difference,
    fisher,
    p_words,
    smallest_fisher,
)
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.sampling.graders import Grade
from harmony_conformance.sampling.legacy import legacy_figures
from harmony_conformance.sampling.rates import Rate, all_rates, pass_rates
from harmony_conformance.sampling.run import Sampled
from harmony_conformance.sampling.sampler import TaskTry

_TASKS_SHOWN = 10
_LONGEST_ANSWER = 90


@dataclass(frozen=True, kw_only=True)
class RateDifference:
    """A rate of two endpoints: the interval of the difference, and the p value of no difference.

    It is adjusted for the number of rates that have enough cases to differ significantly.
    """

    name: str
    one: Rate
    other: Rate
    p: float

    @property
    def is_worse(self) -> bool:
        """True if the first endpoint is significantly worse."""
        return self.p < SIGNIFICANCE and (self.one.share or 0.0) < (self.other.share or 0.0)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the difference, the first less the second."""
        return difference(self.one.count, self.one.of, self.other.count, self.other.of)

    def __str__(self) -> str:
        """Return both shares, the interval of their difference and its p value."""
        low, high = self.interval
        shares = f"{self.one.share or 0.0:.3f} against {self.other.share or 0.0:.3f}"
        return f"{self.name}: {shares}, difference {low:.2f} to {high:.2f} ({p_words(self.p)}, adjusted)"

    def to_json(self) -> JsonObject:
        """Return the JSON form."""
        low, high = self.interval
        return {"name": self.name, "interval": [low, high], "p": self.p, "worse": self.is_worse}


def compare_rates(one: Sequence[Rate], other: Sequence[Rate]) -> tuple[RateDifference, ...]:
    """Return the differences of the rates that both endpoints have."""
    of_other = {rate.name: rate for rate in other if rate.of}
    both = [(rate, of_other[rate.name]) for rate in one if rate.of and rate.name in of_other]
    counts = [(rate.count, rate.of, against.count, against.of) for rate, against in both]
    values = adjust_discrete([fisher(*one) for one in counts], [smallest_fisher(*one) for one in counts])
    return tuple(
        RateDifference(name=rate.name, one=rate, other=against, p=p)
        for (rate, against), p in zip(both, values, strict=True)
    )


def below_minimum(rates: Sequence[Rate], minima: Mapping[str, float]) -> tuple[str, ...]:
    """Return the names of the rates that are certainly below their minimum: the whole interval is."""
    return tuple(
        rate.name for rate in rates if rate.name in minima and rate.of and rate.interval[1] < minima[rate.name]
    )


def rate_table(rates: Sequence[Rate], minima: Mapping[str, float]) -> Table:
    """Return the rates as a table for a terminal."""
    table = Table(box=None, pad_edge=False)
    table.add_column("rate", no_wrap=True, min_width=max((len(rate.name) for rate in rates), default=0))
    counts = max((len(f"{rate.count}/{rate.of}") for rate in rates), default=0)
    for name, width in (("share", 5), ("95 %", 12), ("count", max(counts, 5)), ("apart", 5)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("of", overflow="fold")  # a narrow terminal gets more lines, and every figure whole
    below = below_minimum(rates, minima)
    for rate in rates:
        low, high = rate.interval
        share = f"{rate.share:.3f}" if rate.share is not None else "-"
        style = "bold red" if rate.name in below else ""
        wanted = f", at least {minima[rate.name]:g}" if rate.name in minima else ""
        table.add_row(
            Text(rate.name, style),
            Text(share, style),
            f"{low:.2f} to {high:.2f}",
            f"{rate.count}/{rate.of}",
            str(rate.apart or ""),
            f"{rate.about}{wanted}",
        )
    return table


def difference_lines(differences: Sequence[RateDifference]) -> Iterator[str]:
    """Yield the rates that differ significantly; otherwise that none does, and the one with the smallest p value."""
    certain = [one for one in differences if one.p < SIGNIFICANCE]
    for one in certain:
        yield f"{one}: {'worse' if one.is_worse else 'better'}"
    if certain or not differences:
        return
    yield f"no rate of {len(differences)} differs significantly (Fisher's test, adjusted by Holm, {SIGNIFICANCE:g})"
    nearest = min(differences, key=lambda one: one.p)
    if nearest.one.share != nearest.other.share:
        yield f"most likely to differ: {nearest}"


def unsolved_lines(samples: Sequence[TaskTry]) -> Iterator[str]:
    """Yield the tasks with the fewest solved tries, each with an answer that did not solve it."""
    tries: dict[str, list[TaskTry]] = defaultdict(list)
    for sample in samples:
        tries[sample.task.id].append(sample)
    unsolved = {name: [one for one in its if one.grade in {Grade.UNSOLVED, Grade.ERROR}] for name, its in tries.items()}
    worst = sorted(
        (name for name in unsolved if unsolved[name]), key=lambda name: -len(unsolved[name]) / len(tries[name])
    )
    for name in worst[:_TASKS_SHOWN]:
        example = unsolved[name][0]
        solved = sum(one.grade is Grade.SOLVED for one in tries[name])
        yield visible(f"  {example.task.set} {name}: {solved} of {len(tries[name])} solved; {_answer(example)}")
    if len(worst) > _TASKS_SHOWN:
        yield f"  … and {number_of(len(worst) - _TASKS_SHOWN, 'more task')}: rates.json"


def _answer(sample: TaskTry) -> str:
    wanted = dumps(sample.task.grade)
    if sample.answer is None:
        x = sample.exchanges[-1]
        status = f"HTTP {x.response.status}" if x.response is not None else "no response"
        return f"wanted {wanted}, got no answer ({x.failure.detail if x.failure is not None else status})"
    calls = " ".join(f"{name}({dumps(arguments)})" for name, arguments in sample.answer.calls)
    shown = " ".join(filter(None, (calls, sample.answer.content)))
    cut = shown if len(shown) <= _LONGEST_ANSWER else f"{shown[:_LONGEST_ANSWER]}…"
    return f"wanted {wanted}, got {cut!r}"


def legacy_lines(samples: Sequence[TaskTry], against: Sequence[TaskTry]) -> Iterator[str]:
    """Yield what older tools would print for the same answers."""
    for tool, figures in legacy_figures(samples, against).items():
        shown = (
            f"{name} {f'{value:.3f}' if isinstance(value, float) else '-' if value is None else value}"
            for name, value in members(figures).items()
        )
        yield f"{tool}, by its own rules: {', '.join(shown)}"


def sampled_json(sampled: Sampled, minima: Mapping[str, float], against: Sequence[TaskTry] = ()) -> JsonObject:
    """Return the JSON form of the tries of an endpoint. `against`: those of a second endpoint, for figures that compare."""
    rates = all_rates(sampled.samples)
    return {
        "engine": sampled.capabilities.engine.name,
        "engine_version": sampled.capabilities.engine_version,
        "model": sampled.capabilities.model,
        "stopped": sampled.stopped,
        "rates": [rate.to_json() for rate in rates],
        "below": [*below_minimum(rates, minima)],
        "pass": pass_rates(sampled.samples),
        "legacy": legacy_figures(sampled.samples, against),
        "tries": [
            {"task": one.task.id, "set": one.task.set, "attempt": one.attempt, "grade": one.grade.value}
            for one in sampled.samples
        ],
    }
