"""False alarms of the gates: repeated runs and loads of one unchanged server, each gated and compared with the first.

    .venv/bin/python benchmarks/gate_noise.py [--runs 30] [--load] [--out FILE] [-- OPTIONS OF run]

The server is `harmony-conformance serve` with one known failure, asked over HTTP by eight clients at a time.
Each run is gated with the baseline of the first and compared with it. `--load` also sends a load after each run, and compares it with the first.
Exit code 1 if a gate fails. Loads need a quiet machine: another load on it is a real difference, and the intervals have 95 %.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

COMMAND = [sys.executable, "-m", "harmony_conformance"]
KNOWN = "effort-ignored"


def call(*words: str) -> int:
    """Return the exit code of a command of this project; its output is not shown."""
    return subprocess.run([*COMMAND, *words], capture_output=True, check=False).returncode


def main() -> int:
    """Run, print and write the numbers of alarms."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--out", type=Path)
    parser.add_argument("options", nargs="*", help="options of each run, after --")
    arguments = parser.parse_args()
    alarms = Counter({"baseline": 0, "compare": 0, **({"load": 0} if arguments.load else {})})
    serve = [*COMMAND, "serve", "--port", "0", "--tpot", "2", "--defect", KNOWN]
    with TemporaryDirectory() as name, subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        folder, url = Path(name), f"{server.stdout.readline().strip()}/v1"
        run = ["run", url, "--latency", "0", "--quiet", *arguments.options]
        load = ["load", url, "--rate", "10", "--requests", "60", "--output-tokens", "16"]
        first = call(*run, "--baseline-write", str(folder / "known.toml"), "--out", str(folder / "first"))
        assert first == 1, "the known failure fails without a baseline"
        assert not arguments.load or call(*load, "--out", str(folder / "first-load")) == 0
        for number in range(1, arguments.runs + 1):
            out = str(folder / f"run-{number}")
            alarms["baseline"] += call(*run, "--baseline", str(folder / "known.toml"), "--out", out) != 0
            alarms["compare"] += call("compare", str(folder / "first"), out) != 0
            if arguments.load:
                sent = call(*load, "--out", f"{out}-load")
                alarms["load"] += (sent or call("compare", str(folder / "first-load"), f"{out}-load")) != 0
            print(f"{number}: {dict(alarms)}", flush=True)
        server.terminate()
    figures = {"runs": arguments.runs, "options": arguments.options, "alarms": dict(alarms)}
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    return int(any(alarms.values()))


if __name__ == "__main__":
    sys.exit(main())
