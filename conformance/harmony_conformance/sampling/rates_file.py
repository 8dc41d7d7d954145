"""The rates of a finished run, read from its `rates.json`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harmony_conformance.json_value import InvalidJsonError, Json, integer, items, loads, text, value_at
from harmony_conformance.sampling.rates import Rate

RATES = "rates.json"
"""File name of the rates in the folder of a run."""


class InvalidRatesError(ValueError):
    """A file that is no `rates.json`. The message has its path."""


@dataclass(frozen=True, kw_only=True)
class SampledRates:
    """The rates of one endpoint.

    Attributes:
        title: Its model and engine.
        tries: The number of tries by set and task.
        stopped: The reason why some are missing, empty for a complete run.
    """

    title: str
    rates: tuple[Rate, ...]
    below: tuple[str, ...] = ()
    tries: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    stopped: str = ""

    def tries_of(self, rate: str) -> Counter[tuple[str, str]]:
        """Return the tries that a rate is about: those of its set of tasks, or all."""
        its_set = rate.partition(".")[0]
        of_set = Counter({task: count for task, count in self.tries.items() if task[0] == its_set})
        return of_set or self.tries


def read_rates(path: Path) -> tuple[SampledRates, ...]:
    """Read the rates of each endpoint of a run.

    Raises:
        InvalidRatesError: It cannot be read, or is no `rates.json`.
    """
    try:
        document = loads(path.read_bytes())
    except OSError as problem:
        raise InvalidRatesError(f"{path}: {problem.strerror}") from None
    except InvalidJsonError as problem:
        raise InvalidRatesError(f"{path}: {problem}") from None
    endpoints = items(value_at(document, "endpoints"))
    if not endpoints:
        raise InvalidRatesError(f"{path}: expected endpoints with rates, got none")
    return tuple(
        SampledRates(
            title=f"{text(value_at(one, 'model'))} on {text(value_at(one, 'engine'))}",
            rates=tuple(_rate(rate, path) for rate in items(value_at(one, "rates"))),
            below=tuple(map(text, items(value_at(one, "below")))),
            tries=Counter(
                (text(value_at(sample, "set")), text(value_at(sample, "task")))
                for sample in items(value_at(one, "tries"))
            ),
            stopped=text(value_at(one, "stopped")),
        )
        for one in endpoints
    )


def names_of_other_tasks(one: SampledRates, other: SampledRates) -> Sequence[str]:
    """Return the names of the rates that both have, of tasks or shares of tasks that differ: these alone can make them differ."""
    both = {rate.name for rate in other.rates if rate.of}
    names = [rate.name for rate in one.rates if rate.of and rate.name in both]
    return [name for name in names if not _is_same_mixture(one.tries_of(name), other.tries_of(name))]


def _is_same_mixture(one: Counter[tuple[str, str]], other: Counter[tuple[str, str]]) -> bool:
    return all(one[task] * other.total() == other[task] * one.total() for task in {*one, *other})


def _rate(value: Json, path: Path) -> Rate:
    count, of, apart = (integer(value_at(value, name)) for name in ("count", "of", "apart"))
    name = text(value_at(value, "name"))
    if not name or count is None or of is None or not 0 <= count <= of:
        raise InvalidRatesError(f"{path}: expected a rate with name, count and of, got {name or 'no name'!r}")
    return Rate(name=name, about=text(value_at(value, "about")), count=count, of=of, apart=apart or 0)
