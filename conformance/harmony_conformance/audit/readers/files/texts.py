"""Text formats: JSON lines, JSON documents, captured event streams, CSV."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator

from harmony_conformance.audit.readers.files.container import (
    HEAD_BYTES,
    Container,
    InputFile,
    Records,
    json_line,
    one_file,
    problem,
)
from harmony_conformance.audit.readers.files.json_elements import read_elements
from harmony_conformance.audit.readers.files.sources import PeekableStream
from harmony_conformance.evidence.file_lines import (
    LINE_LIMIT,
    Line,
    UnreadableLine,
    other_format,
    read_blocks,
    split_lines,
)

_UTF8_MARK = b"\xef\xbb\xbf"
_HAR = re.compile(rb'\s*\{\s*"log"\s*:\s*\{')
_LIST_DOCUMENT = re.compile(
    rb'\s*\{\s*"(?:object"\s*:\s*"list"\s*,\s*")?(?:data|observations|batch|resourceSpans|resourceLogs)"\s*:\s*\['
)


def _begins_a_document(head: bytes, _: str) -> bool:
    """Return True for a list, an HTTP archive, and JSON whose first value does not end with its line."""
    head = head.removeprefix(_UTF8_MARK).lstrip()
    first, end, rest = head.partition(b"\n")
    if head.startswith(b"["):
        return not end or not rest.lstrip().startswith(b"[") or not _is_json(first)
    if not head.startswith(b"{"):
        return False
    if _HAR.match(head) or (not end and _LIST_DOCUMENT.match(head)):
        return True
    return bool(end) and not _is_json(first) and not rest.lstrip().startswith(b"{")


def _is_like_json(head: bytes) -> bool:
    return head.removeprefix(_UTF8_MARK).lstrip().startswith((b"{", b"["))


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


DOCUMENTS = Container(
    name="json",
    title="a JSON list, or JSON values over several lines",
    matches=_begins_a_document,
    read=one_file("json", read_elements),
)


def _is_any_file(_: bytes, __: str) -> bool:
    return True


_TAR, _TAR_PLACE = b"ustar", 257
_OBJECT_LINE = b'\n{"'
_NO_TEXT = "the file is binary, and of no format that is read"


def _other_format(head: bytes) -> str:
    """Return the reason why a file has no lines, by its first bytes; empty if it may have some."""
    if (kind := other_format(head)) or b"\0" not in head:
        return kind
    if head[_TAR_PLACE:].startswith(_TAR):
        return "the file is a tar archive: unpack it (tar -xf)"
    if head[:2] in (b"{\0", b"[\0", b"\0{", b"\0["):
        return "the file is UTF-16 without a mark: convert it (iconv -f utf-16le -t utf-8, or utf-16be)"
    return "" if _is_like_json(head) or _OBJECT_LINE in head else _NO_TEXT


def _read_lines(stream: PeekableStream, name: str) -> list[InputFile]:
    head = stream.peek(HEAD_BYTES)
    if kind := _other_format(head):
        return [InputFile(name=name, format="jsonl", records=iter([problem(kind)]))]
    is_plain = stream.file is not None and _is_like_json(head)
    return [InputFile(name=name, format="jsonl", records=split_lines(stream), is_plain=is_plain)]


LINES = Container(
    name="jsonl",
    title="JSON lines",
    matches=_is_any_file,
    read=_read_lines,
)

_EVENT = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?:data|event|id|retry):|:[^\n]*\r?\n+(?:data|event):)")
_EVENT_LINES = 4
_DONE = re.compile(rb"^data: ?\[DONE\]", re.MULTILINE)


def _read_events(stream: PeekableStream) -> Records:
    """Yield the streams of a capture: each ends with `[DONE]`, with an event that ends a response, or with the file."""
    pieces: list[bytes] = []
    start = size = 0
    for line in _raw_lines(stream):
        if isinstance(line, UnreadableLine):
            yield from _captured(start, pieces, size)
            yield line
            return
        pieces.append(line)
        size += len(line)
        if _is_last_event(pieces):
            yield from _captured(start, pieces, size)
            pieces, start, size = [], start + size, 0
        elif size > LINE_LIMIT:
            del pieces[:-_EVENT_LINES]
    yield from _captured(start, pieces, size)


def _is_last_event(pieces: list[bytes]) -> bool:
    """Return True after the empty line of an event that ends a stream."""
    if pieces[-1].strip():
        return False
    event = b"".join(pieces[-_EVENT_LINES:])
    return bool(_DONE.search(event)) or any(
        mark in event
        for mark in (
            b"event: response.completed\n",
            b"event: response.incomplete\n",
            b"event: response.failed\n",
            b"event: message_stop\n",
        )
    )


def _captured(start: int, pieces: list[bytes], size: int) -> Records:
    data = b"".join(pieces)
    if size > LINE_LIMIT:
        yield UnreadableLine(
            offset=start, number=1, kind="the stream is too long", detail=f"{size} bytes, at most {LINE_LIMIT} are read"
        )
    elif data.strip():
        text = data.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
        yield Line(offset=start, number=1, data=json.dumps({"response": text}).encode())


def _raw_lines(stream: PeekableStream) -> Iterator[bytes | UnreadableLine]:
    """Yield lines with their ends, in pieces of at most a block. A stream that cannot be read to its end yields the reason."""
    pieces: list[bytes] = []
    size = 0
    for block in read_blocks(stream):
        if isinstance(block, UnreadableLine):
            if pieces:
                yield b"".join(pieces)
            yield block
            return
        *lines, rest = block.split(b"\n")
        if lines:  # the pieces of a line are joined once, however small they are
            yield b"".join((*pieces, lines[0], b"\n"))
            yield from (line + b"\n" for line in lines[1:])
            pieces, size = [], 0
        if rest:
            pieces.append(rest)
            size += len(rest)
        if size > LINE_LIMIT:
            yield b"".join(pieces)
            pieces, size = [], 0
    if pieces:
        yield b"".join(pieces)


CAPTURE = Container(
    name="sse",
    title="captured streams of server-sent events",
    matches=lambda head, _: _EVENT.match(head) is not None,
    read=one_file("sse", _read_events),
)

_CSV_NAME = re.compile(r"\.(?:csv|tsv)(?:\.\w+)?$", re.IGNORECASE)
_CSV_HEADER = re.compile(rb'(?:\xef\xbb\xbf)?[\w ."-]+(?:[,;\t][\w ."-]+)+\r?\n')
_COLUMN = re.compile(rb"\b(?:request|response|messages|prompt|completion|input|output|request_body|response_body)\b")


def _is_csv(head: bytes, name: str) -> bool:
    header = _CSV_HEADER.match(head)
    is_named = _CSV_NAME.search(name) is not None and not _is_like_json(head)
    return is_named or (header is not None and _COLUMN.search(header[0]) is not None)


def _read_csv(stream: PeekableStream) -> Records:
    """Yield the rows of a CSV file with a header. Columns are separated by commas, semicolons or tabs."""
    separators = max(b",;\t", key=stream.peek(4096).partition(b"\n")[0].count)
    csv.field_size_limit(LINE_LIMIT)
    if kind := other_format(stream.peek(HEAD_BYTES)):
        yield problem(kind)
        return
    failures: list[UnreadableLine] = []
    rows = _csv_rows(stream, chr(separators), failures)
    number, columns = 0, list[str]()
    while True:
        try:
            row, is_torn = next(rows)
        except StopIteration:
            break
        except csv.Error as error:
            yield problem("no CSV", str(error), number)
            break
        if not columns:
            columns = row
        elif is_torn:
            yield problem(
                "a row of CSV that ends within a quoted value: it is torn, or still being written", number=number
            )
        elif len(row) != len(columns):
            yield problem(
                "a row of CSV with another number of columns", f"{len(row)} instead of {len(columns)}", number
            )
            number += 1
        else:
            yield json_line(number, json.dumps(dict(zip(columns, row, strict=True))).encode())
            number += 1
    yield from failures


def _csv_rows(
    stream: PeekableStream, separator: str, failures: list[UnreadableLine]
) -> Iterator[tuple[list[str], bool]]:
    """Yield the rows, and True for one whose last quoted value has no end.

    Raises:
        csv.Error: The rest is no CSV.
    """
    lines: list[str] = []
    last: tuple[list[str], str] | None = None
    rows = csv.reader(_csv_lines(stream, failures, lines), delimiter=separator)
    try:
        for row in rows:
            if last is not None:
                yield last[0], False
            last = row, "".join(lines)
            lines.clear()
    except csv.Error:
        if last is not None:
            yield last[0], False
        raise
    if last is not None:
        yield last[0], _is_torn(last[1], separator)


def _is_torn(row: str, separator: str) -> bool:
    try:
        list(csv.reader(io.StringIO(row, newline=""), delimiter=separator, strict=True))
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def _csv_lines(stream: PeekableStream, failures: list[UnreadableLine], kept: list[str]) -> Iterator[str]:
    """Yield the lines as texts, and add them to `kept`."""
    for line in _raw_lines(stream):
        if isinstance(line, UnreadableLine):
            failures.append(line)
        else:
            kept.append(line.decode("utf-8-sig", "surrogateescape").replace("\0", ""))
            yield kept[-1]


CSV = Container(name="csv", title="CSV with a header", matches=_is_csv, read=one_file("csv", _read_csv, "#"))
