"""Files that made an audit slow, large or blind: each record is still read, or counted with its place."""

import io
import json
import os
import sqlite3
import struct
import subprocess
import sys
from itertools import chain, pairwise, repeat

import pytest

from harmony_conformance.audit.folder import out_folder
from harmony_conformance.audit.readers.files import mitmproxy_flows, otlp_binary, sources, texts
from harmony_conformance.audit.readers.files.formats import open_logs
from harmony_conformance.audit.readers.files.sources import PeekableStream, expand
from harmony_conformance.audit.readers.records.shapes import parse_record
from harmony_conformance.cli.main import main
from harmony_conformance.evidence.file_lines import DamagedFileError, Line, UnreadableLine

PYTHON = os.environ.get("HARMONY_MITMPROXY_PYTHON", "")


def records_of(path):
    return [record for log in open_logs([str(path)], "auto") for record in log.records]


def in_pieces(data, size=1):
    """A stream whose every read returns a few bytes, as that of a hostile archive does."""
    file = io.BytesIO(data)
    return PeekableStream(lambda _: file.read(size))


def test_a_prompt_that_quotes_the_log_of_vllm_is_read_once(tmp_path):
    quoted = "Received request a: prompt: " * 40_000
    (path := tmp_path / "vllm.log").write_text(
        f"INFO Received request cmpl-1: prompt: {quoted!r}\n"
        f"INFO Received request cmpl-2: prompt: {quoted!r}, params: x, prompt_token_ids: [1, 2]\n"
        "INFO Generated response cmpl-2: output: 'Hi', output_token_ids: [3], finish_reason: stop\n",
        "utf-8",
    )
    (record,) = (json.loads(record.data) for record in records_of(path))
    assert (record["prompt_token_ids"], record["output"]) == ([1, 2], "Hi")


def test_a_long_line_in_small_pieces_is_joined_once():
    lines = [b"request,response\n", b"x" * 400_000 + b"\n", b"\n", b"last"]
    assert list(texts._raw_lines(in_pieces(b"".join(lines)))) == lines


def test_small_messages_of_otlp_are_read_in_linear_time():
    data = struct.pack(">I", 2) + b"\x0a\x00"
    stream = PeekableStream(io.BytesIO(data * 300_000 + b"\x00").read)
    *messages, torn = otlp_binary._messages(stream)
    assert messages == [b"\x0a\x00"] * 300_000
    assert isinstance(torn, UnreadableLine)


def test_a_part_without_limit_is_not_read(monkeypatch):
    monkeypatch.setattr(sources, "_LONGEST_READ", 1000)
    for size in (1001, -1):
        with pytest.raises(DamagedFileError, match=r"at most 1000 are read|more than 1000"):
            PeekableStream(lambda _: bytes(64)).read(size)
    assert PeekableStream(lambda _: bytes(64)).read(1000) == bytes(1000)


def test_a_stream_returns_no_more_than_it_is_asked_for():
    stream = in_pieces(b"abcdefghij" * 10, 50)
    assert [stream.read(1), stream.read1(2), stream.read(60), stream.read()] == [
        b"a",
        b"bc",
        b"defghij" + b"abcdefghij" * 5 + b"abc",
        b"defghij" + b"abcdefghij" * 3,
    ]


def test_an_arrow_stream_that_announces_a_large_part_is_damaged(tmp_path):
    (path := tmp_path / "log.arrows").write_bytes(b"\xff\xff\xff\xff" + struct.pack("<i", 2**31 - 8) + bytes(1000))
    (problem,) = records_of(path)
    assert problem.kind == "the file is damaged"


WRITE_ARROW = """
import pyarrow as pa, sys
options = pa.ipc.IpcWriteOptions(compression="zstd")
batches = [pa.record_batch([pa.array(texts)], names=["response"]) for texts in (["small"], ["z" * 2**20] * 500)]
with getattr(pa.ipc, f"new_{sys.argv[2]}")(sys.argv[1], batches[0].schema, options=options) as writer:
    for batch in batches:
        writer.write_batch(batch)
"""


