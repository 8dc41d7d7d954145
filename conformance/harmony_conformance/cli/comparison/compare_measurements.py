"""`compare` of two folders of `rates` or of `load`: rates by Fisher's test, latencies by intervals."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from harmony_conformance.cli.comparison.side_by_side import answered_rates
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import JsonObject, dumps
from harmony_conformance.load.load_file import LOAD, InvalidLoadError, read_loads
from harmony_conformance.report.comparison.latency_comparison import (
    LatencyChange,
    compare_latency,
    is_any_slower_by,
    load_figures,
)
from harmony_conformance.report.formats.terminal import visible
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.sampling.rates_file import RATES, InvalidRatesError, names_of_other_tasks, read_rates
from harmony_conformance.sampling.report import compare_rates, difference_lines

DEFAULT_SLOWDOWN = 0.1


def measurement_file(path: Path) -> Path | None:
    """Return the file of rates or of loads that a path names, itself or its folder. None for another path."""
    if path.name in {RATES, LOAD}:
        return path
    return next((path / name for name in (RATES, LOAD) if (path / name).is_file()), None)


def compare_measurements(before: Path, after: Path, form: str, slowdown: float | None) -> int:
    """Print the comparison of two files of one kind.

    Exit code 1: a rate or the share of answered requests is significantly worse, or a latency significantly slower.

    Raises:
        UsageError: A file is invalid, or they have nothing in common.
    """
    if form == "html":
        raise UsageError("invalid --format: expected text or json for rates and loads, got html")
    if before.name != after.name:
        raise UsageError(f"{before} and {after}: expected two files of one kind, got {before.name} and {after.name}")
    try:
        compare = _compare_rates if after.name == RATES else _compare_loads
        return compare(before, after, form, DEFAULT_SLOWDOWN if slowdown is None else slowdown)
    except (InvalidRatesError, InvalidLoadError) as problem:
        raise UsageError(str(problem)) from None


def _compare_rates(before: Path, after: Path, form: str, _: float) -> int:
    earlier, later = read_rates(before)[0], read_rates(after)[0]
    other = names_of_other_tasks(later, earlier)
    differences = compare_rates([rate for rate in later.rates if rate.name not in other], earlier.rates)
    if not differences:
        raise UsageError(f"{before} and {after}: expected rates of the same tasks that both have, got none")
    if form == "json":
        members: JsonObject = {
            "before": earlier.title,
            "after": later.title,
            "rates": [one.to_json() for one in differences],
            "not_compared": [*other],
        }
        print(dumps({"$schema": "comparison.schema.json", **members}))
    else:
        print(f"before: {visible(earlier.title)}\nafter:  {visible(later.title)}")
        if other:
            print(visible(f"not compared, since the tasks differ: {', '.join(other)}"))
        print("\n".join(difference_lines(differences)))
    incomplete = {name: one.stopped for name, one in (("before", earlier), ("after", later)) if one.stopped}
    for name, reason in incomplete.items():
        print(f"incomplete: {name}: {visible(reason)}", file=sys.stderr)
    if any(one.is_worse for one in differences):
        return Exit.DIVERGES
    return Exit.USAGE if incomplete else Exit.CONFORMS


def _compare_loads(before: Path, after: Path, form: str, slowdown: float) -> int:
    earlier, later = read_loads(before), read_loads(after)
    changes = compare_latency(load_figures(earlier), load_figures(later))
    answered = compare_rates(answered_rates(later), answered_rates(earlier))
    if not changes and not answered:
        raise UsageError(f"{before} and {after}: expected a load that both measured, got none")
    if form == "json":
        members: JsonObject = {
            "latency": [one.to_json() for one in changes],
            "answered": [one.to_json() for one in answered],
        }
        print(dumps({"$schema": "comparison.schema.json", **members}))
    else:
        print("\n".join((*latency_lines(changes), *difference_lines(answered))))
    is_worse = is_any_slower_by(slowdown, changes) or any(one.is_worse for one in answered)
    return Exit.DIVERGES if is_worse else Exit.CONFORMS


def latency_lines(changes: tuple[LatencyChange, ...], note: str = "") -> Iterator[str]:
    """Yield each change in milliseconds, below a line that ends with a note."""
    count = len(changes)
    tests = number_of(count, "percentile")
    yield f"latency in ms, with 95 % intervals of each difference; p adjusted by Holm for {tests}{note}:"
    yield from (f"  {one}" for one in changes)
