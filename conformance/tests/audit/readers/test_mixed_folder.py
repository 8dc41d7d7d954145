"""A folder of mixed formats, with files that are empty, damaged, of other kinds, and still being written: one line for each problem."""

import csv
import gzip
import io
import json
import os
import random
import socket
import sqlite3
import subprocess
import sys
import tarfile
import zlib
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from harmony_conformance.cli import audit as command
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
LEAK = "Hello.<|end|><|start|>assistant<|channel|>final<|message|>Hello."
CHUNK = {"object": "chat.completion.chunk", "id": "1", "created": 1, "model": "m"}


def answer(content):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {"object": "chat.completion", "id": "1", "created": 1, "model": "m", "choices": [choice], "usage": None}


ROWS = [{"request": ASKED, "response": answer(content)} for content in ("Hello.", LEAK, "Hello again.")]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
AS_TEXT = [{name: json.dumps(value) for name, value in row.items()} for row in ROWS]


def har():
    entries = [
        {
            "request": {"url": "https://x/v1/chat/completions", "headers": [], "postData": {"text": row["request"]}},
            "response": {
                "status": 200,
                "headers": [],
                "content": {"mimeType": "application/json", "text": row["response"]},
            },
        }
        for row in AS_TEXT
    ]
    return json.dumps({"log": {"version": "1.2", "entries": entries}}).encode()


def capture():
    choices = [
        {"index": 0, "delta": {"role": "assistant", "content": LEAK}, "finish_reason": None},
        {"index": 0, "delta": {}, "finish_reason": "stop"},
    ]
    events = "".join(f"data: {json.dumps({**CHUNK, 'choices': [choice]})}\n\n" for choice in choices)
    return (events + "data: [DONE]\n\n").encode()


def table():
    pq.write_table(pa.Table.from_pylist(AS_TEXT), file := io.BytesIO())
    return file.getvalue()


def as_csv():
    writer = csv.DictWriter(file := io.StringIO(newline=""), ["request", "response"])
    writer.writeheader()
    writer.writerows(AS_TEXT)
    return file.getvalue().encode()


def database(folder):
    with sqlite3.connect(path := folder / "made.db") as made:
        made.execute("CREATE TABLE calls (request TEXT, response TEXT)")
        made.executemany("INSERT INTO calls VALUES (:request, :response)", AS_TEXT * 100)
    made.close()
    data = path.read_bytes()
    path.unlink()
    return data


def tar():
    with tarfile.open(fileobj=(file := io.BytesIO()), mode="w") as archive:
        archive.addfile(member := tarfile.TarInfo("log.jsonl"))
        member.size = len(LINES)
        archive.addfile(member, io.BytesIO(LINES))
    return file.getvalue()


