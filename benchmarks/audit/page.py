"""Write the page on the performance of audits: `page.py RESULTS GROWTH PAGE`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

PAGE = """# Performance of audits

<!-- Made by `make bench-audit` (benchmarks/audit/) from benchmarks/results/audit.json. -->

Generated logs of {size}: requests with a history, and answers. An answer is a body, the events of a stream, or its text with one token an event. The clean log
has natural texts alone. The other one also has {leaks} planted leaks and {mentions:.0%} of answers that mention the format or its words.
Python {python}, {cores} cores. CPU time, the median of {rounds} rounds (lowest to highest).

## Needles

`needles` is the search for records that can have a leak, without their judgement. `orjson` parses each line of the same log.
ahocorasick-rs finds the lines with literals. Hyperscan or RE2 searches these lines for all patterns. All three are wheels.
Hyperscan has no wheel for Windows. The time to read the log is in the last row alone.

| contender | MB/s a core | against orjson | records that are then judged |
| --- | ---: | ---: | ---: |
{needles}

The search for literals alone passes on the lines of its last column.
The last three rows are limits: a search for one byte, one literal of 14 letters by Hyperscan, and reading the log from the page cache.
The needles are {patterns} patterns; most begin or end at a quote.

A token that ends with `<`, `&` or `assistant` can be the beginning of a leak in the next event. So some clean streams are judged too.

## Whole audits

CPU time less that of a start. With `needles` this is an audit of one record ({start:.1f} s), with `structure` of one record and one leak ({started:.1f} s).
The small log has 20 times the share of leaks, and ten times that of mentions. Many of its records are judged one by one, as no earlier record is like them.

| plan | log | workers | wall | MB/s a core | exchanges judged | judged a second and core | peak memory of a process |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
{audits}

## Recall of needles

The plan `needles` found {found} of the {all_found} leaks of markers and channel words that all checks find in a log of {small}, and missed {missed}.

| form of the leak | planted | found by all checks | found by needles |
| --- | ---: | ---: | ---: |
{forms}

A form that no check of markers and words finds has no marker and no channel word, see [leak-detection.md](leak-detection.md). The plan `structure` judges it.

## Growth with the size

Clean logs. Smaller logs are the first lines of one log, larger ones repeat it. The time includes the start of Python.

| plan | log | workers | wall | CPU time | peak memory of a process |
| --- | ---: | ---: | ---: | ---: | ---: |
{growth}

![CPU time against the size of the log, both axes logarithmic](audit-performance.svg)

## Goals

| goal | wanted | measured | reached |
| --- | ---: | ---: | --- |
{goals}

The judgement of an exchange is Python: it decodes each event, and evaluates the conditions of all checks. This limits the plan `structure`.
The needles have many forms, for escapes and for words that a stream cuts. Most literals are as short as `"n"`. This limits the search.
Ten times the speed of orjson would be {ten_times} MB/s. {limit}

## One petabyte

The arithmetic of the measured rates, on machines with 96 cores, whose storage keeps up:

