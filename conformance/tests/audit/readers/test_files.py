"""Files of a log: every format and packing gives the same records, and what cannot be read has its place."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import duckdb
import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from google.protobuf import json_format
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from harmony_conformance.audit.batches import ReadOptions, batches, scan_batch
from harmony_conformance.audit.plans.plan import PlanName, choose_plan
from harmony_conformance.audit.readers.files import sources
from harmony_conformance.audit.readers.files.formats import ALL_CONTAINERS, CONTAINERS, find_container, open_logs
from harmony_conformance.audit.readers.files.sources import expand
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.cli import main as cli
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.evidence.file_lines import Line, UnreadableLine
from harmony_ref.extras import install_command

ASKED = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
LEAK = "Hello.<|end|><|start|>assistant<|channel|>final<|message|>Hello."


def answer(content):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return {"object": "chat.completion", "id": "1", "created": 1, "model": "m", "choices": [choice], "usage": None}


ROWS = [{"request": ASKED, "response": answer(text)} for text in ("Hello.", LEAK, "Hello again.")]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
AS_TEXT = [{name: json.dumps(value) for name, value in row.items()} for row in ROWS]


def har():
    entries = [
        {
            "request": {
                "url": "https://x/v1/chat/completions",
                "headers": [],
                "postData": {"text": json.dumps(row["request"])},
            },
            "response": {
                "status": 200,
                "headers": [],
                "content": {"mimeType": "application/json", "text": json.dumps(row["response"])},
            },
        }
        for row in ROWS
    ]
    return json.dumps(
        {"log": {"version": "1.2", "creator": {"name": "x [a, {b"}, "pages": [{}], "entries": entries}}
    ).encode()


def write_csv(path):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["request", "response"])
        writer.writeheader()
        writer.writerows(AS_TEXT)


def write_arrow(path, kind):
    table = pa.Table.from_pylist(AS_TEXT)
    with pa.OSFile(str(path), "wb") as sink, getattr(pa.ipc, f"new_{kind}")(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_sqlite(path):
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE "the log" (request TEXT, response TEXT)')
        database.executemany('INSERT INTO "the log" VALUES (:request, :response)', AS_TEXT)
    database.close()


def write_duckdb(path):
    with duckdb.connect(path) as database:
        database.execute("CREATE TABLE log (request JSON, response JSON)")
        database.executemany("INSERT INTO log VALUES (?, ?)", [[row["request"], row["response"]] for row in AS_TEXT])


FORMATS = {
    "jsonl": lambda path: path.write_bytes(LINES),
    "json": lambda path: path.write_bytes(json.dumps(ROWS).encode()),
    "json-indented": lambda path: path.write_bytes(json.dumps(ROWS, indent=2).encode()),
    "json-several": lambda path: path.write_bytes("\n".join(json.dumps(row, indent=1) for row in ROWS).encode()),
    "har": lambda path: path.write_bytes(har()),
    "csv": write_csv,
    "parquet": lambda path: pq.write_table(pa.Table.from_pylist(ROWS), path, row_group_size=2),
    "arrow": lambda path: write_arrow(path, "file"),
    "arrow-stream": lambda path: write_arrow(path, "stream"),
    "sqlite": write_sqlite,
    "duckdb": write_duckdb,
}
PACKINGS = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": zstandard.ZstdCompressor().compress,
    "gzip in two members": lambda data: gzip.compress(data[:100]) + gzip.compress(data[100:]),
    "zstd in two frames": lambda data: zstandard.compress(data[:100]) + zstandard.compress(data[100:]),
    "xz in two streams": lambda data: lzma.compress(data[:100]) + b"\0\0\0\0" + lzma.compress(data[100:]),
    "gzip in xz": lambda data: lzma.compress(gzip.compress(data)),
}


def judged(*paths, form="auto", columns=None):
    """Return the total of a log, the failing places of the leak, and the places and kinds of what could not be read."""
    scanned = [
        scan_batch(batch, ReadOptions(form=form, columns=columns or {})) for batch in batches(map(str, paths), form)
    ]
    rows = [json.loads(line) for one in scanned for line in one.failures.splitlines()]
    unread = [json.loads(line) for one in scanned for line in one.unreadable.splitlines()]
    total = sum((one.tally for one in scanned), Tally())
    places = [row["exchange"] for row in rows if row["check"] == "channels.no_marker_leak"]
    return total, places, [(one["place"], one["kind"]) for one in unread]


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_has_the_same_exchanges(tmp_path, name):
    FORMATS[name](path := tmp_path / "log")
    total, failing, unread = judged(path)
    assert (total.exchanges, total.errors, unread) == (3, 0, [])
    (place,) = failing
    form = name.partition("-")[0]
    if form in ("csv", "parquet", "arrow"):
        assert place == f"{path}#1"
    elif form in ("sqlite", "duckdb"):
        assert place == f"{path}:{'the log' if form == 'sqlite' else 'log'}#1"
    else:
        offset = int(place.removeprefix(f"{path}@"))
        assert path.read_bytes()[offset - 1 : offset + 1] in (b"\n{", b" {", b"[{")


@pytest.mark.parametrize("name", PACKINGS)
def test_every_packing_has_the_same_records(tmp_path, name):
    (plain := tmp_path / "plain").write_bytes(LINES)
    (packed := tmp_path / "packed").write_bytes(PACKINGS[name](LINES))
    assert [log.records for log in open_logs([str(plain)], "auto")]
    told = [
        [(line.offset, line.data) for line in log.records]
        for path in (plain, packed)
        for log in open_logs([str(path)], "auto")
    ]
    assert told[0] == told[1]


@pytest.mark.parametrize("name", ["gzip", "bzip2", "xz", "zstd"])
def test_a_torn_archive_gives_its_beginning_and_says_where_it_ends(tmp_path, name):
    lines = b"".join(b'{"number": %d, "random": "%s"}\n' % (n, os.urandom(20).hex().encode()) for n in range(20_000))
    packed = PACKINGS[name](lines)
    (path := tmp_path / "log").write_bytes(packed[: len(packed) * 2 // 3])
    *found, end = [one for log in open_logs([str(path)], "auto") for one in log.records]
    assert isinstance(end, UnreadableLine)
    assert end.kind in ("the compressed file is truncated", "the compressed file is damaged")
    whole = [one for one in found if isinstance(one, Line)][:-1]
    assert len(whole) > 1000 or name == "bzip2"
    assert all(lines[one.offset :].startswith(one.data + b"\n") for one in whole)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc to measure a process")
def test_a_small_archive_of_a_huge_line_takes_little_memory(tmp_path):
    program = (
        "import re, sys; from harmony_conformance.audit.readers.files.formats import open_logs\n"
        "found = [str(one) for log in open_logs(sys.argv[1:], 'auto') for one in log.records]\n"
        "print(found, re.search(r'VmHWM:\\s+(\\d+)', open('/proc/self/status').read())[1])"
    )
    for name in ("gzip", "bzip2", "xz", "zstd"):
        (path := tmp_path / "log").write_bytes(PACKINGS[name](b" " * (100 * 1024 * 1024)))
        done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True)
        told, _, kilobytes = done.stdout.strip().rpartition(" ")
        assert told == "['the line is too long: 104857600 bytes, at most 67108864 are read']"
        assert int(kilobytes) < 300 * 1024


def test_folders_and_globs_are_their_files_in_order(tmp_path):
    for name in ("b/two.jsonl", "b/.hidden/no.jsonl", "a.jsonl", ".no"):
        (path := tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(LINES)
    expected = [str(tmp_path / "a.jsonl"), str(tmp_path / "b" / "two.jsonl")]
    assert list(expand(iter([str(tmp_path)]))) == expected
    assert list(expand(iter([str(tmp_path / "**" / "*.jsonl")]))) == expected
    assert judged(*expected)[0].exchanges == 6


def test_the_output_in_the_folder_of_the_log_is_no_log(tmp_path, capsys):
    (tmp_path / "log.jsonl").write_bytes(LINES)
    for _ in range(2):
        assert cli.main(["audit", str(tmp_path), "--out", str(tmp_path / "out")]) == Exit.DIVERGES
        assert "3 exchanges judged" in capsys.readouterr().out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pipes of this kind")
def test_a_named_pipe_is_read_once(tmp_path):
    os.mkfifo(path := tmp_path / "pipe")
    (other := tmp_path / "other").write_bytes(LINES)
    writer = threading.Thread(target=path.write_bytes, args=(gzip.compress(LINES),))
    writer.start()
    total, failing, unread = judged(path, other)
    writer.join()
    assert (total.exchanges, len(failing), unread) == (6, 2, [])


def test_a_store_is_read_by_its_url():
    store = fsspec.filesystem("memory")
    store.pipe({"/logs/a.jsonl": LINES, "/logs/b.jsonl.gz": gzip.compress(LINES)})
    table = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(ROWS), table)
    store.pipe("/logs/c.parquet", table.getvalue())
    names = list(expand(iter(["memory://logs/*"])))
    assert names == ["memory:///logs/a.jsonl", "memory:///logs/b.jsonl.gz", "memory:///logs/c.parquet"]
    total, failing, unread = judged(*names)
    assert (total.exchanges, len(failing), unread) == (9, 3, [])
    assert failing[2] == "memory:///logs/c.parquet#1"
    assert list(expand(iter(["memory://logs/"]))) == names
    assert judged("memory://logs/absent")[2] == [("memory://logs/absent@0", "no such file")]


@pytest.mark.parametrize(
    "url",
    [
        "memory://user:CANARY@private/a.jsonl",
        "memory://key:CAN/ARY@private/a.jsonl",
        "memory://user:CANARY@absent/*",
        "memory://private/a.jsonl?part=1&X-Amz-Signature=CANARY",
        "simplecache::memory://user:CANARY@private/a.jsonl",
        "s3://key:CANARY@bucket/a.jsonl",
        "unknown://user:CANARY@host/a.jsonl",
    ],
)
def test_credentials_in_a_url_are_in_no_output(url, tmp_path, capfd):
    _, is_stored, path = url.partition("memory://")
    if is_stored and "absent" not in path:
        fsspec.filesystem("memory").pipe(f"/{path}", LINES)
    out = tmp_path / "out"
    for more in (["--incremental"], ["--explain-format"]):
        code = cli.main(["audit", url, "--workers", "1", "--out", str(out), *more])
        printed = capfd.readouterr()
        texts = [*printed, *(path.read_bytes().decode("utf-8", "replace") for path in out.glob("*"))]
        assert not [text for text in texts if "CANARY" in text or "CAN/ARY" in text]
        assert any("***" in text for text in texts)
        assert code == (2 if "absent" in url or "memory" not in url else 1 - ("--explain-format" in more))
    assert "part=1" in printed.out or "?" not in url


def test_an_error_of_a_store_while_it_is_read_is_a_record(monkeypatch):
    class Broken(io.BytesIO):
        def read(self, size=-1):
            raise RuntimeError("no answer from https://user:CANARY@host/log?sig=CANARY")

    monkeypatch.setattr(fsspec, "open", lambda *_: type("", (), {"open": Broken})())
    ((_, (line,)),) = ((log, log.records) for log in open_logs(["memory://logs/a.jsonl"], "auto"))
    assert str(line) == "the file cannot be read further: no answer from https://***@host/log?sig=***"


UNREACHABLE = [
    ("http://127.0.0.1:{port}/log.jsonl", "Cannot connect to host 127.0.0.1:{port}"),
    ("s3://bucket/log.jsonl", "Install s3fs to access S3"),
]


@pytest.mark.parametrize(("url", "reason"), UNREACHABLE, ids=["refused", "no client"])
def test_a_url_that_cannot_be_read_says_why(url, reason, capsys):
    with socket.socket() as closed:  # bound, but it does not listen
        closed.bind(("127.0.0.1", 0))
        url, reason = (text.format(port=closed.getsockname()[1]) for text in (url, reason))
        assert cli.main(["audit", url]) == Exit.USAGE
    assert f"(1 x the file cannot be read, first at {url}@0: {reason}" in capsys.readouterr().err


def test_a_url_without_a_file_says_so(capsys):
    handler = partial(SimpleHTTPRequestHandler, directory=os.devnull)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/log.jsonl"
        assert cli.main(["audit", url]) == Exit.USAGE
        server.shutdown()
    assert f"1 x no such file, first at {url}@0)" in capsys.readouterr().err


def test_a_store_whose_client_is_missing_says_what_to_install():
    with pytest.raises(UsageError, match=r"^s3://bucket/\*: .*s3fs"):
        list(expand(iter(["s3://bucket/*"])))


def test_standard_input_is_a_file(capsys):
    command = [sys.executable, "-m", "harmony_conformance", "audit", "-", "--workers", "1"]
    done = subprocess.run(command, input=gzip.compress(LINES), capture_output=True, check=False)
    assert done.returncode == Exit.DIVERGES
    assert f"- -@{len(json.dumps(ROWS[0])) + 1}\n".encode() in done.stdout


@pytest.mark.parametrize("library", ["pyarrow", "duckdb", "zstandard", "opentelemetry.proto"])
def test_a_missing_library_is_one_line_and_hides_no_other_file(tmp_path, monkeypatch, library):
    name = {"pyarrow": "parquet", "duckdb": "duckdb"}.get(library)
    path = tmp_path / "log"
    others = {"zstandard": PACKINGS["zstd"](LINES), "opentelemetry.proto": b"\0\0\0\2\x0a\0"}
    FORMATS[name](path) if name else path.write_bytes(others[library])
    (other := tmp_path / "other").write_bytes(LINES)
    found = sources.find_spec
    monkeypatch.setattr(sources, "find_spec", lambda one: None if one == library else found(one))
    total, _, unread = judged(path, other)
    assert total.exchanges == 3
    ((place, kind),) = unread
    assert place.startswith(str(path))
    assert kind.endswith(f"needs {library.replace('.', '-')}: {install_command('logs')}")


INPUTS = [{"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": ASKED} for n in range(4)]
OUTPUTS = [
    {
        "id": f"b{n}",
        "custom_id": f"r{n}",
        "response": {"status_code": 200, "request_id": "x", "body": ROWS[n]["response"]},
        "error": None,
    }
    for n in (2, 1, 0)
]


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("order", [1, -1])
def test_the_lines_of_a_batch_are_joined_whatever_their_order(tmp_path, order):
    asked, answered = write_lines(tmp_path / "in", INPUTS), write_lines(tmp_path / "out", OUTPUTS)
    total, failing, unread = judged(*[asked, answered][::order])
    assert (total.exchanges, len(failing)) == (3, 1)
    assert failing == [f"{answered}@{len(json.dumps(OUTPUTS[0])) + 1}"]
    offset = sum(len(json.dumps(row)) + 1 for row in INPUTS[:3])
    assert unread == [(f"{asked}@{offset}", "no exchange: it has no response, no output line has its `custom_id`")]
    found = [line for log in open_logs([str(asked), str(answered)], "auto") for line in log.records]
    assert all(json.loads(line.data)["batch_request"]["body"] == ASKED for line in found[:3])


def test_the_output_of_a_batch_alone_is_answers_alone(tmp_path):
    total, failing, _ = judged(write_lines(tmp_path / "out", OUTPUTS))
    assert (total.exchanges, len(failing)) == (3, 1)
    assert total.checks["usage.is_reported"].reasons == {"the log has only the response alone": 3}


def test_captured_streams_are_told_apart(tmp_path):
    chunk = {"object": "chat.completion.chunk", "id": "1", "created": 1, "model": "m"}

    def stream(text):
        choices = [{"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": None}]
        ends = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
        events = "".join(f"data: {json.dumps({**chunk, 'choices': one})}\n\n" for one in (choices, ends))
        return (events + "data: [DONE]\n\n").encode()

    (path := tmp_path / "capture.sse").write_bytes(
        b": ping\n\n" + stream("Hello.") + stream(LEAK) + stream("cut")[:-20]
    )
    total, failing, unread = judged(path)
    assert (total.exchanges, unread) == (3, [])
    assert failing == [f"{path}@{len(stream('Hello.')) + 8}"]


@pytest.mark.parametrize(
    ("name", "kind"), [("otel_spans", TracesData), ("openinference", TracesData), ("otel_events", LogsData)]
)
def test_binary_messages_of_the_collector_are_those_in_json(tmp_path, name, kind):
    written = Path(__file__).parent / "logs" / f"{name}.otlp.jsonl"
    messages = [json_format.Parse(line, kind()).SerializeToString() for line in written.read_text("utf-8").splitlines()]
    data = b"".join(len(one).to_bytes(4) + one for one in messages * 2)
    (path := tmp_path / "log").write_bytes(data)
    (in_json, failing, _), (binary, places, _) = judged(written), judged(path)
    assert (binary.exchanges, len(places)) == (2 * in_json.exchanges, 2 * len(failing))
    assert places[0].startswith(f"{path}#0")
    path.write_bytes(data[:-9])
    assert judged(path)[2][-1] == (f"{path}#1", "the last message is truncated")


def test_each_format_is_found_by_its_first_bytes(tmp_path):
    for name, write in FORMATS.items():
        write(path := tmp_path / name)
        form = name.partition("-")[0].replace("har", "json")
        assert find_container(path.read_bytes()[:65536], "log", "auto").name == form
    assert set(CONTAINERS) == {container.name for container in ALL_CONTAINERS}


@pytest.mark.parametrize(
    "text", ["Generated response abc: output: 'x'", "data: x", "request,response", "SQLite format 3"]
)
@pytest.mark.parametrize("name", ["log.jsonl", "log.csv"])
def test_the_texts_of_a_log_do_not_change_its_format(text, name):
    line = json.dumps({"request": ASKED, "response": answer(text)}).encode() + b"\n"
    assert find_container(line * 2, name, "auto").name == "jsonl"
    assert find_container(b"[" + line + b"]", name, "auto").name == "json"
    assert find_container(b'{"abc":"DUCK"}\n', name, "auto").name == "jsonl"
    assert find_container(b"10:15:error;", "log", "auto").name == "jsonl"


def test_a_format_can_be_chosen(tmp_path):
    (path := tmp_path / "log").write_bytes(b"a,b\n1,2\n")
    assert judged(path)[2][0][1] == "no JSON"
    (kind,) = {kind for _, kind in judged(path, form="csv")[2]}
    assert kind.startswith("no exchange: it has no member `request`")


TORN = "a row of CSV that ends within a quoted value: it is torn, or still being written"


@pytest.mark.parametrize(
    ("cut", "unread"),
    [
        (0, []),
        (1, []),  # no end of the line
        (2, [TORN]),
        (29, [TORN]),
        ("line", [TORN]),
    ],
)
def test_a_row_of_csv_that_is_torn_is_no_answer(tmp_path, cut, unread):
    """A log that is being written ends within a value. Its part of an answer would be judged."""
    rows = [(json.dumps(ASKED), json.dumps(answer(text), indent=1)) for text in ("Hi", "Hello")]
    writer = csv.writer(file := io.StringIO(newline=""), lineterminator="\n")
    writer.writerows([("request", "response"), *rows])
    data = file.getvalue()
    cut = len(data) - data.rindex("\n ") - 1 if cut == "line" else cut
    (path := tmp_path / "log.csv").write_text(data[: len(data) - cut], "utf-8")
    total, _, problems = judged(path)
    assert total.exchanges == 2 - len(unread)
    assert problems == [(f"{path}#1", kind) for kind in unread]


def test_csv_in_utf16_is_named(tmp_path):
    """Excel writes it as its text. Without its null bytes it looked like CSV in ASCII."""
    (path := tmp_path / "log.csv").write_text("request,response\n{},Zürich\n", "utf-16")
    assert judged(path)[2] == [(f"{path}#0", "the file is UTF-16: convert it (iconv -f utf-16 -t utf-8)")]


@pytest.mark.parametrize("plan", ["structure", "needles"])
def test_a_log_that_is_truncated_while_it_is_read_is_counted(tmp_path, plan):
    """`copytruncate` of logrotate: at the end of a line nothing else shows what was lost."""
    line = json.dumps({"request": ASKED, "response": answer("Hi")}).encode() + b"\n"
    (path := tmp_path / "log.jsonl").write_bytes(line * 9)
    names = [str(path)]
    found = batches(names, "auto", choose_plan(PlanName(plan), None, names), lines=1, ends={str(path): 9 * len(line)})
    first = next(found)
    os.truncate(path, len(line))
    scanned = [scan_batch(one, ReadOptions()) for one in (first, *found)]
    *_, last = [json.loads(row) for one in scanned for row in one.unreadable.splitlines()]
    kind = "the file became shorter while it was read, as by a rotation that truncates: the rest is lost"
    assert (last["place"], last["kind"]) == (f"{path}@{len(line)}", kind)


def test_a_database_that_is_being_written_is_not_damaged(tmp_path):
    with closing(sqlite3.connect(path := tmp_path / "log.sqlite", isolation_level=None)) as database:
        database.execute("CREATE TABLE log (request TEXT, response TEXT)")
        database.execute("BEGIN EXCLUSIVE")
        (unread,) = judged(path)[2]
    assert unread == (f"{path}#0", "the database is locked by the process that writes it: read a copy, or wait")


WRITE_DUCKDB = "import duckdb, sys; database = duckdb.connect(sys.argv[1]); print(flush=True); sys.stdin.read()"


def test_a_database_of_duckdb_that_is_being_written_is_not_damaged(tmp_path):
    duckdb.connect(path := str(tmp_path / "log.duckdb")).close()
    command = [sys.executable, "-c", WRITE_DUCKDB, path]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        (unread,) = judged(path)[2]
    assert unread[1] == "the database is locked by the process that writes it: read a copy, or wait"


def test_a_database_of_another_version_of_duckdb_is_not_damaged(tmp_path, monkeypatch):
    """The message is that of the library. A file of a later version cannot be made by this one."""
    duckdb.connect(str(path := tmp_path / "log.duckdb")).close()

    def is_too_new(*_, **__):
        known = "but we can only read storage versions between 64 and 68."
        raise duckdb.IOException(f"Trying to read a database file with storage version number 200, {known}")

    monkeypatch.setattr(duckdb, "connect", is_too_new)
    (unread,) = judged(path)[2]
    assert unread[1].startswith("the database has the format of another version of DuckDB")


def test_columns_of_a_table_can_have_any_name(tmp_path):
    pq.write_table(
        pa.Table.from_pylist([{"in": {"body": row["request"]}, "out": json.dumps(row["response"])} for row in ROWS]),
        path := tmp_path / "log",
    )
    total, failing, _ = judged(path, columns={"request": "in.body", "response": "out"})
    assert (total.exchanges, failing) == (3, [f"{path}#1"])


@pytest.mark.parametrize("name", ["parquet", "json", "sqlite"])
def test_an_audit_of_a_table_continues_where_it_was_stopped(tmp_path, monkeypatch, name, capsys):
    from harmony_conformance.cli import audit as command

    FORMATS[name](path := tmp_path / "log")
    real = command.batches
    monkeypatch.setattr(command, "batches", lambda paths, form, plan, **more: real(paths, form, plan, lines=1, **more))

    def run(out, *more):
        return cli.main(["audit", str(path), "--out", str(tmp_path / out), "--workers", "1", *more])

    assert run("whole") == Exit.DIVERGES

    def stop(*args, **named):
        scanned = scan_all(*args, **named)
        yield next(scanned)
        raise KeyboardInterrupt

    scan_all = command.scan_all
    with monkeypatch.context() as patch:
        patch.setattr(command, "scan_all", stop)
        run("resumed")
    assert run("resumed", "--resume") == Exit.DIVERGES
    assert "resuming after 1 exchange\n" in capsys.readouterr().err
    files = [{one.name: one.read_bytes() for one in (tmp_path / out).iterdir()} for out in ("whole", "resumed")]
    assert files[0] == files[1]


def test_the_detected_format_is_explained(tmp_path, capsys):
    FORMATS["parquet"](path := tmp_path / "log")
    assert cli.main(["audit", "--explain-format", str(path)]) == Exit.CONFORMS
    printed = capsys.readouterr().out
    assert (
        f"{path}: Parquet (parquet)\n  {path}#0: a request and its response (openai)\n  API: Chat Completions"
        in printed
    )
    assert "channels.no_marker_leak" in printed
    assert "Hello" not in printed
    assert cli.main(["audit", "--explain-format", str(path), "--excerpts", "full"]) == Exit.CONFORMS
    assert "Hello." in capsys.readouterr().out
    (other := tmp_path / "other").write_bytes(b"nonsense\n")
    assert cli.main(["audit", "--explain-format", str(path), str(other)]) == Exit.USAGE
    assert f"{other}: JSON lines (jsonl)\n  {other}@0: no JSON: at character 0\n" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["request", "=a", "other=a", "request="])
def test_a_mapping_names_a_member_and_a_path(value, capsys):
    with pytest.raises(SystemExit):
        cli.main(["audit", "log", "--map", value])
    assert "expected NAME=PATH with one of the names request, response, " in capsys.readouterr().err


PYTHON = os.environ.get("HARMONY_MITMPROXY_PYTHON", "")
FLOWS = """
import sys
from mitmproxy import io
from mitmproxy.test import tflow, tutils
import json
with open(sys.argv[1], "wb") as file:
    writer = io.FlowWriter(file)
    for row in json.loads(sys.argv[2]):
        request = tutils.treq(method=b"POST", path=b"/v1/chat/completions", content=json.dumps(row["request"]).encode())
        response = tutils.tresp(content=json.dumps(row["response"]).encode())
        response.headers["content-type"] = "application/json"
        response.encode("gzip")
        writer.add(tflow.tflow(req=request, resp=response))
    writer.add(tflow.ttcpflow())
"""


@pytest.mark.skipif(not PYTHON, reason="HARMONY_MITMPROXY_PYTHON names no environment with mitmproxy 12")
def test_flows_that_mitmproxy_stored_are_exchanges(tmp_path):
    path = tmp_path / "flows"
    subprocess.run([PYTHON, "-c", FLOWS, str(path), json.dumps(ROWS)], check=True)
    command = [PYTHON, "-m", "harmony_conformance", "audit", "--workers", "1"]
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == Exit.DIVERGES, done.stderr
    assert "3 exchanges judged" in done.stdout
    assert f"  - {path}#1\n" in done.stdout
    assert f"1 x no exchange: a flow that is not HTTP, first at {path}#3" in done.stderr
    path.write_bytes(path.read_bytes()[:-500])
    done = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert "the flows are truncated or damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_flows_without_mitmproxy_say_what_to_install(tmp_path):
    (path := tmp_path / "flows").write_bytes(b"1234:7:version;2:21#4:type;4:http;")
    ((_, kind),) = judged(path)[2]
    assert kind in (
        f"reading flows of mitmproxy needs mitmproxy: {install_command('mitmproxy')}",
        "the flows are truncated or damaged",
    )
    assert Path(path).exists()
