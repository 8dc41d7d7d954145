"""Kill audits at random moments, resume them, and compare the results: `kill_resume.py [--size 200MB] [--kills 20] [--out FILE]`.

The log is a folder of mixed formats (`mixed_log.py`). For each plan and number of workers, it is audited once without interruption. Then the same
audit is started and gets SIGKILL at a random moment of that time; `--resume` continues it, and may be killed in turn. The processes that judge get no
signal. A run that is not killed ends the round: its exit code, its report and all its files must equal those of the uninterrupted audit. After every
second kill, the audit is resumed at once, while the processes of the killed one may still run. Linux only. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from generate import parse_size
from mixed_log import write_folder

PLANS = {"needles": ("--plan", "needles", "--sample", "0.05"), "structure": ("--plan", "structure")}
COMPARED = [
    *("exit code", "standard output", "audit.jsonl", "failures.jsonl", "failures.parquet", "report.html"),
    "unreadable.jsonl",
]
ENDS_WITHIN = 60.0
"""Seconds in which the processes of a killed audit must have ended."""


@dataclass(kw_only=True)
class Kill:
    """One kill.

    Attributes:
        moment: Seconds from the start of the command.
        phase: What the folder showed: no journal, a journal with so many batches, or results being written.
        batches: The finished batches in the journal.
        is_resume: True if the killed command was itself a resume.
        left: The processes that the killed one had.
        seconds: Seconds until they had ended, None if the audit was resumed at once.
    """

    moment: float
    phase: str
    batches: int
    is_resume: bool
    left: int
    seconds: float | None = None


@dataclass(kw_only=True)
class Tested:
    """The kills of one plan and number of workers, and what differed from the uninterrupted audit."""

    whole_seconds: float
    kills: list[Kill] = field(default_factory=list)
    resumed: list[dict] = field(default_factory=list)
    differences: list[str] = field(default_factory=list)


def command(log: Path, out: Path, plan: str, workers: int, *more: str) -> list[str]:
    program = [sys.executable, "-m", "harmony_conformance", "audit", str(log), "--out", str(out), "--parquet"]
    return [*program, *PLANS[plan], "--workers", str(workers), *more]


def results(done: subprocess.CompletedProcess, out: Path) -> dict[str, bytes]:
    """Return everything that an audit leaves: exit code, report and files."""
    left = {path.name: path.read_bytes() for path in sorted(out.iterdir())}
    return {"exit code": str(done.returncode).encode(), "standard output": done.stdout, **left}


def differing(found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    return sorted(name for name in {*found, *expected} if found.get(name) != expected.get(name))


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(child) for task in tasks for child in task.read_text().split()]
    return [*found, *(below for child in found for below in children(child))]


def started_at(pid: int) -> str:
    """Return the start time of a running process, which distinguishes it from another process with its id; else an empty text."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return ""
    return "" if state == "Z" else fields[18]


def wait_for_ends(processes: dict[int, str]) -> float:
    """Return the seconds until processes have ended by themselves."""
    start = time.monotonic()
    while any(started_at(pid) == began for pid, began in processes.items()):
        if time.monotonic() > start + ENDS_WITHIN:
            raise SystemExit(f"processes of a killed audit still run after {ENDS_WITHIN:.0f} s: {processes}")
        time.sleep(0.02)
    return time.monotonic() - start


def folder_state(out: Path) -> tuple[str, int]:
    journal = out / "journal.jsonl"
    batches = max(journal.read_bytes().count(b"\n") - 1, 0) if journal.exists() else 0
    if any(
        (out / name).exists() for name in ("audit.jsonl", "report.html", "failures.parquet", ".failures.parquet.part")
    ):
        return "results are written", batches
    return ("records are judged" if batches else "before the first batch"), batches


def run_until(words: list[str], moment: float) -> tuple[subprocess.CompletedProcess, dict[int, str]]:
    """Run a command and kill it at a moment. Return its end, and the processes that it had started."""
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=moment)
        return subprocess.CompletedProcess(words, process.returncode, out, err), {}
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGSTOP)  # or it starts another process while they are listed
        left = {pid: began for pid in children(process.pid) if (began := started_at(pid))}
        process.send_signal(signal.SIGKILL)
        out, err = process.communicate()
        return subprocess.CompletedProcess(words, process.returncode, out, err), left


