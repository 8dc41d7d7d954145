"""Measure audits of generated logs, and a JSON parser on the same lines: `measure.py [--size 1GB] [--out FILE]`.

Every contender is a process, and the contenders take turns. The figure is CPU time: user and system time of the process and its children. Where
stated, that of a run on an empty log is subtracted. Linux only. `make bench-audit` writes docs/audit-performance.md from the results.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from generate import DEFAULT_LEAKS, DEFAULT_MENTIONS, parse_size

from harmony_conformance.audit.plans.needles import NEEDLES, TOGETHER

ROOT = Path(__file__).parents[2]
GENERATE = Path(__file__).with_name("generate.py")
ORJSON = ROOT / ".benchmarks" / "orjson" / "bin" / "python"
PARSE = """
import sys, time, orjson
lines = open(sys.argv[1], "rb").read().splitlines()
start = time.process_time()
for line in lines: orjson.loads(line)
print(time.process_time() - start)
"""
SEARCH = """
import sys, time
from pathlib import Path

def search(count, log):
    count(Path(log).open("rb").read(100_000))
    begin, spent, found = time.process_time(), 0.0, 0
    with Path(log).open("rb", buffering=0) as file:
        rest = b""
        while data := file.read(512 * 1024):
            end = data.rfind(b"\\n") + 1
            part, rest = rest + data[:end], data[end:]
            start = time.process_time()
            found += count(part)
            spent += time.process_time() - start
    print(spent, found, time.process_time() - begin - spent)
"""
FIND = (
    SEARCH
    + """
from harmony_conformance.audit.plans.prefilter import find_lines
search(lambda part: len(list(find_lines(part, sys.argv[2]))), sys.argv[1])
"""
)
LITERALS = (
    SEARCH
    + """
from harmony_conformance.audit.plans.literal_search import lines_with_literals
search(lambda part: len(list(lines_with_literals(part))), sys.argv[1])
"""
)
ABSENT_BYTE = (
    SEARCH
    + """
search(lambda part: part.find(b"\\x00") >= 0, sys.argv[1])
"""
)
ONE_WORD = (
    SEARCH
    + """
import hyperscan
database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
database.compile(expressions=[b"assistantfinal"], ids=[0], elements=1, flags=[0])

def count(part):
    found = []
    database.scan(part, match_event_handler=lambda *hit: found.append(hit))
    return len(found)

search(count, sys.argv[1])
"""
)
LIMITS = {"absent byte": ABSENT_BYTE, "one word": ONE_WORD}
"""Scripts that search parts of a log as an audit does: each part is in the cache, as it was just read.