| plan | core hours | hours on 100 machines | at 0.04 USD a core hour |
| --- | ---: | ---: | ---: |
{petabyte}
"""
LIMITS = {
    "literals": "ahocorasick-rs, the literals alone",
    "absent byte": "a byte that no line has, by `bytes.find`",
    "one word": "`assistantfinal` alone, by hyperscan",
    "reading": "reading the log",
}
PETABYTE, CORES, MACHINES, USD = 1e15, 96, 100, 0.04


def main() -> None:
    results, growth = (json.loads(Path(path).read_text("utf-8")) for path in sys.argv[1:3])
    Path(sys.argv[3]).write_text(page(results, growth["rows"]), "utf-8")


def page(results: dict, growth: list[dict]) -> str:
    logs, audits = results["logs"], {tuple(name.split(", ")): one for name, one in results["audits"].items()}
    recall = results["recall"]
    spent = {key: max(one["cpu"] - results["start"][key[0]]["cpu"], 1e-3) for key, one in audits.items()}
    rates = {key: logs[key[1]]["bytes"] / spent[key] for key in audits}
    return PAGE.format(
        size=_size(logs["clean"]["bytes"]),
        small=_size(logs["small"]["bytes"]),
        leaks=f"{logs['leaking']['planted']:,}",
        mentions=logs["leaking"]["mentions"],
        python=results["python"],
        cores=results["cores"],
        rounds=results["rounds"],
        start=results["start"]["needles"]["cpu"],
        started=results["start"]["structure"]["cpu"],
        needles="\n".join(_needle_row(name, results) for name in results["seconds"]),
        audits="\n".join(_audit_row(key, one, rates[key], spent[key]) for key, one in audits.items()),
        found=recall["found_by_all_checks"] - recall["missed_by_needles"],
        all_found=recall["found_by_all_checks"],
        missed=recall["missed_by_needles"],
        forms="\n".join(
            f"| {form} | {one['planted']} | {one['all checks']} | {one['needles']} |"
            for form, one in sorted(recall["forms"].items())
        ),
        growth="\n".join(map(_growth_row, growth)),
        goals="\n".join(_goal_rows(results, growth, audits, spent)),
        patterns=results["patterns"],
        ten_times=f"{10 * _speed(results, 'orjson'):,.0f}",
        limit=_limit(results),
        petabyte="\n".join(
            _petabyte_row(plan, rates[plan, log, "1"]) for plan, log in (("needles", "clean"), ("structure", "leaking"))
        ),
    )


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _speed(results: dict, name: str) -> float:
    """Return the median speed of a contender in MB/s."""
    return results["logs"]["clean"]["bytes"] / 1e6 / results["seconds"][name]["median"]


def _limit(results: dict) -> str:
    """Return one sentence on the limits of a search."""
    reading, wanted = _speed(results, "reading"), 10 * _speed(results, "orjson")
    verdict = "less" if wanted < reading else "more"
    return f"This is {verdict} than the speed of reading the log alone: {reading:,.0f} MB/s."


def _needle_row(name: str, results: dict) -> str:
    size, seconds = results["logs"]["clean"]["bytes"] / 1e6, results["seconds"][name]
    speeds = [size / seconds[one] for one in ("median", "highest", "lowest")]
    factor = results["seconds"]["orjson"]["median"] / seconds["median"]
    judged = results["candidates"].get(name)
    share = "" if judged is None else f"{judged / results['logs']['clean']['records']:.1%}"
    return f"| {LIMITS.get(name, name)} | {speeds[0]:,.0f} ({speeds[1]:,.0f} to {speeds[2]:,.0f}) | {factor:.1f} × | {share} |"


def _audit_row(key: tuple[str, ...], one: dict, rate: float, spent: float) -> str:
    judged = one["judged"] / spent
    return f"| {' | '.join(key)} | {one['wall']:.1f} s | {rate / 1e6:,.1f} | {one['judged']:,} | {judged:,.0f} | {one['peak_mib']:,.0f} MiB |"


def _growth_row(row: dict) -> str:
    return f"| {row['plan']} | {_size(row['bytes'])} | {row['workers']} | {row['wall']:.1f} s | {row['cpu']:.1f} s | {row['peak_mib']:,.0f} MiB |"


def _goal_rows(results: dict, growth: list[dict], audits: dict, spent: dict) -> Iterator[str]:
    """Yield a row for each goal: what was wanted, what was measured, and whether it is reached."""
    orjson, mixed = results["seconds"]["orjson"]["median"], ("structure", "leaking", "1")
    largest = {row["workers"]: row for row in growth if row["plan"] == "needles"}  # sizes ascend
    peaks = [row["peak_mib"] for row in growth if row["plan"] == "needles" and row["workers"] == 1]
    recall = results["recall"]
    found = recall["found_by_all_checks"] - recall["missed_by_needles"]
    rows = (
        ("needles by hyperscan against orjson", 10, orjson / results["seconds"]["hyperscan"]["median"], "×"),
        ("needles by RE2 against orjson", 4, orjson / results["seconds"]["google-re2"]["median"], "×"),
        ("exchanges that all checks judge, a second and core", 8000, audits[mixed]["judged"] / spent[mixed], ""),
        (f"two workers against one, {_size(largest[1]['bytes'])}", 1.7, largest[1]["wall"] / largest[2]["wall"], "×"),
        ("leaks of markers and words found by needles", 100, 100 * found / recall["found_by_all_checks"], "%"),
    )
    for goal, wanted, measured, unit in rows:
        yield f"| {goal} | {wanted:,} {unit} | {measured:,.{0 if measured >= 100 else 1}f} {unit} | {'yes' if measured >= wanted else '**no**'} |"
    flat = max(peaks) / min(peaks)
    yield f"| peak memory, largest log against smallest | 1.1 × | {flat:.2f} × | {'yes' if flat <= 1.1 else '**no**'} |"


def _petabyte_row(plan: str, rate: float) -> str:
    hours = PETABYTE / rate / 3600
    return f"| {plan} | {hours:,.0f} | {hours / CORES / MACHINES:,.1f} | {hours * USD:,.0f} USD |"


if __name__ == "__main__":
    main()
