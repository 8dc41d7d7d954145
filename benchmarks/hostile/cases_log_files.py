"""The audit of files of other formats: databases, Arrow, archives in small pieces, vLLM's log, links and paths."""

from __future__ import annotations

import gzip
import json
import sqlite3
import struct
import subprocess
import sys
from pathlib import Path

from attacked_processes import judged, run
from case import Case, expect
from payloads import GIB, LEAK, log_line, write_log, zeros_gzip

PART = "audit of other files"
PAGE = 4096


def audited(folder: Path, *words: str, codes: tuple[int, ...] = (1, 2)) -> str:
    """Audit into `out`, and return the outcome with the counts of the footer."""
    outcome = judged(run(folder, "audit", *words, "--workers", "1", "--out", "out"), *codes)
    footer = json.loads((folder / "out" / "audit.jsonl").read_bytes().splitlines()[-1])
    return f"{outcome}; {footer['exchanges']} exchanges, {footer['unreadable']:,} unreadable"


def quoted_log(folder: Path) -> str:
    """A prompt that quotes the beginning of a line of vLLM's log 80,000 times."""
    begin = "INFO Received request cmpl-1: prompt: 'a', params: x, prompt_token_ids: [1]\n"
    (folder / "vllm.log").write_text(f"{begin}INFO {'Received request a: prompt: ' * 80_000}\n", "utf-8")
    return audited(folder, "vllm.log")


def small_pieces(folder: Path) -> str:
    """A table in one million members of gzip, each of one byte."""
    header, piece = gzip.compress(b"request,response\n"), gzip.compress(b"x", 1)
    (folder / "log.csv.gz").write_bytes(header + piece * 1_000_000)
    return audited(folder, "log.csv.gz")


def small_messages(folder: Path) -> str:
    (folder / "log.binpb").write_bytes((struct.pack(">I", 2) + b"\x0a\x00") * 100_000)
    return audited(folder, "log.binpb")


def looped_pages(folder: Path) -> str:
    """A database whose pages point to one another: a table of 64 million rows in 80 KiB."""
    path = folder / "log.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE log (request TEXT, response TEXT)")
        database.executemany("INSERT INTO log VALUES (?, ?)", [("x" * 300, "y" * 300)] * 100)
        root = database.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    database.close()
    data = bytearray(path.read_bytes())
    leaves = [page + 1 for page in range(1, len(data) // PAGE) if data[page * PAGE] == 13]
    pages = [root, *leaves[:3]]
    for page, child in zip(pages, pages[1:], strict=False):  # noqa: RUF007 - as it is read
        count, begin = 400, PAGE - 400 * 6
        inner = bytearray(struct.pack(">BHHHBI", 5, 0, count, begin, 0, child))
        inner += b"".join(struct.pack(">H", begin + place * 6) for place in range(count))
        inner += bytes(begin - len(inner))
        inner += b"".join(struct.pack(">IBB", child, min(place + 1, 127), 0) for place in range(count))
        data[(page - 1) * PAGE : page * PAGE] = inner
    path.write_bytes(bytes(data))
    return audited(folder, "log.db")


WRITE_ARROW = """
import struct
import pyarrow as pa
size = 1500 * 2**20
offsets = pa.py_buffer(struct.pack("<qq", 0, size))
batch = pa.record_batch([pa.LargeStringArray.from_buffers(1, offsets, pa.py_buffer(bytes(size)))], names=["response"])
with pa.ipc.new_file("log.arrow", batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
    writer.write_batch(batch)
"""


def arrow_bomb(folder: Path) -> str:
    subprocess.run([sys.executable, "-c", WRITE_ARROW, "--attack"], cwd=folder, check=True)
    size = (folder / "log.arrow").stat().st_size
    return f"{audited(folder, 'log.arrow')}; {size:,} bytes"


def arrow_announcement(folder: Path) -> str:
    """An Arrow stream in a small archive whose first message announces 2 GiB of metadata, and has them."""
    begin = gzip.compress(b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 8))
    (folder / "log.arrows.gz").write_bytes(begin + zeros_gzip(2 * GIB))
    return audited(folder, "log.arrows.gz")


def many_unreadable(folder: Path) -> str:
    """200,000 lines that are no exchange: all are counted, and their list has its limit."""
    (folder / "log.jsonl.gz").write_bytes(gzip.compress(b"x\n" * 200_000, 9))
    outcome = audited(folder, "log.jsonl.gz")
    size = (folder / "out" / "unreadable.jsonl").stat().st_size
    expect(size <= 64 * 2**20, f"{outcome}; a list of {size:,} bytes")
    return f"{outcome}; a list of {size // 2**20} MiB"


def links(folder: Path) -> str:
    """Links in a loop, to a device and to themselves, a FIFO and names for a terminal, and a good file."""
    logs = folder / "logs"
    (logs / "inner").mkdir(parents=True)
    for place, target in (("one", "."), ("two", "."), ("inner/up", ".."), ("self", "self"), ("zero", "/dev/zero")):
        (logs / place).symlink_to(target)
    subprocess.run(["mkfifo", str(logs / "fifo")], check=True)
    write_log(logs / "a\x1b[2J\u202e.jsonl", [log_line(LEAK)])
    ended = run(folder, "audit", "logs/**", "--workers", "1", "--out", "out")
    expect("\x1b" not in ended.text and "\u202e" not in ended.text, "a raw control in the terminal")
    footer = json.loads((folder / "out" / "audit.jsonl").read_bytes().splitlines()[-1])
    expect(footer["exchanges"] == 1, f"{footer['exchanges']} of 1 exchange")
    return f"{judged(ended, 1)}; 1 exchange"


def long_path(folder: Path) -> str:
    write_log(folder / "log.jsonl", [log_line(LEAK)])
    return audited(
        folder, "log.jsonl", "--map", f"request=request{'.a' * 50_000}", "--map", "response=response", codes=(0, 1, 2)
    )


def case(name: str, expected: str, attack: object, **limits: float) -> Case:
    return Case(
        name=f"log.{name}",
        part=PART,
        report="second attack",
        expected=expected,
        attack=attack,
        **limits,  # type: ignore[arg-type]
    )


CASES = (
    case("vLLM's log, quoted 80,000 times", "counted, in linear time", quoted_log),
    case("CSV in 10^6 members of gzip", "counted, in linear time", small_pieces, seconds=90),
    case("OTLP of 10^5 empty messages", "counted, in linear time", small_messages, seconds=90),
    case("SQLite pages in a loop", "ends: the file is damaged", looped_pages),
    case("Arrow, 1.5 GB in one group", "refused", arrow_bomb, seconds=90),
    case("Arrow, 2 GB announced", "refused", arrow_announcement, seconds=90),
    case("200,000 unreadable lines", "counted; the list has a limit", many_unreadable, seconds=120),
    case("links, devices and FIFO", "the good file is judged", links),
    case("--map with 50,000 parts", "no fault of our own", long_path),
)
