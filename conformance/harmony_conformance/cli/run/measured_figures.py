"""Figures of a finished `rates` or `load` in a few words, for the line of `run-all`."""

from __future__ import annotations

from pathlib import Path

from harmony_conformance.json_value import JsonObject, text, value_at
from harmony_conformance.load.load_file import LOAD, LOAD_PAGE, InvalidLoadError, read_loads
from harmony_conformance.sampling.rates_file import RATES, InvalidRatesError, read_rates


def measured_figures(command: str, folder: Path) -> str:
    """Return the figures that a command wrote to a folder, and the path of the file. Empty if it wrote none."""
    try:
        if command == "rates":
            rates = read_rates(folder / RATES)[0].rates
            figures = ", ".join(f"{rate.name} {rate.share:.2f}" for rate in rates if rate.share is not None)
            return f"{figures}; {folder / RATES}"
        return f"{'; '.join(map(_load_figures, read_loads(folder / LOAD)))}; {folder / LOAD_PAGE}"
    except (InvalidRatesError, InvalidLoadError):
        return ""


def _load_figures(load: JsonObject) -> str:
    units = (("requests_per_second", "answers/s"), ("tokens_per_second", "tokens/s"))
    values = [(value_at(load, name), unit) for name, unit in units]
    failed = f"{value_at(load, 'failed')} failed"
    numbers = [f"{value:,.1f} {unit}" for value, unit in values if isinstance(value, int | float)]
    return f"{text(value_at(load, 'load'))}: {', '.join([*numbers, failed])}"