RANDOM = random.Random(1)
LONG = b"".join(json.dumps({**ROWS[0], "note": RANDOM.randbytes(20).hex()}).encode() + b"\n" for _ in range(500))
TORN = gzip.compress(LONG)[: len(gzip.compress(LONG)) * 2 // 3]
TORN_LINE = "no JSON: the last line is torn, or still being written"
READ = {
    "lines.jsonl": (LINES, 3),
    "lines with a mark.jsonl": (b"\xef\xbb\xbf" + LINES.replace(b"\n", b"\r\n"), 3),
    "list.json.gz": (gzip.compress(json.dumps(ROWS).encode()), 3),
    "lines.jsonl.zst": (zstandard.compress(LINES), 3),
    "archive.har": (har(), 3),
    "table.parquet": (table(), 3),
    "capture.sse": (capture(), 1),
    "rows.csv": (as_csv(), 3),
    "empty.jsonl": (b"", 0),
    "blank.jsonl": (b"\n  \n\n", 0),
    "empty.jsonl.gz": (gzip.compress(b""), 0),
}
DAMAGED = {
    "torn line.jsonl": (LINES + LINES[:100], TORN_LINE),
    "random.bin": (RANDOM.randbytes(300_000), "the file is binary, and of no format that is read"),
    "picture.png": (
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + RANDOM.randbytes(9000),
        "the file is binary, and of no format that is read",
    ),
    "utf-16.jsonl": (LINES.decode().encode("utf-16"), "the file is UTF-16: convert it (iconv -f utf-16 -t utf-8)"),
    "utf-16 without a mark.jsonl": (
        LINES.decode().encode("utf-16-be"),
        "the file is UTF-16 without a mark: convert it (iconv -f utf-16le -t utf-8, or utf-16be)",
    ),
    "logs.tar": (tar(), "the file is a tar archive: unpack it (tar -xf)"),
    "logs.tar.gz": (gzip.compress(tar()), "the file is a tar archive: unpack it (tar -xf)"),
    "logs.zip": (b"PK\x03\x04" + RANDOM.randbytes(999), "the file is a zip archive: unpack it (unzip)"),
    "rows.avro": (b"Obj\x01" + RANDOM.randbytes(999), "the file is Avro: write it as JSON Lines"),
    "torn.parquet": (table()[:-100], "the file is damaged"),
}


def write_all(folder):
    folder.mkdir()
    for name, (data, _) in {**READ, **DAMAGED}.items():
        (folder / name).write_bytes(data)
    (folder / "torn.jsonl.gz").write_bytes(TORN)
    (folder / "calls.db").write_bytes(made := database(folder))
    (folder / "torn.db").write_bytes(made[: len(made) // 2])
    (folder / "growing.jsonl").write_bytes(LINES)
    return folder


def audit(folder, out, *more):
    return cli.main(["audit", str(folder), "--out", str(out), *more])


def unreadable(folder, out):
    """Return the kinds of problems of each file, each with its number."""
    rows = map(json.loads, (out / "unreadable.jsonl").read_bytes().splitlines())
    found = Counter((row["file"].removeprefix(f"{folder}/").partition(":")[0], row["kind"]) for row in rows)
    return {name: {kind: n for (file, kind), n in found.items() if file == name} for name, _ in found}


@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_file_of_a_mixed_folder_is_read_or_has_one_line(tmp_path, monkeypatch, capsys, workers):
    folder, out = write_all(tmp_path / "log"), tmp_path / "out"
    scan_all = command.scan_all

    def append_while_judging(*args, **named):
        for scanned in scan_all(*args, **named):
            with (folder / "growing.jsonl").open("ab") as file:
                file.write(LINES)
            yield scanned

    monkeypatch.setattr(command, "scan_all", append_while_judging)
    assert audit(folder, out, "--workers", workers) == Exit.DIVERGES
    printed = capsys.readouterr()
    found = unreadable(folder, out)
    whole = found.pop("torn.jsonl.gz")
    assert whole.keys() <= {TORN_LINE, "the compressed file is truncated"}
    assert whole["the compressed file is truncated"] == 1
    torn = found.pop("torn.db")
    assert torn.pop("the file is truncated") == 1
    assert found == {name: {kind: 1} for name, (_, kind) in DAMAGED.items()}
    (line,) = (line for line in printed.err.splitlines() if line.startswith("unreadable lines: "))
    assert all(kind in line for _, kind in DAMAGED.values())
    (header, *_, footer) = map(json.loads, (out / "audit.jsonl").read_bytes().splitlines())
    assert len(header["files"]) == len(list(folder.iterdir()))
    rows = [json.loads(row)["exchange"] for row in (out / "failures.jsonl").read_bytes().splitlines()]
    leaks = Counter(place.rpartition("/")[2].partition("@")[0].partition("#")[0] for place in rows)
    assert {name for name, (_, exchanges) in READ.items() if exchanges} <= leaks.keys()
    assert {"growing.jsonl", "torn line.jsonl", "calls.db:calls"} <= leaks.keys()
    of_others = 300 + 3 + 3 + (len(json.loads(gzip_lines(TORN))))
    assert footer["exchanges"] >= sum(exchanges for _, exchanges in READ.values()) + of_others
    assert footer["unreadable"] == sum(sum(kinds.values()) for kinds in (*found.values(), whole, torn)) + 1


def gzip_lines(data):
    """Return the whole lines of a torn gzip file as a JSON list."""
    lines = zlib.decompressobj(31).decompress(data).split(b"\n")[:-1]
    return b"[" + b",".join(lines) + b"]"


def test_a_folder_without_an_exchange_says_what_is_in_it(tmp_path):
    (folder := tmp_path / "log").mkdir()
    for name, (data, _) in DAMAGED.items():
        if "torn" not in name:
            (folder / name).write_bytes(data)
    (folder / "empty.jsonl").touch()
    command = [sys.executable, "-m", "harmony_conformance", "audit", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        "harmony-conformance audit: nothing could be checked: no exchange in the input (1 x the file is Avro: "
    )
    assert f"1 x the file is a zip archive: unpack it (unzip), first at {folder}/logs.zip@0" in line


@pytest.mark.parametrize("data", [b"", b"\n \n"], ids=["empty", "blank"])
def test_an_empty_log_is_nothing_that_could_be_checked(tmp_path, capsys, data):
    (log := tmp_path / "log.jsonl").write_bytes(data)
    assert cli.main(["audit", str(log)]) == Exit.USAGE
    assert "nothing could be checked: no exchange in the input (the input is empty)" in capsys.readouterr().err


def test_a_last_line_without_a_line_feed_is_read(tmp_path, capsys):
    (log := tmp_path / "log.jsonl").write_bytes(LINES.rstrip())
    assert cli.main(["audit", str(log)]) == Exit.DIVERGES
    assert "3 exchanges judged" in capsys.readouterr().out


def test_needles_find_the_leaks_of_a_mixed_folder(tmp_path):
    folder = write_all(tmp_path / "log")
    leaks = []
    for plan in ("structure", "needles"):
        audit(folder, out := tmp_path / plan, "--plan", plan, "--workers", "1")
        rows = map(json.loads, (out / "failures.jsonl").read_bytes().splitlines())
        leaks.append([row["exchange"] for row in rows if row["check"] == "channels.no_marker_leak"])
    assert leaks[0] == leaks[1]
    assert len(leaks[0]) > 100


@pytest.mark.parametrize("pattern", ["", "/*.jsonl", "/**/*.jsonl"], ids=["folder", "glob", "glob of all folders"])
@pytest.mark.parametrize(
    "more", [(), ("--plan", "needles"), ("--incremental",)], ids=["all checks", "needles", "incremental"]
)
def test_a_link_that_leads_nowhere_is_counted_with_its_place(tmp_path, capsys, pattern, more):
    (folder := tmp_path / "log").mkdir()
    (folder / "a.jsonl").write_bytes(LINES)
    (folder / "moved.jsonl").symlink_to(tmp_path / "nothing.jsonl")
    (folder / "circle.jsonl").symlink_to(folder / "circle.jsonl")
    (folder / ".hidden.jsonl").symlink_to(tmp_path / "nothing.jsonl")
    out = tmp_path / "out"
    assert cli.main(["audit", f"{folder}{pattern}", "--out", str(out), "--workers", "1", *more]) == Exit.DIVERGES
    assert "a link that leads to no file" in capsys.readouterr().err
    rows = [json.loads(row) for row in (out / "unreadable.jsonl").read_bytes().splitlines()]
    kinds = {row["file"].rpartition("/")[2]: row["kind"] for row in rows}
    assert kinds == {"moved.jsonl": "a link that leads to no file", "circle.jsonl": "the file cannot be read"}
    header, *_, footer = map(json.loads, (out / "audit.jsonl").read_bytes().splitlines())
    assert len(header["files"]) == 3
    assert footer["unreadable"] == 2


def test_a_pipe_and_a_socket_of_a_folder_are_named(tmp_path, capsys):
    (folder := tmp_path / "log").mkdir()
    (folder / "a.jsonl").write_bytes(LINES)
    os.mkfifo(folder / "pipe")
    os.mkfifo(folder / ".hidden")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket"))
        assert cli.main(["audit", str(folder), "--workers", "1"]) == Exit.DIVERGES
    passed_over = [line for line in capsys.readouterr().err.splitlines() if "passed over" in line]
    told = "a pipe, a socket or a device in a folder, passed over: name it as a PATH"
    assert passed_over == [f"{folder}/pipe: {told}", f"{folder}/socket: {told}"]


@pytest.mark.parametrize("pattern", ["", "/**/*.jsonl"], ids=["folder", "glob of all folders"])
@pytest.mark.parametrize(
    "more", [(), ("--plan", "needles"), ("--incremental",)], ids=["all checks", "needles", "incremental"]
)
def test_a_link_to_a_folder_is_not_followed_and_counted_unless_its_files_are_read_elsewhere(
    tmp_path, capsys, pattern, more
):
    for name in ("log/day", "log/.hidden", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "a.jsonl").write_bytes(LINES)
    folder = tmp_path / "log"
    for name, target in {
        "outside": tmp_path / "other",
        "up": tmp_path,
        "into-hidden": folder / ".hidden",
        "latest": folder / "day",
        ".hidden-link": tmp_path / "other",
    }.items():
        (folder / name).symlink_to(target)
    out = tmp_path / "out"
    assert cli.main(["audit", f"{folder}{pattern}", "--out", str(out), "--workers", "1", *more]) == Exit.DIVERGES
    assert "3 x a link to a folder, which is not followed: name the folder as a PATH" in capsys.readouterr().err
    rows = [json.loads(row) for row in (out / "unreadable.jsonl").read_bytes().splitlines()]
    assert [row["file"] for row in rows] == [f"{folder}/{name}" for name in ("into-hidden", "outside", "up")]
    header, *_ = map(json.loads, (out / "audit.jsonl").read_bytes().splitlines())
    assert header["files"] == [f"{folder}/{name}" for name in ("day/a.jsonl", "into-hidden", "outside", "up")]
    once = tmp_path / "once"
    cli.main(["audit", f"{folder}/latest", "--out", str(once), "--workers", "1"])  # a link that is named is followed
    last = json.loads((once / "audit.jsonl").read_bytes().splitlines()[-1])
    assert (last["exchanges"], last["unreadable"]) == (3, 0)