They print the CPU time of the search, what they found, and the CPU time of reading. `LIMITS`: searches that no search for needles can surpass.
"""
NEEDLE_CHECKS = {"channels.no_marker_leak", "channels.no_channel_words"}


def make_log(path: Path, size: int, leaks: float, mentions: float) -> dict:
    """Write a log in another process: a process starts with the peak memory of the one that started it."""
    options = ["--size", f"{size / 1e6:.6f}MB", "--leaks", str(leaks), "--mentions", str(mentions)]
    subprocess.run([sys.executable, GENERATE, path, *options], check=True, stdout=subprocess.DEVNULL)
    with path.open("rb") as log, truth_of(path).open("rb") as truth:
        number, planted = (sum(1 for _ in lines) for lines in (log, truth))
    return {"records": number, "planted": planted, "bytes": path.stat().st_size, "leaks": leaks, "mentions": mentions}


def truth_of(log: Path) -> Path:
    return log.with_name(log.name + ".truth.jsonl")


def run(*words: str | Path) -> list[float]:
    return [
        float(part) for part in subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip().split()
    ]


def audit(log: Path, out: Path, *options: str) -> dict:
    """Run an audit, and return its CPU time, wall time, peak memory of its largest process, and findings."""
    command = [sys.executable, "-m", "harmony_conformance", "audit", log, "--out", out, "--excerpts", "none", *options]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    printed = process.stderr.read().decode()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{command}: exit code {process.returncode}\n{printed}")
    lines = [json.loads(line) for line in (out / "audit.jsonl").read_bytes().splitlines()]
    return {
        "wall": time.perf_counter() - start,
        "cpu": used.ru_utime + used.ru_stime,
        "peak_mib": used.ru_maxrss / 1024,
        "judged": lines[0]["exchanges"],
        "passed_over": lines[0]["plan"]["passed_over"],
        "unreadable": lines[0]["unreadable"],
        "errors": lines[0]["errors"],
    }


def found_offsets(out: Path, checks: set[str]) -> set[int]:
    rows = map(json.loads, (out / "failures.jsonl").read_bytes().splitlines())
    return {int(row["exchange"].rpartition("@")[2].partition(".")[0]) for row in rows if row["check"] in checks}


def recall(log: Path, needles: Path, structure: Path) -> dict:
    """Compare the planted leaks with the findings of both plans, form by form."""
    by_needles, by_structure = (found_offsets(out, NEEDLE_CHECKS) for out in (needles, structure))
    forms: dict[str, list[int]] = {}
    for row in map(json.loads, truth_of(log).read_bytes().splitlines()):
        counts = forms.setdefault(row["form"], [0, 0, 0])
        for place, is_found in enumerate((True, row["offset"] in by_structure, row["offset"] in by_needles)):
            counts[place] += is_found
    return {
        "forms": {
            form: dict(zip(("planted", "all checks", "needles"), counts, strict=True)) for form, counts in forms.items()
        },
        "missed_by_needles": len(by_structure - by_needles),
        "found_by_all_checks": len(by_structure),
    }


def spread(values: list[float]) -> dict:
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=parse_size, default="1GB", help="size of the logs for needles")
    parser.add_argument("--judged-size", type=parse_size, default="50MB", help="size of the logs that all checks judge")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = measure(Path(folder), given.size, given.judged_size, given.rounds)
    given.out.write_text(json.dumps(results, indent=2) + "\n", "utf-8")


def measure(folder: Path, size: int, judged_size: int, rounds: int) -> dict:
    clean, leaking, small = folder / "clean.jsonl", folder / "leaking.jsonl", folder / "small.jsonl"
    logs = {
        "clean": make_log(clean, size, 0, 0),
        "leaking": make_log(leaking, size, DEFAULT_LEAKS, DEFAULT_MENTIONS),
        "small": make_log(small, judged_size, 20 * DEFAULT_LEAKS, 0.1),
    }
    libraries = ("hyperscan", "google-re2")
    times: dict[str, list[float]] = {name: [] for name in ("orjson", *libraries, "literals", *LIMITS, "reading")}
    candidates = {}
    for _ in range(rounds):
        times["orjson"].append(run(ORJSON, "-c", PARSE, clean)[0])
        for library in libraries:
            seconds, candidates[library], _ = run(sys.executable, "-c", FIND, clean, library)
            times[library].append(seconds)
        seconds, candidates["literals"], _ = run(sys.executable, "-c", LITERALS, clean)
        times["literals"].append(seconds)
        for name, script in LIMITS.items():
            seconds, _, reading = run(sys.executable, "-c", script, clean)
            times[name].append(seconds)
        times["reading"].append(reading)
    empty = folder / "empty.jsonl"
    empty.write_bytes(clean.open("rb").readline())
    start = {"needles": audit(empty, folder / "start", "--workers", "1")}
    with leaking.open("rb") as log, empty.open("ab") as one_leak:  # causes of failures are prepared once
        log.seek(json.loads(truth_of(leaking).open("rb").readline())["offset"])
        one_leak.write(log.readline())
    start["structure"] = audit(empty, folder / "start", "--workers", "1")
    audits = {
        f"{plan}, {log.stem}, {workers}": audit(
            log, folder / f"{plan}-{log.stem}-{workers}", "--plan", plan, "--workers", str(workers)
        )
        for plan, log in (("needles", clean), ("needles", leaking), ("structure", leaking), ("structure", small))
        for workers in (1, 2)
    }
    audit(small, folder / "needles-small", "--plan", "needles", "--workers", "1")
    return {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "rounds": rounds,
        "logs": logs,
        "seconds": {name: spread(values) for name, values in times.items()},
        "candidates": candidates,
        "patterns": len(NEEDLES) + sum(map(len, TOGETHER)),
        "start": start,
        "audits": audits,
        "recall": recall(small, folder / "needles-small", folder / "structure-small-1"),
    }


if __name__ == "__main__":
    main()
