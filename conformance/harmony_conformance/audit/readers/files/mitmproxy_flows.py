"""Flows that mitmproxy stored (`mitmdump -w FILE`), read by mitmproxy itself."""

from __future__ import annotations

import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import count
from typing import Any, TypeAlias

from harmony_conformance.audit.readers.files.container import Container, Records, json_line, one_file, problem
from harmony_conformance.audit.readers.files.sources import PeekableStream, require
from harmony_conformance.audit.readers.records.http_pair import read_time
from harmony_conformance.evidence.file_lines import LINE_LIMIT, Line, UnreadableLine
from harmony_conformance.transport.content_coding import ContentDecodingError, decode_chunks
from harmony_conformance.transport.messages import Chunk

_Flow: TypeAlias = Any
"""A value of mitmproxy, which Python 3.11 cannot install."""
_Reader: TypeAlias = Callable[[io.BytesIO], Any]
"""The class of mitmproxy that reads flows."""
_FLOW = re.compile(rb"\d{1,12}:(\d{1,4}):([a-z_]{1,30});")
_LONGEST_FLOW = 3 * LINE_LIMIT
"""The largest flow in bytes: two bodies of the longest line, and what describes them."""
_DIGITS = 12
_BLOCK = 64 * 1024


def _read_flows(stream: PeekableStream) -> Records:
    """Yield the HTTP flows. Others (TCP, DNS) have no exchange."""
    require("mitmproxy", "reading flows of mitmproxy", "mitmproxy")
    reader = import_module("mitmproxy.io").FlowReader
    number = 0
    try:
        for data in _netstrings(stream):
            yield data if isinstance(data, UnreadableLine) else _read_flow(reader, data, number)
            number += 1
    except (OSError, EOFError, zlib.error) as error:
        yield problem("the flows are truncated or damaged", str(error) or type(error).__name__, number)


def _read_flow(reader: _Reader, data: bytes, number: int) -> Line | UnreadableLine:
    """Return the record of a flow. One that cannot be read hides no other."""
    try:
        flow = next(iter(reader(io.BytesIO(data)).stream()))
        if flow.type != "http":
            return problem("no exchange: a flow that is not HTTP", flow.type, number)
        record = json.dumps(_pair(flow)).encode()
    except Exception as error:  # noqa: BLE001 - a damaged flow raises errors of many kinds
        return problem("a flow that cannot be read", type(error).__name__, number)
    if len(record) > LINE_LIMIT:
        return problem("the flow is too long", f"{len(record)} bytes, at most {LINE_LIMIT} are read", number)
    return json_line(number, record)


def _netstrings(stream: PeekableStream) -> Iterator[bytes | UnreadableLine]:
    """Yield the bytes of each flow, `SIZE:CONTENT}`. One that is too long is skipped."""
    for number in count():
        size = b""
        while (sign := stream.read(1)).isdigit() and len(size) < _DIGITS:
            size += sign
        if not size and not sign:
            return
        if not size or sign != b":":
            yield problem("the flows are truncated or damaged", "no size of a flow", number)
            return
        length = int(size) + 1
        if length > _LONGEST_FLOW:
            while length and (block := stream.read1(min(length, _BLOCK))):
                length -= len(block)
            yield problem("the flow is too long", f"{int(size)} bytes, at most {_LONGEST_FLOW} are read", number)
            continue
        content = stream.read(length)
        if len(content) < length:
            yield problem("the flows are truncated or damaged", "the last flow is cut", number)
            return
        yield size + b":" + content


def _pair(flow: _Flow) -> dict[str, Any]:
    request, response = flow.request, flow.response
    sent = {"path": request.path, "headers": dict(request.headers.items()), "body": _body(request)}
    started = read_time(request.timestamp_start)
    if response is None:
        return {"request": sent, "response": None, "started": started}
    received = {"status": response.status_code, "headers": dict(response.headers.items()), "body": _body(response)}
    return {"request": sent, "response": received, "started": started}


def _body(message: _Flow) -> str:
    """Return the body as text, decoded within the limit of a record. An undecodable one is empty, and the record has no exchange."""
    coded = (Chunk(arrival_time=0.0, data=message.raw_content or b""),)
    try:
        chunks = decode_chunks(coded, message.headers.get("content-encoding", ""), limit=LINE_LIMIT)
    except ContentDecodingError:
        return ""
    return b"".join(chunk.data for chunk in chunks).decode("utf-8", "surrogateescape")


def _begins_a_flow(head: bytes, _: str) -> bool:
    """Return True for a netstring of a dictionary, whose first name has the announced length."""
    found = _FLOW.match(head)
    return found is not None and int(found[1]) == len(found[2])


FLOWS = Container(
    name="mitmproxy",
    title="flows of mitmproxy",
    matches=_begins_a_flow,
    read=one_file("mitmproxy", _read_flows, "#"),
)
