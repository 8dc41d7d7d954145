"""Switch on random pairs and triples of defects of the reference server, and compare the named causes with them.

    python -m benchmarks.causes.measure [--draws 300] [--seed 1] [--out benchmarks/results/causes.json]

A named cause is right if one of its defects is switched on. A defect is found if a named cause has it.
Two levels of evidence: the token ids of prompts (`ids`), or their number only (`counts`).
"""

from __future__ import annotations

import argparse
import json
import random
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from harmony_conformance.causes.attribution import find_causes
from harmony_conformance.judge.judge import Result
from harmony_conformance.reference_server.defects import DEFECTS
from harmony_conformance.runner.judge_run import judge_all
from harmony_conformance.runtime.processes import process_context
from harmony_conformance.selftest.prompt_evidence import without_prompt_ids
from harmony_conformance.selftest.selftest import (
    judge_correct_run,
    judge_defect_run,
    remember_correct_run,
    run_correct_server,
)
from harmony_conformance.selftest.unchanged_answers import Digests

LEVELS = ("ids", "counts")
_CORRECT: dict[str, tuple[Result, ...]] = {}
"""Results of the correct server by level, in each worker process."""
Causes = dict[str, list[list[str]]]
"""The defects of each cause, by level. A group of like failures has none."""


def remember(digests: Digests, correct: Mapping[str, tuple[Result, ...]]) -> None:
    """Initialize a worker process."""
    remember_correct_run(digests)
    _CORRECT.update(correct)


def measure(defects: tuple[str, ...]) -> Causes:
    """Return the causes that are found with these defects."""
    run = judge_defect_run(*defects)
    judged = {"ids": run.results, "counts": tuple(judge_all(map(without_prompt_ids, run.series), run.plan))}
    found = {level: find_causes((*results, *_CORRECT[level])) for level, results in judged.items()}
    return {level: [list(cause.defects) for cause in causes] for level, causes in found.items()}


def draw(count: int, seed: int) -> list[tuple[str, ...]]:
    """Return random pairs and triples of defects, alternately."""
    chosen = random.Random(seed)
    return [tuple(chosen.sample(list(DEFECTS), 2 + number % 2)) for number in range(count)]


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
            groups=len(causes[level]) - len(named), exact=len(named) == len(right) and len(found) == len(defects)
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


def main() -> None:
    """Measure, and write the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/causes.json"))
    arguments = parser.parse_args()
    series, digests = run_correct_server()
    results = judge_correct_run(series)
    correct = {"ids": results, "counts": judge_correct_run(map(without_prompt_ids, series))}
    draws = draw(arguments.draws, arguments.seed)
    with ProcessPoolExecutor(None, process_context(), initializer=remember, initargs=(digests, correct)) as pool:
        measured = list(pool.map(measure, draws))
    figures = {"seed": arguments.seed, **{level: summarise(draws, measured, level) for level in LEVELS}}
    arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