READ_ARROW = """
import json, sys
from harmony_conformance.audit.readers.files import formats, tables
tables.GROUP_MEMORY = 256 * 2**20  # Arrow reserves 64 MiB for each of its threads
records = [one for log in formats.open_logs([sys.argv[1]], "auto") for one in log.records]
print(json.dumps([one.data.decode() if hasattr(one, "data") else one.kind for one in records]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is for Linux")
@pytest.mark.parametrize("form", ["file", "stream"])
def test_a_compressed_group_that_needs_too_much_memory_is_refused(tmp_path, form):
    path = tmp_path / "log.arrow"
    # by other processes: this one has memory of earlier tests, which it would use again
    subprocess.run([sys.executable, "-c", WRITE_ARROW, path, form], check=True)
    assert path.stat().st_size < 100_000
    done = subprocess.run([sys.executable, "-c", READ_ARROW, path], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout) == ['{"response": "small"}', "a part of the file needs too much memory"]


def looped_database(path):
    """A table whose pages point to one another: a few kilobytes stand for 64 million rows."""
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE log (request TEXT, response TEXT)")
        database.executemany("INSERT INTO log VALUES (?, ?)", repeat(("x" * 300, "y" * 300), 100))
        root = database.execute("SELECT rootpage FROM sqlite_master").fetchone()[0]
    database.close()
    data, size = bytearray(path.read_bytes()), 4096
    leaves = [page + 1 for page in range(1, len(data) // size) if data[page * size] == 13]
    pages = [root, *leaves[:2], leaves[2]]
    for page, child in pairwise(pages):
        count, begin = 400, size - 400 * 6
        inner = bytearray(struct.pack(">BHHHBI", 5, 0, count, begin, 0, child))
        inner += b"".join(struct.pack(">H", begin + place * 6) for place in range(count))
        inner += bytes(begin - len(inner))
        inner += b"".join(struct.pack(">IBB", child, min(place + 1, 127), 0) for place in range(count))
        data[(page - 1) * size : page * size] = inner[:size]
    path.write_bytes(bytes(data))


def test_pages_of_sqlite_that_form_a_loop_end(tmp_path):
    looped_database(path := tmp_path / "log.db")
    *rows, problem = records_of(path)
    assert all(isinstance(row, Line) for row in rows)
    assert 0 < len(rows) < path.stat().st_size / 600
    assert problem.kind == "the file is damaged"


def test_links_that_form_a_loop_are_not_followed(tmp_path, monkeypatch):
    (inner := tmp_path / "logs" / "inner").mkdir(parents=True)
    for folder in (tmp_path / "logs", inner):
        for name in ("one", "two"):
            (folder / name).symlink_to(tmp_path / "logs")
    for name in ("a.jsonl", "inner/b.jsonl", "inner/.hidden.jsonl", "c.txt"):
        (tmp_path / "logs" / name).write_text("", "utf-8")
    every = [f"{tmp_path}/logs/{name}" for name in ("a.jsonl", "c.txt", "inner/b.jsonl")]
    assert list(expand(iter([f"{tmp_path}/logs/**"]))) == every
    assert list(expand(iter([f"{tmp_path}/l*/**/*"]))) == every
    assert list(expand(iter([f"{tmp_path}/**/*.jsonl"]))) == [every[0], every[2]]
    monkeypatch.chdir(tmp_path)
    assert list(expand(iter(["**/*.jsonl"]))) == ["logs/a.jsonl", "logs/inner/b.jsonl"]
    assert list(expand(iter(["logs/*.jsonl"]))) == ["logs/a.jsonl"]


def test_flows_are_separated_by_their_sizes(monkeypatch):
    monkeypatch.setattr(mitmproxy_flows, "_LONGEST_FLOW", 100)
    flows = [b"3:abc}", b"200:" + bytes(200) + b"}", b"0:}", b"4:defg}", b"9:cut"]
    found = list(mitmproxy_flows._netstrings(in_pieces(b"".join(flows), 50)))
    assert [one if isinstance(one, bytes) else one.kind for one in found] == [
        b"3:abc}",
        "the flow is too long",
        b"0:}",
        b"4:defg}",
        "the flows are truncated or damaged",
    ]


@pytest.mark.parametrize("data", [b"1234567890123:x}", b":x}", b"-1:x}", b"\xff" * 40])
def test_a_file_without_sizes_of_flows_is_damaged(data):
    (problem,) = mitmproxy_flows._netstrings(in_pieces(data))
    assert problem.kind == "the flows are truncated or damaged"


WRITE_FLOWS = """
import json, sys
from mitmproxy import io
from mitmproxy.test import tflow, tutils
def flow(time=1.0):
    request = tutils.treq(method=b"POST", path=b"/v1/chat/completions", content=b'{"messages": []}')
    response = tutils.tresp(content=b'{"object": "chat.completion", "choices": []}')
    made = tflow.tflow(req=request, resp=response)
    made.request.timestamp_start = time
    return made
