"""The rates of a finished run, read from its `rates.json`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harmony_conformance.json_value import InvalidJsonError, Json, integer, items, loads, text, value_at
from harmony_conformance.sampling.rates import Rate

RATES = "rates.json"
"""File name of the rates in the folder of a run."""


class InvalidRatesError(ValueError):
    """A file that is no `rates.json`. The message has its path."""


@dataclass(frozen=True, kw_only=True)
class SampledRates:
    """The rates of one endpoint. `title`: its model and engine."""

    title: str
    rates: tuple[Rate, ...]
    below: tuple[str, ...] = ()


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
        )
        for one in endpoints
    )


def _rate(value: Json, path: Path) -> Rate:
    count, of, apart = (integer(value_at(value, name)) for name in ("count", "of", "apart"))
    name = text(value_at(value, "name"))
    if not name or count is None or of is None or not 0 <= count <= of:
        raise InvalidRatesError(f"{path}: expected a rate with name, count and of, got {name or 'no name'!r}")
    return Rate(name=name, about=text(value_at(value, "about")), count=count, of=of, apart=apart or 0)
