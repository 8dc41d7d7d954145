"""No bytes and no JSON value break a reader: every record is an exchange or a reason."""

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import tracemalloc
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harmony_conformance.audit.readers.files.formats import CONTAINERS, open_logs
from harmony_conformance.audit.readers.files.json_elements import read_elements
from harmony_conformance.audit.readers.records.record import DiscoveryLine, LoggedExchange
from harmony_conformance.audit.readers.records.shapes import COLUMNS, SHAPES, read_line
from harmony_conformance.evidence.file_lines import Line, UnreadableLine

ROWS = [
    {"request": json.dumps({"messages": [{"role": "user", "content": "Hi"}]}), "response": json.dumps({"choices": []})}
] * 5
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
LEFT = "INFO Generated response chatcmpl-1: output: "
TEXTS = {
    "lines": LINES,
    "list": json.dumps(ROWS).encode(),
    "documents": "\n".join(json.dumps(row, indent=1) for row in ROWS).encode(),
    "har": json.dumps({"log": {"entries": [{"request": {"headers": []}, "response": {"content": {}}}]}}).encode(),
    "spans": json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [{"attributes": [{"key": "a"}]}]}]}]}).encode(),
    "events": b'data: {"object": "chat.completion.chunk", "choices": []}\n\ndata: [DONE]\n\n' * 2,
    "vllm": f"{LEFT}'Hi', output_token_ids: [1], finish_reason: stop\n{LEFT}'".encode(),
    "csv": b'request,response\n"a ""b""",c\nd,e\n',
    "batch": b'{"custom_id": "1", "url": "/v1/chat/completions", "body": {}}\n{"custom_id": "1", "response": {"body": {}}}\n',
    "otlp": b"\x00\x00\x00\x1a\x0a\x18\x12\x16\x12\x14\x0a\x10" + b"0123456789abcdef" + b"\x2a\x00",
    "flows": b"1234:7:version;2:21#4:type;4:http;",
    **{
        name: pack(LINES)
        for name, pack in (
            ("gzip", gzip.compress),
            ("bzip2", bz2.compress),
            ("xz", lzma.compress),
            ("zstd", zstandard.compress),
        )
    },
}


@cache
def samples():
    """Return files of every format."""
    table = pa.Table.from_pylist(ROWS)
    pq.write_table(table, parquet := io.BytesIO())
    with pa.ipc.new_file(file := io.BytesIO(), table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(stream := io.BytesIO(), table.schema) as writer:
        writer.write_table(table)
    with TemporaryDirectory() as folder:
        with sqlite3.connect(Path(folder) / "sqlite") as database:
            database.execute("CREATE TABLE log (request TEXT, response TEXT)")
            database.executemany("INSERT INTO log VALUES (:request, :response)", ROWS)
        database.close()
        with duckdb.connect(Path(folder) / "duckdb") as database:
            database.execute("CREATE TABLE log AS SELECT 'a' AS request, 'b' AS response")
        tables = {name: (Path(folder) / name).read_bytes() for name in ("sqlite", "duckdb")}
    return {
        **TEXTS,
        **tables,
        "parquet": parquet.getvalue(),
        "arrow": file.getvalue(),
        "arrow stream": stream.getvalue(),
    }


NAMES = sorted([*TEXTS, "sqlite", "duckdb", "parquet", "arrow", "arrow stream"])


@st.composite
def damaged(draw, name):
    """Return a file of a format, torn, with changed bytes, or with bytes added or removed."""
    data = bytearray(samples()[name])
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["change", "insert", "remove", "tear"]))
        if kind == "tear":
            del data[at:]
        elif kind == "remove":
            del data[at : at + draw(st.integers(1, 40))]
        elif kind == "insert":
            data[at:at] = draw(st.binary(max_size=20) | st.sampled_from([b'"', b"{", b"[", b"\n", b"\0" * 40, b"\\"]))
        elif data:
            data[at] = draw(st.integers(0, 255))
    return bytes(data)


