"""The audit of hostile logs."""

from __future__ import annotations

import functools
import gzip
import json
import os
import signal
import sqlite3
import subprocess
from pathlib import Path

from attacked_processes import alive, children, finish, judged, run, start, until
from case import Case, expect
from cases_run import full_disk
from payloads import BACKSLASHES, GIB, LEAK, log_line, malformed_lines, ordinary_log, write_log, zeros_gzip

PART = "audit"
MANY = 20_000
AUDIT = ("audit", "log.jsonl", "--workers", "2", "--out", "out")


def tool_names(excerpts: str, folder: Path) -> str:
    """Names with backslashes in the middle of good lines: all lines count."""
    good = [log_line(LEAK), log_line("Fine."), log_line("Good.")]
    log = write_log(folder / "log.jsonl", [*good, *(log_line(LEAK, tool=name) for name in BACKSLASHES), *good])
    outcome = judged(run(folder, "audit", str(log), "--excerpts", excerpts, "--out", "out"), 0, 1)
    footer = json.loads((folder / "out" / "audit.jsonl").read_bytes().splitlines()[-1])
    expected = 6 + len(BACKSLASHES)
    expect(footer.get("exchanges") == expected, f"{outcome}; {footer.get('exchanges')} of {expected} exchanges")
    return f"{outcome}; {expected} exchanges"


def newlines(folder: Path) -> str:
    (folder / "log.jsonl.gz").write_bytes(zeros_gzip(GIB, b"\n"))
    return judged(run(folder, "audit", "log.jsonl.gz", "--out", "out"), 2)


def long_line(folder: Path) -> str:
    (folder / "log.jsonl.gz").write_bytes(zeros_gzip(2 * GIB, b"x"))
    return judged(run(folder, "audit", "log.jsonl.gz", "--out", "out"), 2)


def sparse_file(folder: Path) -> str:
    log = ordinary_log(folder / "log.jsonl", 10)
    with log.open("r+b") as file:
        file.truncate(GIB)
    return judged(run(folder, "audit", "log.jsonl", "--out", "out"), 1)


def malformed(folder: Path) -> str:
    (folder / "log.jsonl").write_bytes(b"\n".join(malformed_lines()) + b"\n")
    outcome = judged(run(folder, "audit", "log.jsonl", "--out", "out"), 0, 1)
    unreadable = (folder / "out" / "unreadable.jsonl").read_text("utf-8").count("\n")
    return f"{outcome}; {unreadable} lines unreadable"


def broken_gzip(folder: Path) -> str:
    log = ordinary_log(folder / "log.jsonl", 200).read_bytes()
    packed = gzip.compress(log)
    (folder / "cut.gz").write_bytes(packed[: len(packed) // 2])
    (folder / "garbage.gz").write_bytes(packed + b"garbage" * 100)
    (folder / "joined.gz").write_bytes(packed + packed)
    return judged(run(folder, "audit", "cut.gz", "garbage.gz", "joined.gz", "--out", "out"), 1)


def started(folder: Path) -> subprocess.Popen[bytes]:
    """An audit that has workers and has written failures."""
    ordinary_log(folder / "log.jsonl", MANY)
    process = start(folder, *AUDIT)
    failures = folder / "out" / "failures.jsonl"
    until(
        lambda: len(children(process.pid)) > 1 and failures.is_file() and failures.stat().st_size,
        40,
        "no failures written",
    )
    return process


def counted(folder: Path) -> str:
    """Check that every exchange is in the footer."""
    footer = json.loads((folder / "out" / "audit.jsonl").read_bytes().splitlines()[-1])
    expect(footer.get("exchanges") == MANY, f"{footer.get('exchanges')} of {MANY:,} exchanges")
    return f"{MANY:,} exchanges"


def kill_parent(folder: Path) -> str:
    process = started(folder)
    below = children(process.pid)
    process.kill()
    process.wait()
    until(lambda: not any(map(alive, below)), 15, "workers left after 15 s")
    outcome = judged(run(folder, *AUDIT, "--resume", seconds=100), 1)
    return f"no workers left; resumed: {outcome}, {counted(folder)}"


def kill_worker(folder: Path) -> str:
    process = started(folder)
    os.kill(children(process.pid)[-1], signal.SIGKILL)
    return f"{judged(finish(process, 100), 1)}; {counted(folder)}"


def disk_full(folder: Path) -> str:
    log = ordinary_log(folder / "log.jsonl", 2000)
    with full_disk(folder, "128k") as disk:
        return judged(run(folder, "audit", str(log), "--out", str(disk / "out")), 2)


def computed_columns(folder: Path) -> str:
    """A database of 8 KiB whose column means 200 texts of 900 MB: it is not computed."""
    path = folder / "log.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE log (id INTEGER, completion TEXT AS (printf('%.*c', 000000009, 'x')) VIRTUAL)")
        database.executemany("INSERT INTO log VALUES (?)", [(number,) for number in range(200)])
    database.close()
    path.write_bytes(path.read_bytes().replace(b"000000009", b"900000000"))
    ended = run(folder, "audit", "log.db", "--workers", "1")
    expect(ended.code in (1, 2), f"exit {ended.code}: {ended.last_line()}")
    return f"exit {ended.code}; {path.stat().st_size:,} bytes"


def case(name: str, report: str, expected: str, attack: object, **limits: float) -> Case:
    return Case(name=f"audit.{name}", part=PART, report=report, expected=expected, attack=attack, **limits)  # type: ignore[arg-type]


CASES = (
    *(
        case(f"tool names, --excerpts {excerpts}", "F1", "all lines counted", functools.partial(tool_names, excerpts))
        for excerpts in ("redacted", "none", "full")
    ),
    case("1 GiB of newlines in 1 MB", "F10", "nothing to check: exit 2", newlines),
    case("one line of 2 GiB in 2 MB", "survived 4", "unreadable: exit 2", long_line, seconds=90),
    case("sparse file of 1 GiB", "survived 4", "one unreadable line", sparse_file, seconds=90),
    case("malformed lines", "survived 4", "counted, others judged", malformed),
    case("broken gzip", "survived 4", "counted, others judged", broken_gzip),
    case("kill -9 of the audit, resume", "F8", "no workers left; resumed", kill_parent, seconds=180),
    case("kill -9 of a worker", "F8", "all lines judged", kill_worker, seconds=180),
    case("SQLite columns that compute 180 GB", "second attack", "not computed: exit 1 or 2", computed_columns),
    case("disk full", "survived 3", "exit 2, one line", disk_full),
)
