"""Switch on random pairs and triples of defects of the reference server, and compare the named causes with them.

    python -m benchmarks.causes.measure [--draws 300] [--size 2] [--seed 1] [--levels ids] [--out benchmarks/results/causes.json]

A named cause is right if one of its defects is switched on. A defect is found if a named cause has it.
Three levels of evidence: the token ids of prompts (`ids`), their number only (`counts`), neither ids nor usage (`texts`).
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.causes.signatures import failures_of
from harmony_conformance.checks import CHECKS
from harmony_conformance.evidence.exchange import ALL_APIS, Exchange, Series
from harmony_conformance.golden.scenario import has_only_rows
from harmony_conformance.judge.check import Outcome
from harmony_conformance.judge.judge import Result, is_comparison
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.runner.judge_run import judge_all
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.runtime.processes import process_context
from harmony_conformance.selftest.prompt_evidence import without_prompt_ids
from harmony_conformance.selftest.selftest import (
    apis_of,
    judge_correct_run,
    judge_defect_run,
    remember_correct_run,
    run_correct_server,
)
from harmony_conformance.selftest.unchanged_answers import Digests
from harmony_conformance.transport.messages import Chunk

_COMPARISONS = frozenset(rule.id for rule in CHECKS if is_comparison(rule))
_CORRECT: dict[str, tuple[Result, ...]] = {}
"""Results of the correct server by level, in each worker process."""
Causes = dict[str, list[list[str]]]
"""The defects of each cause, by level. A group of like failures has none."""


def remember(digests: Digests, correct: Mapping[str, tuple[Result, ...]]) -> None:
    """Initialize a worker process."""
    remember_correct_run(digests)
    _CORRECT.update(correct)


def correct_results(levels: Sequence[str]) -> tuple[Digests, dict[str, tuple[Result, ...]]]:
    """Run the correct server. Return the digests of its exchanges, and its results by level."""
    series, digests = run_correct_server()
    hidden = {level: judge_correct_run(map(HIDE[level], series)) for level in levels if level in HIDE}
    return digests, {"ids": judge_correct_run(series), **hidden}


def measure(defects: tuple[str, ...], levels: Sequence[str]) -> Causes:
    """Return the causes that are found with these defects."""
    found = {level: find_causes(results) for level, results in results_by_level(defects, levels).items()}
    return {level: [list(cause.defects) for cause in causes] for level, causes in found.items()}


def results_by_level(defects: tuple[str, ...], levels: Sequence[str]) -> dict[str, tuple[Result, ...]]:
    """Run the suite with these defects, and return all results by level."""
    run = judge_defect_run(*defects)
    # the rows are run apart, and no prompt of theirs is judged: without prompt ids their results are the same
    of_rows = tuple(result for result in run.results if result.scenario in _rows())
    judged = {
        level: (*judge_all(map(HIDE[level], run.series), run.plan), *of_rows) if level in HIDE else run.results
        for level in levels
    }
    apis = frozenset(apis_of(*defects))
    return {level: known_results(level, results, run.changed, apis) for level, results in judged.items()}


@cache
def _rows() -> frozenset[str]:
    return frozenset(scenario.name for scenario in load_scenarios() if has_only_rows(scenario))


def known_results(
    level: str, judged: tuple[Result, ...], changed: frozenset[str], apis: frozenset[str]
) -> tuple[Result, ...]:
    """Return the results of a run over these APIs, as `run` has them.

    These are what was judged, and the results of the correct server for the exchanges that are as there.
    Failures that the level itself makes are left out: of checks that fail on the correct server too, in the scenario or with the message.
    """
    results = (*judged, *_unchanged(level, judged, changed, apis))
    failed = [one for one in _CORRECT[level] if one.outcome is Outcome.FAIL]
    lacking = {(one.check, one.scenario) for one in failed}
    kinds = frozenset().union(*map(_kinds, failed))
    return tuple(one for one in results if (one.check, one.scenario) not in lacking and not _is_of(kinds, one))


def _is_of(kinds: frozenset[tuple[str, str]], result: Result) -> bool:
    """Return True if all failures of a result are of these kinds."""
    own = _kinds(result)
    return bool(own) and own <= kinds


def _kinds(result: Result) -> frozenset[tuple[str, str]]:
    """Return the kinds of failures in a result: its check, and messages without their values."""
    return frozenset((failure.check, failure.message) for failure in failures_of((result,)))


def _unchanged(
    level: str, judged: tuple[Result, ...], changed: frozenset[str], apis: frozenset[str]
) -> Iterator[Result]:
    """Yield the results of the correct server, reduced to unchanged exchanges. A comparison that was judged again replaces its result."""
    again = {(one.check, one.scenario, one.api) for one in judged}
    for one in _CORRECT[level]:
        if one.api not in apis and (one.api != ALL_APIS or len(apis) == 1):
            continue
        if one.check in _COMPARISONS:
            if (one.check, one.scenario, one.api) not in again:
                yield one
        elif left := tuple(name for name in one.exchanges if name not in changed):
            yield one._replace(exchanges=left)


def without_counts(series: Series) -> Series:
    """Remove all token ids and all usage, as if the endpoint returned texts alone."""
    hidden = without_prompt_ids(series)
    return replace(hidden, exchanges={step: _texts_only(x) for step, x in hidden.exchanges.items()})


def _texts_only(x: Exchange) -> Exchange:
    if x.response is None:
        return x
    chunks = tuple(replace(chunk, data=_without_names(chunk.data)) for chunk in x.response.chunks)
    body = _without_names(x.response.body)
    if b"".join(chunk.data for chunk in chunks) != body:  # a name is split between chunks
        chunks = (Chunk(arrival_time=x.response.chunks[-1].arrival_time, data=body),)
    return replace(x, response=replace(x.response, chunks=chunks))


def _without_names(data: bytes) -> bytes:
    return _COUNTED.sub(lambda found: b'"_' + found.group(1), data)


_COUNTED = re.compile(rb'"(token_ids"|usage"|prompt_eval_count"|eval_count")')
HIDE: Mapping[str, Callable[[Series], Series]] = {"counts": without_prompt_ids, "texts": without_counts}
"""Options that remove the evidence that a level lacks."""
LEVELS = ("ids", *HIDE)
SEPARATOR = " + "
"""The text between the defects of a draw in the file of results."""


def draw(count: int, seed: int, size: int = 0) -> list[tuple[str, ...]]:
    """Return random sets of defects of a size, or pairs and triples alternately."""
    chosen = random.Random(seed)
    return [tuple(chosen.sample(list(DEFECTS), size or 2 + number % 2)) for number in range(count)]


def summarise(draws: list[tuple[str, ...]], measured: list[Causes], level: str) -> dict[str, object]:
    """Return precision, recall and the number of groups at one level."""
    counts = Counter[str]()
    missed, wrong = Counter[str](), Counter[str]()
    for defects, causes in zip(draws, measured, strict=True):
        named = [cause for cause in causes[level] if cause]
        right = [cause for cause in named if not set(cause).isdisjoint(defects)]
        found = {defect for cause in named for defect in cause} & set(defects)
        counts.update(named=len(named), right=len(right), switched_on=len(defects), found=len(found))
        counts.update(
            groups=len(causes[level]) - len(named),
            all_named=len(found) == len(defects),
            exact=len(named) == len(right) and len(found) == len(defects),
        )
        missed.update(set(defects) - found)
        wrong.update(cause[0] for cause in named if cause not in right)
    return {
        "draws": len(draws),
        "precision": round(counts["right"] / max(1, counts["named"]), 3),
        "recall": round(counts["found"] / counts["switched_on"], 3),
        **counts,
        "missed": dict(missed.most_common()),
        "wrong": dict(wrong.most_common()),
    }


def unnamed(defects: tuple[str, ...], causes: Causes) -> dict[str, list[str]]:
    """Return the defects of a draw that no cause names, by level."""
    lacking = {level: sorted({*defects}.difference(*found)) for level, found in causes.items()}
    return {level: names for level, names in lacking.items() if names}


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--size", type=int, default=0, metavar="DEFECTS", help="as many in each draw, not two or three")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/causes.json"))
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=LEVELS)
    arguments = parser.parse_args()
    digests, correct = correct_results(arguments.levels)
    draws = draw(arguments.draws, arguments.seed, arguments.size)
    with ProcessPoolExecutor(None, process_context(), initializer=remember, initargs=(digests, correct)) as pool:
        measured = list(pool.map(partial(measure, levels=arguments.levels), draws))
    partly = {
        SEPARATOR.join(one): lacking
        for one, causes in zip(draws, measured, strict=True)
        if (lacking := unnamed(one, causes))
    }
    figures = {
        "seed": arguments.seed,
        "partly_named": partly,
        **{level: summarise(draws, measured, level) for level in arguments.levels},
    }
    arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
