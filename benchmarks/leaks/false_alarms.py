"""Measure how well leaks are distinguished from innocent answers: `false_alarms.py [--sample N] [--out FOLDER]` writes false_alarms.json,
and blocking.json (see blocking.py).

Every case is judged twice: with the emitted ids, and with the text alone. The naive patterns judge the same exchange. leak_page.py makes
the page from the results.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import baseline
import blocking
from innocent import STRATA, Case, corpus
from innocent.case import Shape, Shown, exchange, shape_of, shown, with_ids
from leaking import WAYS, leaks

from harmony_conformance.checks import channels, reasoning, tool_calls
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.judge.check import MUST, Outcome
from harmony_conformance.judge.judge import judge_one

CHECKS = (
    channels.no_marker_leak,
    channels.no_channel_words,
    channels.no_reasoning_in_content,
    channels.nobody_else_speaks,
    channels.quoted_markers_arrive,
    channels.characters_are_whole,
    tool_calls.calls_are_not_text,
    channels.no_suspected_leak,
    channels.answer_is_told_once,
    channels.answer_ends_with_its_turn,
    channels.no_suspected_broken_character,
    reasoning.thought_does_not_loop,
)
LEVELS = ("ids", "text")
MUST_FAIL, SUSPECTED, VARIANT, CLEAN = "must fail", "suspected", "variant", "clean"
OUTCOMES = (MUST_FAIL, SUSPECTED, VARIANT, CLEAN)
PER_WAY = 80


def judged(x: Exchange) -> tuple[str, list[str]]:
    """Return the worst outcome of the checks, and its findings."""
    series = [Series(name=x.id, exchanges={"": x})]
    found: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    for check in CHECKS:
        result = judge_one(check, series, exercised=False)
        told = [f"{check.id}: {finding.message}: {finding.excerpt or ''}" for finding in result.findings]
        if result.outcome is Outcome.ERROR:
            raise RuntimeError(f"{x.id}: {result.reason}")
        if result.outcome is Outcome.FAIL:
            found[MUST_FAIL if check.severity is MUST else SUSPECTED] += told
        elif result.outcome is Outcome.VARIANT:
            found[VARIANT] += told
    worst = next((outcome for outcome in OUTCOMES if found[outcome]), CLEAN)
    return worst, found[worst]


def both(case: Case, what: Shown, shape: Shape) -> Iterator[tuple[str, str, list[str], bool]]:
    """Return for each evidence level: the level, the outcome, its findings, and whether the naive patterns match."""
    for level in LEVELS:
        x = exchange(case, what, with_ids(shape) if level == "ids" else shape)
        yield level, *judged(x), baseline.alarms(x)


def measure(sample: int | None) -> dict:
    """Return the results of both corpora."""
    started = time.process_time()
    innocent: dict[str, Counter[str]] = {}
    alarms: list[dict[str, str]] = []
    digest = hashlib.sha256()
    parts = Counter[str]()
    distinct: set[tuple[str, object]] = set()
    for case in corpus(sample):
        digest.update(repr(case).encode("utf-8", "replace"))
        parts[f"{case.stratum}|{case.part}"] += 1
        distinct.add((case.content, case.calls))
        for level, outcome, findings, naive in both(case, shown(case), shape_of(case)):
            counts = innocent.setdefault(f"{case.stratum}|{case.part}|{level}", Counter())
            counts[outcome] += 1
            counts["naive"] += naive
            if outcome in (MUST_FAIL, SUSPECTED):
                alarms.append(
                    {
                        "case": case.name,
                        "part": case.part,
                        "level": level,
                        "outcome": outcome,
                        "finding": findings[0][:240],
                    }
                )
    leaking: dict[str, Counter[str]] = {}
    for way, case, what in leaks(PER_WAY if sample is None else max(1, sample // len(WAYS))):
        shape = shape_of(case)
        if what.reasoning is not None:
            shape = replace(shape, field=shape.field or "reasoning")
        for level, outcome, _, naive in both(case, what, shape):
            counts = leaking.setdefault(f"{way.name}|{level}", Counter())
            counts[outcome] += 1
            counts["naive"] += naive
    return {
        "machine": {"python": platform.python_version(), "seconds": round(time.process_time() - started)},
        "corpus": {
            "digest": digest.hexdigest()[:16],
            "cases": sum(parts.values()),
            "distinct": len(distinct),
            "parts": dict(sorted(parts.items())),
        },
        "checks": [check.id for check in CHECKS],
        "strata": [{"name": one.name, "about": one.about, "held_out": one.held_out} for one in STRATA],
        "ways": [{"name": way.name, "catalogue": way.catalogue, "expects": way.expects} for way in WAYS],
        "innocent": {name: dict(sorted(counts.items())) for name, counts in sorted(innocent.items())},
        "leaks": {name: dict(sorted(counts.items())) for name, counts in sorted(leaking.items())},
        "alarms": sorted(alarms, key=lambda alarm: (alarm["outcome"], alarm["case"], alarm["level"])),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, help="about so many innocent cases instead of all")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "results")
    asked = parser.parse_args()
    results = measure(asked.sample)
    asked.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(results, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    (asked.out / "false_alarms.json").write_text(text, "utf-8")
    blocking.write(asked.sample, asked.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