def read_all(path, form="auto"):
    """Read a file to its end, and return the number of its records."""
    count = 0
    for log in open_logs([str(path)], form):
        for line in log.records:
            count += 1
            if isinstance(line, UnreadableLine):
                assert line.kind
                continue
            for record in read_line(line, form, name="log"):
                assert isinstance(record, LoggedExchange | DiscoveryLine | UnreadableLine)
                if isinstance(record, LoggedExchange):
                    assert record.exchange.turn is None or record.exchange.turn is not None
    return count


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_damage_breaks_a_reader(name, data):
    with TemporaryDirectory() as folder:
        (path := Path(folder) / "log").write_bytes(data.draw(damaged(name)))
        read_all(path)


@pytest.mark.parametrize("form", sorted(CONTAINERS))
@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=200))
def test_no_bytes_break_a_reader_that_was_chosen(form, data):
    with TemporaryDirectory() as folder:
        (path := Path(folder) / "log").write_bytes(data)
        read_all(path, form)
        path.write_bytes(b"")
        read_all(path, form)


@given(
    st.binary(max_size=120) | st.sampled_from([TEXTS["har"], TEXTS["list"], TEXTS["spans"]]),
    st.integers(1, 30),
    st.integers(1, 90),
)
def test_where_blocks_end_makes_no_difference_to_elements(data, block, limit):
    class Small(io.BytesIO):
        def read1(self, size=-1):
            return super().read1(block)

    assert list(read_elements(Small(data), limit=limit)) == list(read_elements(io.BytesIO(data), limit=limit))


@given(
    st.lists(
        st.recursive(
            st.none() | st.text(max_size=6) | st.integers(),
            lambda one: st.lists(one) | st.dictionaries(st.text(max_size=4), one),
            max_leaves=8,
        ),
        max_size=5,
    ),
    st.sampled_from([None, 0, 3]),
)
def test_the_elements_of_a_list_are_found_with_their_places(values, indent):
    data = json.dumps(values, indent=indent).encode()
    found = list(read_elements(io.BytesIO(data)))
    assert [json.loads(line.data) for line in found] == values
    assert all(data[line.offset :].startswith(line.data) for line in found)


@pytest.mark.slow
def test_brackets_without_end_take_neither_time_nor_memory():
    data = b"[" * 200_000 + b"]" * 199_999
    tracemalloc.start()
    found = list(read_elements(io.BytesIO(data)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [line.offset for line in found] == [1]
    assert peak < 8 * len(data)


MEMBERS = [
    *(
        "request",
        "response",
        "messages",
        "body",
        "status",
        "headers",
        "json",
        "kind",
        "text",
        "choices",
        "message",
        "content",
    ),
    *(
        "input",
        "output",
        "data",
        "attributes",
        "resourceSpans",
        "scopeSpans",
        "spans",
        "value",
        "stringValue",
        "key",
        "type",
    ),
    *(
        "custom_id",
        "url",
        "call_type",
        "standard_logging_object",
        "vllm_request",
        "prompt_token_ids",
        "output_token_ids",
    ),
    *(
        "gen_ai.output.messages",
        "gen_ai.input.messages",
        "llm.output_messages.0.message.content",
        "parts",
        "role",
        "completion",
    ),
    *(
        "attributes.llm.output_messages",
        "observations",
        "batch",
        "conversations",
        "postData",
        "stream",
        "prompt",
        "model",
    ),
]
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=5)
    | st.sampled_from(["text", "chat", '{"a": 1}', "data: {}\n\n", "assistant"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=5),
    max_leaves=25,
)


@settings(max_examples=400, deadline=None)
@given(
    value=JSON,
    form=st.sampled_from(["auto", *SHAPES]),
    columns=st.dictionaries(st.sampled_from(COLUMNS), st.sampled_from(["request.body", "0", "messages"])),
)
def test_no_json_value_breaks_a_shape(value, form, columns):
    records = read_line(Line(offset=0, number=1, data=json.dumps(value).encode()), form, name="log", columns=columns)
    assert records
    for record in records:
        assert isinstance(record, LoggedExchange | DiscoveryLine | UnreadableLine)
