"""Flows that mitmproxy stored (`mitmdump -w FILE`), read by mitmproxy itself."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from importlib import import_module
from typing import Any, TypeAlias

from harmony_conformance.audit.readers.container import Container, Records, json_line, one_file, problem
from harmony_conformance.audit.readers.sources import PeekableStream, require
from harmony_conformance.evidence.file_lines import LINE_LIMIT
from harmony_conformance.transport.content_coding import ContentDecodingError, decode_chunks
from harmony_conformance.transport.messages import Chunk

_Flow: TypeAlias = Any
"""A value of mitmproxy, which Python 3.11 cannot install."""
_FLOW = re.compile(rb"\d{1,12}:(\d{1,4}):([a-z_]{1,30});")


def _read_flows(stream: PeekableStream) -> Records:
    """Yield the HTTP flows. Others (TCP, DNS) have no exchange."""
    require("mitmproxy", "flows of mitmproxy", "mitmproxy")
    number = 0
    try:
        for flow in import_module("mitmproxy.io").FlowReader(stream).stream():
            yield (
                json_line(number, json.dumps(_pair(flow)).encode())
                if flow.type == "http"
                else problem("no exchange: a flow that is not HTTP", flow.type, number)
            )
            number += 1
    except Exception as error:  # noqa: BLE001 - a damaged file raises errors of many kinds
        yield problem("the flows are truncated or damaged", type(error).__name__, number)


def _pair(flow: _Flow) -> dict[str, Any]:
    request, response = flow.request, flow.response
    sent = {"path": request.path, "headers": dict(request.headers.items()), "body": _body(request)}
    started = datetime.fromtimestamp(request.timestamp_start, UTC).isoformat()
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
