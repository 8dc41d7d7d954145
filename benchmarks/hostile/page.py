"""Writes the page of the hostile cases from results: `page.py RESULTS PAGE`."""

from __future__ import annotations

import json
import sys
from itertools import groupby
from pathlib import Path

PAGE = """# Hostile cases

<!-- Made by `make bench-hostile` (benchmarks/hostile/) from benchmarks/results/hostile.json. -->

{count} attacks, {failed}. The threat model is in [security.md](security.md).

- Each case runs in a separate process and an empty temporary folder, on the loopback interface. It is stopped after its limit of time.
- No process may map more than {space} GiB. `memory` is the largest resident set of one process of the attacked part, with its limit.
- The attacker's own memory is not counted. Its time is: `time` includes the making of the payload and the start of the processes.
- Times and memory are of {python}, {cores} cores.{note}

{tables}"""
COLUMNS = "| case | expected | outcome | memory (limit), MiB | time (limit), s |\n| --- | --- | --- | --- | --- |\n"


def cell(text: str) -> str:
    """Text for a cell of a table: short, on one line, without markup."""
    escaped = "".join(f"\\{sign}" if sign in "|<>*_`[]\\" else sign for sign in " ".join(text.split())[:160])
    return escaped.encode("ascii", "backslashreplace").decode("ascii")


def row(case: dict[str, object]) -> str:
    name = str(case["name"]).partition(".")[2] or str(case["name"])
    mark = "" if case["passed"] else "**failed**: "
    limits = f"{case['memory']:,} ({case['memory_limit']:,}) | {case['seconds']:.1f} ({case['seconds_limit']:.0f})"
    return f"| {cell(name)} | {cell(str(case['expected']))} | {mark}{cell(str(case['outcome']))} | {limits} |\n"


def main() -> None:
    results = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    cases, machine = results["cases"], results["machine"]
    failed = sum(not case["passed"] for case in cases)
    tables = [
        f"## {part}\n\n{COLUMNS}{''.join(map(row, found))}" for part, found in groupby(cases, lambda case: case["part"])
    ]
    page = PAGE.format(
        count=len(cases),
        failed=f"{failed} with another outcome than expected" if failed else "all with the expected outcome",
        space=machine["address_space"] // 2**30,
        python=f"Python {machine['python']}",
        cores=machine["cores"],
        note=f" {machine['note']}" if machine.get("note") else "",
        tables="\n".join(tables),
    )
    Path(sys.argv[2]).write_text(page, "utf-8")


if __name__ == "__main__":
    main()
