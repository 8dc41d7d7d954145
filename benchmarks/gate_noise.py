"""False alarms of the gates: repeated runs and loads of one unchanged server, each gated and compared with the first.

    .venv/bin/python benchmarks/gate_noise.py [--runs 30] [--loads 30] [--out FILE] [-- OPTIONS OF run]

The server is `harmony-conformance serve` with one known failure, asked over HTTP by eight clients at a time.
Each run is gated with the baseline of the first and compared with it. Each load, one open and one closed loop, is compared with the first.
Two more loads of a server that is 30 % slower show that the gate sees what is there.
Exit code 1: a gate fails for an unchanged server, or a load of the slower one passes.
Other work on the machine is a real difference of latency: what every other process does while it measures is part of the noise.
"""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

COMMAND = [sys.executable, "-m", "harmony_conformance"]
KNOWN = "effort-ignored"
TPOT, SLOWER_TPOT = 20, 26  # ms
LOADS = {
    "open loop": ["--rate", "8", "--requests", "100", "--output-tokens", "16"],
    "closed loop": ["--clients", "4", "--requests", "100", "--output-tokens", "16"],
}


def call(*words: str) -> int:
    """Return the exit code of a command of this project; its output is not shown."""
    return subprocess.run([*COMMAND, *words], capture_output=True, check=False).returncode


def changes(before: Path, after: Path) -> tuple[int, list[dict]]:
    """Return the exit code of the comparison of two loads, and the percentiles that differ."""
    command = [*COMMAND, "compare", str(before), str(after), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, [one for one in json.loads(done.stdout)["latency"] if one["p"] < 0.05]


@contextmanager
def serving(tpot: float) -> Iterator[str]:
    """Serve with the known failure, and yield the URL."""
    serve = [*COMMAND, "serve", "--port", "0", "--tpot", str(tpot), "--defect", KNOWN]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


def repeat_runs(folder: Path, count: int, options: list[str]) -> dict[str, int]:
    """Return the number of false alarms of each gate of a run."""
    alarms = {"baseline": 0, "compare": 0}
    with serving(2) as url:
        run = ["run", url, "--latency", "0", "--quiet", *options]
        first = call(*run, "--baseline-write", str(folder / "known.toml"), "--out", str(folder / "first"))
        assert first == 1, "the known failure fails without a baseline"
        for number in range(1, count + 1):
            out = str(folder / f"run-{number}")
            alarms["baseline"] += call(*run, "--baseline", str(folder / "known.toml"), "--out", out) != 0
            alarms["compare"] += call("compare", str(folder / "first"), out) != 0
            print(f"run {number}: {alarms}", flush=True)
    return alarms


def repeat_loads(folder: Path, count: int) -> dict[str, dict]:
    """Return the alarms of each kind of load: of the unchanged server, and of the slower one."""
    found = {name: {"alarms": 0, "differences": [], "slower server gated": False} for name in LOADS}
    with serving(TPOT) as url:
        for number in range(count + 1):
            for name, options in LOADS.items():
                out = folder / f"{name.replace(' ', '-')}-{number}"
                sent = call("load", url, *options, "--seed", str(number), "--out", str(out))
                assert sent == 0, "every load is answered"
                if number:
                    code, differences = changes(folder / f"{name.replace(' ', '-')}-0", out)
                    found[name]["alarms"] += code != 0
                    found[name]["differences"] += [{"repetition": number, **one} for one in differences]
            print(f"load {number}: { {name: one['alarms'] for name, one in found.items()} }", flush=True)
    with serving(SLOWER_TPOT) as url:
        for name, options in LOADS.items():
            out = folder / f"{name.replace(' ', '-')}-slower"
            assert call("load", url, *options, "--out", str(out)) == 0
            code, _ = changes(folder / f"{name.replace(' ', '-')}-0", out)
            found[name]["slower server gated"] = code == 1
    return found


def main() -> int:
    """Run, print and write the numbers of alarms."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--loads", type=int, default=30)
    parser.add_argument("--out", type=Path)
    parser.add_argument("options", nargs="*", help="options of each run, after --")
    arguments = parser.parse_args()
    alarms: dict[str, int] = {}
    loads: dict[str, dict] = {}
    with TemporaryDirectory() as name:
        if arguments.runs:
            alarms = repeat_runs(Path(name), arguments.runs, arguments.options)
        if arguments.loads:
            loads = repeat_loads(Path(name), arguments.loads)
    figures = {
        "runs": arguments.runs,
        "options": arguments.options,
        "alarms": alarms,
        "loads": arguments.loads,
        "load alarms": loads,
    }
    print(json.dumps(figures))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    is_quiet = not any(alarms.values()) and not any(one["alarms"] for one in loads.values())
    return int(not is_quiet or not all(one["slower server gated"] for one in loads.values()))


if __name__ == "__main__":
    sys.exit(main())
