"""Measure time and peak memory of audits against the size of a log: `growth.py [--largest 10GB] [--out FILE]`.

One log is generated. Smaller ones are its first lines, larger ones repeat it. Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
from pathlib import Path

from generate import parse_size
from measure import audit, make_log

BASE = 10**9
SMALLER = {"needles": 1, "structure": 100}
"""Factor by which the largest log of each plan is smaller."""
STEPS = (100, 10, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--largest", type=parse_size, default="10GB", help="size of the largest log for needles")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(Path(folder), given.largest)
    results = {"python": platform.python_version(), "cores": os.cpu_count(), "rows": rows}
    given.out.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def measure(folder: Path, largest: int) -> list[dict]:
    base = folder / "base.jsonl"
    make_log(base, min(BASE, largest), 0, 0)
    rows = []
    for plan, smaller in SMALLER.items():
        for step in STEPS:
            log = folder / "log.jsonl"
            size = resize(base, log, largest // smaller // step)
            for workers in (1, 2):
                out = folder / f"{plan}-{step}-{workers}"
                one = audit(log, out, "--plan", plan, "--workers", str(workers))
                rows.append({"plan": plan, "bytes": size, "workers": workers, **one})
                print(plan, size, workers, f"{one['wall']:.1f} s", f"{one['peak_mib']:.0f} MiB", flush=True)
                shutil.rmtree(out)
            log.unlink()
    return rows


def resize(base: Path, log: Path, size: int) -> int:
    """Write the lines of `base`, again and again, up to a size; return the size."""
    written = 0
    with log.open("wb") as target:
        while written < size:
            with base.open("rb") as source:
                for line in source:
                    if written >= size:
                        break
                    written += target.write(line)
    return written


if __name__ == "__main__":
    main()