with open(sys.argv[1], "wb") as file:
    writer = io.FlowWriter(file)
    writer.add(flow())
    writer.add(flow(1e300))
    file.write(b"21:7:version;8:99999999#}")
    file.write(b"3:abc}")
    writer.add(flow())
"""


@pytest.mark.skipif(not PYTHON, reason="HARMONY_MITMPROXY_PYTHON names no environment with mitmproxy 12")
def test_a_flow_that_cannot_be_read_hides_no_other(tmp_path):
    subprocess.run([PYTHON, "-c", WRITE_FLOWS, tmp_path / "flows"], check=True)
    words = ["-m", "harmony_conformance", "audit", tmp_path / "flows", "--out", tmp_path / "out"]
    subprocess.run([PYTHON, *words], check=False, capture_output=True)
    footer = json.loads((tmp_path / "out" / "audit.jsonl").read_text("utf-8").splitlines()[-1])
    assert (footer["exchanges"], footer["unreadable"]) == (3, 2)


def test_the_list_of_unreadable_lines_has_a_limit(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(out_folder, "UNREADABLE_LIMIT", 5000)
    (log := tmp_path / "log.jsonl").write_text("".join(chain(repeat("no JSON\n", 3000))), "utf-8")
    assert main(["audit", str(log), "--out", str(tmp_path / "out")]) == 2
    listed = (tmp_path / "out" / "unreadable.jsonl").read_bytes()
    assert len(listed) <= 5000
    places = [json.loads(line)["offset"] for line in listed.splitlines()]
    assert places == [8 * number for number in range(len(places))]
    footer = json.loads((tmp_path / "out" / "audit.jsonl").read_text("utf-8").splitlines()[-1])
    assert footer["unreadable"] == 3000
    said = f"{3000 - len(places)} more unreadable lines are counted, but not listed in unreadable.jsonl"
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "record",
    [
        {
            "request": {"model": "m", "input": [{"role": "user", "content": [{"type": {}, "text": "x"}]}]},
            "response": {"object": "response", "output": [], "status": "completed"},
            "path": "/v1/responses",
        },
        {
            "request": {"messages": [], "max_tokens": 1, "thinking": {"type": []}},
            "response": {"type": "message", "content": [], "stop_reason": {}, "stop_details": {}},
            "path": "/v1/messages",
        },
    ],
    ids=["responses", "messages"],
)
def test_a_type_that_is_no_text_is_no_error_of_an_audit(tmp_path, record):
    (log := tmp_path / "log.jsonl").write_text(json.dumps(record) + "\n", "utf-8")
    assert main(["audit", str(log), "--out", str(tmp_path / "out")]) in (0, 1)
    footer = json.loads((tmp_path / "out" / "audit.jsonl").read_text("utf-8").splitlines()[-1])
    assert (footer["exchanges"], footer["counts"]["error"], footer["errors"]) == (1, 0, 0)


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("in" + ".a" * 50_000, None),
        ("list." + "9" * 5000, None),
        ("list.1.b", "c"),
        ("text.x", [1]),
        ("a.b", "whole"),
        ("list..", None),
    ],
)
def test_a_path_of_any_length_is_followed(path, found):
    record = {"in": {"a": {}}, "list": [0, {"b": "c"}], "text": '{"x": [1]}', "a.b": "whole", "a": {"b": "part"}}
    line = Line(offset=0, number=1, data=json.dumps(record).encode())
    (value,) = parse_record(line, {"request": path})
    assert value == {"request": found}