class Rounds:
    """The rounds of one plan and number of workers. State: what was tested so far."""

    def __init__(self, log: Path, folder: Path, options: tuple[str, int], rng: random.Random) -> None:
        self._log, self._folder, self._options, self._rng = log, folder, options, rng
        start = time.monotonic()
        done = subprocess.run(self._command("whole"), capture_output=True, check=False)
        if done.returncode not in {0, 1}:
            raise SystemExit(f"the uninterrupted audit ended with {done.returncode}: {done.stderr.decode()}")
        self._expected = results(done, folder / "whole")
        self.tested = Tested(whole_seconds=time.monotonic() - start)

    def run(self, kills: int) -> Tested:
        """Kill audits that many times, and resume each to its end."""
        number = 0
        while len(self.tested.kills) < kills:
            number += 1
            self._one_round(f"{number}", kills)
            shutil.rmtree(self._folder / f"{number}")
        return self.tested

    def _command(self, name: str, *more: str) -> list[str]:
        return command(self._log, self._folder / name, *self._options, *more)

    def _one_round(self, name: str, kills: int) -> None:
        """Start an audit, and kill and resume it until a run ends before its moment."""
        tested, out, killed = self.tested, self._folder / name, 0
        while True:
            is_last = len(tested.kills) == kills
            moment = ENDS_WITHIN * 60 if is_last else self._rng.random() * tested.whole_seconds
            done, left = run_until(self._command(name, *(["--resume"] if killed else [])), moment)
            if done.returncode != -signal.SIGKILL:
                break
            phase, batches = folder_state(out)
            kill = Kill(moment=round(moment, 3), phase=phase, batches=batches, is_resume=bool(killed), left=len(left))
            tested.kills.append(kill)
            if len(tested.kills) % 2:
                kill.seconds = round(wait_for_ends(left), 3)
            killed += 1
        differs = differing(results(done, out), self._expected)
        tested.differences += [f"after {len(tested.kills)} kills: {one}" for one in differs]
        tested.resumed.append({"kills": killed, "exit code": done.returncode, "differs": differs})
        print(
            f"  {killed} kills, then {f'other {differs}: {done.stderr.decode()}' if differs else 'equal'}", flush=True
        )


def summary(tested: Tested) -> dict:
    ended = [kill.seconds for kill in tested.kills if kill.seconds is not None]
    return {
        "uninterrupted_seconds": round(tested.whole_seconds, 2),
        "kills": len(tested.kills),
        "kills_of_resumed_audits": sum(kill.is_resume for kill in tested.kills),
        "phases": dict(Counter(kill.phase for kill in tested.kills)),
        "resumed_to_the_end": len(tested.resumed),
        "differences": tested.differences,
        "slowest_end_of_a_process": max(ended, default=None),
        "moments": [vars(kill) for kill in tested.kills],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=parse_size, default="200MB", help="size of the log for needles")
    parser.add_argument("--judged-size", type=parse_size, default="40MB", help="size of the log that all checks judge")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--plans", nargs="+", choices=[*PLANS], default=[*PLANS])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="file for the results; those of other plans and workers in it stay")
    given = parser.parse_args()
    sizes = {"needles": given.size, "structure": given.judged_size}
    differs = False
    for plan in given.plans:
        for workers in given.workers:
            print(f"{plan}, {workers} workers", flush=True)
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                log = write_folder(folder / "log", sizes[plan], given.seed)
                rng = random.Random(f"{given.seed} {plan} {workers}")
                tested = Rounds(folder / "log", folder, (plan, workers), rng).run(given.kills)
            differs = differs or bool(tested.differences)
            if given.out is not None:
                write(given.out, f"{plan}, {workers}", {"seed": given.seed, "log": log, **summary(tested)})
    return int(differs)


def write(path: Path, name: str, found: dict) -> None:
    figures = json.loads(path.read_text("utf-8")) if path.exists() else {"audits": {}}
    figures |= {"python": platform.python_version(), "cores": os.cpu_count(), "compared": COMPARED}
    figures |= {"plans": {plan: " ".join(options) for plan, options in PLANS.items()}}
    figures["audits"][name] = found
    path.write_text(json.dumps(figures, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    sys.exit(main())
