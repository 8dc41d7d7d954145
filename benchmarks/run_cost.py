"""Cost of a whole run: every scenario over every API against the embedded server.

    .venv/bin/python benchmarks/run_cost.py [--times 3] [--scenarios-of COMMIT] [--out FILE] [-- OPTIONS OF run]

Prints seconds of CPU time of all processes and of the process that used the most, seconds on the clock, and the number of exchanges.
On an idle machine with two cores, the time on the clock is at least half of the CPU time. It is at least that of the busiest process.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from argparse import ArgumentParser
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
TICKS = os.sysconf("SC_CLK_TCK")


def process_seconds() -> dict[int, tuple[int, float]]:
    """Return the parent and the CPU seconds of each process."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            found[int(folder.name)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / TICKS
    return found


def descendants(root: int, seconds: dict[int, tuple[int, float]]) -> set[int]:
    """Return the processes of a run."""
    its = {root}
    while more := {pid for pid, (parent, _) in seconds.items() if parent in its} - its:
        its |= more
    return its


def measure(options: list[str]) -> dict[str, float]:
    """Run once."""
    with TemporaryDirectory() as out:
        command = [
            sys.executable,
            "-m",
            "harmony_conformance",
            "run",
            "reference",
            "--latency",
            "0",
            "--quiet",
            "--out",
            out,
        ]
        # the compiled modules are kept, as for a user
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        each: dict[int, float] = {}
        with subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, env=environment) as run:
            while run.poll() is None:
                seconds = process_seconds()
                each.update((pid, seconds[pid][1]) for pid in descendants(run.pid, seconds) if pid in seconds)
                time.sleep(0.1)
        wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run.returncode == 0, "the reference server conforms"
        with (Path(out) / "exchanges.jsonl").open("rb") as file:
            exchanges = sum(1 for _ in file)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "cpu": round(cpu, 2),
        "busiest process": max(each.values()),
        "processes": sorted(each.values(), reverse=True),
        "wall": round(wall, 2),
        "exchanges": exchanges,
    }


def scenarios_of(commit: str) -> list[str]:
    """Return the names of today's scenarios that a commit had already."""
    from harmony_conformance.runner.selection import load_scenarios

    command = ["git", "ls-tree", "--name-only", commit, "golden/scenarios/"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout.split()
    return sorted({Path(name).stem for name in listed} & {scenario.name for scenario in load_scenarios()})


def main() -> int:
    """Run, print and write."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--scenarios-of", metavar="COMMIT", help="only scenarios that this commit has too")
    parser.add_argument("--out", type=Path)
    parser.add_argument("options", nargs="*", default=["--api", "all"], help="options of the run (default: --api all)")
    arguments = parser.parse_args()
    names = scenarios_of(arguments.scenarios_of) if arguments.scenarios_of else []
    selected = [word for name in names for word in ("--select", name)]
    runs = []
    for _ in range(arguments.times):
        runs.append(measure([*arguments.options, *selected]))
        print(runs[-1], flush=True)
    medians = {name: median(run[name] for run in runs) for name in ("cpu", "busiest process", "wall", "exchanges")}
    figures = {
        "options": arguments.options,
        **({"scenarios_of": arguments.scenarios_of, "scenarios": len(names)} if names else {}),
        **medians,
        "runs": runs,
    }
    print(json.dumps(medians))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
