"""Sort the defects that no cause names in `results/causes.json` by the reason, and add the numbers to the file.

    python -m benchmarks.causes.misses [--results benchmarks/results/causes.json]

- `silent`: alone, the defect has no failing result at this level. No name is possible.
- `masked`: the other defects of the draw give the same failures without it. No name is possible.
- `not_named`: some failure depends on the defect, and no cause names it.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.causes.measure import LEVELS, SEPARATOR, correct_results, remember, results_by_level

from harmony_conformance.causes.signatures import FailureKey, failures_of, read_signatures
from harmony_conformance.json_value import Json, items, loads, members, text
from harmony_conformance.runtime.processes import process_context
from harmony_conformance.selftest.selftest import apis_of

RESULTS = Path("benchmarks/results/causes.json")
Draw = tuple[str, ...]
Found = frozenset[tuple[str, FailureKey]]
"""The failures of a run, each with its API."""
Failures = Mapping[str, Found]
"""The failures of a run by level."""
REASONS = ("silent", "masked", "not_named")


class Miss(NamedTuple):
    """A defect of a draw that no cause names at a level."""

    level: str
    defects: Draw
    missed: str

    @property
    def others(self) -> Draw:
        """The other defects of the draw."""
        return tuple(one for one in self.defects if one != self.missed)


def read_misses(document: Json) -> Iterator[Miss]:
    """Yield the defects that no cause names."""
    for draw, levels in members(members(document).get("partly_named")).items():
        for level, names in members(levels).items():
            yield from (Miss(level, tuple(draw.split(SEPARATOR)), text(name)) for name in items(names))


def failures(defects: Draw) -> Failures:
    """Run the suite with these defects, and return the failures by level."""
    return {
        level: frozenset((one.api, key) for one in results for key in failures_of((one,)))
        for level, results in results_by_level(defects, LEVELS).items()
    }


def needed_alone(misses: list[Miss]) -> list[Draw]:
    """Return the defects whose failures at some level no signature has, each alone."""
    return list(dict.fromkeys((miss.missed,) for miss in misses if miss.level == "texts"))


def is_silent(miss: Miss, runs: Mapping[Draw, Failures]) -> bool:
    """Return True if the defect alone has no failure at this level."""
    signature = read_signatures()[miss.missed]
    if miss.level == "texts":
        return not runs[miss.missed,]["texts"]
    return not signature.get(miss.level, signature["ids"])


def reason(miss: Miss, runs: Mapping[Draw, Failures]) -> str:
    """Return why no cause names the defect."""
    if is_silent(miss, runs):
        return "silent"
    beside, without = runs[miss.defects][miss.level], runs[miss.others][miss.level]
    return "not_named" if _differ(beside, without, frozenset(apis_of(*miss.others))) else "masked"


def _differ(beside: Found, without: Found, apis: frozenset[str]) -> bool:
    """Return True if a draw fails otherwise than its other defects do, which are run over fewer APIs: elsewhere, only new kinds count."""
    over_same = ({one for one in found if one[0] in apis} for found in (beside, without))
    elsewhere = {key for api, key in beside if api not in apis}
    return len({*map(frozenset, over_same)}) > 1 or not elsewhere <= {key for _, key in without}


def summarise(misses: list[Miss], reasons: list[str]) -> dict[str, object]:
    """Return the number of misses by level and reason, and the draws of those that are not silent."""
    counts = Counter((miss.level, why) for miss, why in zip(misses, reasons, strict=True))
    return {
        level: {
            **{why: counts[level, why] for why in REASONS},
            "draws": {
                f"{SEPARATOR.join(miss.defects)}: {miss.missed}": why
                for miss, why in zip(misses, reasons, strict=True)
                if miss.level == level and why != "silent"
            },
        }
        for level in LEVELS
    }


def main() -> None:
    """Sort the misses, and add the figures to the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    results: Path = parser.parse_args().results
    document = members(loads(results.read_text("utf-8")))
    misses = list(read_misses(document))
    digests, correct = correct_results(LEVELS)
    with ProcessPoolExecutor(None, process_context(), initializer=remember, initargs=(digests, correct)) as pool:
        alone = needed_alone(misses)
        runs = dict(zip(alone, pool.map(failures, alone), strict=True))
        heard = [miss for miss in misses if not is_silent(miss, runs)]
        draws = [
            one
            for one in dict.fromkeys(draw for miss in heard for draw in (miss.defects, miss.others))
            if one not in runs
        ]
        runs |= zip(draws, pool.map(failures, draws), strict=True)
    figures = summarise(misses, [reason(miss, runs) for miss in misses])
    results.write_text(json.dumps({**document, "misses": figures}, indent=1) + "\n", "utf-8")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
