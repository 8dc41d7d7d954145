"""Attack every part, print the table, and exit with 1 if a case ends otherwise than expected: `hostile.py [--only PATTERN]`.

Each case is a separate process, in a separate session and temporary folder. Memory is the largest resident set of one
process of the part. Linux only. Nothing leaves the loopback interface.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import cases_audit
import cases_large_answers
import cases_log_files
import cases_measurements
import cases_other_clients
import cases_proxy
import cases_reference
import cases_run
import cases_secrets
import cases_serve
from case import ADDRESS_SPACE, Case, UnexpectedOutcomeError

CASES = (
    *cases_run.CASES,
    *cases_measurements.CASES,
    *cases_audit.CASES,
    *cases_log_files.CASES,
    *cases_large_answers.CASES,
    *cases_proxy.CASES,
    *cases_other_clients.CASES,
    *cases_serve.CASES,
    *cases_reference.CASES,
    *cases_secrets.CASES,
)
POLL_SECONDS = 0.02
ATTACKER = "--attack"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The result of one case."""

    name: str
    part: str
    report: str
    expected: str
    outcome: str
    passed: bool
    memory: int
    memory_limit: int
    seconds: float
    seconds_limit: float


def measure(case: Case) -> Measured:
    """Run a case in a separate process, and watch the processes of its part."""
    with tempfile.TemporaryDirectory(prefix="hostile-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        work, result = folder / "work", folder / "result.json"
        work.mkdir()
        begin = time.monotonic()
        command = [sys.executable, __file__, ATTACKER, case.name, str(work), str(result)]
        attacker = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        )
        peaks: dict[int, int] = {}
        try:
            while attacker.poll() is None and time.monotonic() - begin < case.seconds:
                watch(attacker.pid, peaks)
                time.sleep(POLL_SECONDS)
            seconds = time.monotonic() - begin
            in_time = attacker.poll() is not None
        finally:
            end_session(attacker.pid)
            attacker.wait()
        subprocess.run(["umount", "-l", str(work / "disk")], capture_output=True, check=False)
        if not in_time:
            passed, outcome = False, f"not over after {case.seconds:.0f} s"
        elif result.is_file():
            passed, outcome = json.loads(result.read_text("utf-8"))
        else:
            passed, outcome = False, f"the attack ended with {attacker.returncode} and no outcome"
    memory = max(peaks.values(), default=0) // 1024
    if passed and memory > case.memory:
        passed, outcome = False, f"{outcome}; more memory than {case.memory} MiB"
    return Measured(
        name=case.name,
        part=case.part,
        report=case.report,
        expected=case.expected,
        outcome=outcome,
        passed=passed,
        memory=memory,
        memory_limit=case.memory,
        seconds=round(seconds, 1),
        seconds_limit=case.seconds,
    )


def watch(session: int, peaks: dict[int, int]) -> None:
    """Note the KiB of the largest resident set of each process of the session except the attacker."""
    for number in members(session):
        if number == session:
            continue
        try:
            if ATTACKER.encode() in Path(f"/proc/{number}/cmdline").read_bytes():
                continue  # between fork and exec it is still the attacker
            status = Path(f"/proc/{number}/status").read_text("ascii", "replace")
        except OSError:
            continue
        for line in status.splitlines():
            if line.startswith("VmHWM:"):
                peaks[number] = max(peaks.get(number, 0), int(line.split()[1]))


def members(session: int) -> list[int]:
    """The processes of a session, orphans included."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text("ascii", "replace").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def end_session(session: int) -> None:
    """Kill what is left of the session."""
    for number in members(session):
        try:
            os.kill(number, signal.SIGKILL)
        except ProcessLookupError:
            continue


def attack(name: str, folder: Path, result: Path) -> None:
    """Run one case here and write its outcome."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(10_000, hard), hard))
    case = next(case for case in CASES if case.name == name)
    try:
        outcome = (True, case.attack(folder))
    except UnexpectedOutcomeError as unexpected:
        outcome = (False, str(unexpected))
    except Exception as error:  # noqa: BLE001 - a case that cannot be attacked is a failed case
        outcome = (False, f"the attack failed: {type(error).__name__}: {error}")
    result.write_text(json.dumps(outcome), "utf-8")
    sys.stdout.flush()
    os._exit(0)  # threads of hostile servers may still hold connections


def describe(measured: Measured) -> str:
    mark = "ok  " if measured.passed else "FAIL"
    return f"{mark} {measured.name:<48} {measured.memory:>5} MiB {measured.seconds:>6.1f} s  {measured.outcome}"


def write(path: Path, results: list[Measured]) -> None:
    """Write the results; those of other cases in the file stay."""
    kept = json.loads(path.read_text("utf-8"))["cases"] if path.is_file() else []
    by_name = {**{one["name"]: one for one in kept}, **{one.name: asdict(one) for one in results}}
    cases = [by_name[case.name] for case in CASES if case.name in by_name]
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "address_space": ADDRESS_SPACE}
    path.write_text(json.dumps({"machine": machine, "cases": cases}, indent=1) + "\n", "utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=["*"], nargs="+", metavar="PATTERN", help="names of cases")
    parser.add_argument(
        "--out",
        type=Path,
        default=None,
        metavar="FILE",
        help="write the results here as JSON; those of other cases stay",
    )
    parser.add_argument("--list", action="store_true", help="list the cases")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the session of a case ends with this process
    chosen = [case for case in CASES if any(fnmatchcase(case.name, pattern) for pattern in options.only)]
    results: list[Measured] = []
    for case in chosen:
        if options.list:
            print(f"{case.name:<48} {case.report:<12} {case.expected}")
            continue
        results.append(measure(case))
        print(describe(results[-1]), flush=True)
        if options.out:
            write(options.out, results)
    if options.list:
        return 0
    failed = [measured for measured in results if not measured.passed]
    print(f"{len(results)} cases, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    if sys.argv[1:2] == [ATTACKER]:
        attack(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))
    sys.exit(main())
