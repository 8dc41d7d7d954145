"""OTLP in binary: what the collector's file exporter writes with `format: proto`. Each message follows its size in four bytes.

Source: `exporter/fileexporter` of opentelemetry-collector-contrib 0.100 and later; messages of opentelemetry-proto.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

from harmony_conformance.audit.readers.files.container import Container, Records, json_line, one_file, problem
from harmony_conformance.audit.readers.files.sources import PeekableStream, require
from harmony_conformance.evidence.file_lines import LINE_LIMIT, UnreadableLine, read_blocks

_SIZE = 4
_RESOURCES = 0x0A
"""The tag of the first member of a message: its list of resources."""
_KINDS = (
    ("opentelemetry.proto.trace.v1.trace_pb2", "TracesData"),
    ("opentelemetry.proto.logs.v1.logs_pb2", "LogsData"),
)


def _begins_a_message(head: bytes, _: str) -> bool:
    size = int.from_bytes(head[:_SIZE])
    return len(head) > _SIZE and 0 < size <= LINE_LIMIT and head[_SIZE] == _RESOURCES and head[0] <= 0x04  # noqa: PLR2004 - 64 MiB


def _read_messages(stream: PeekableStream) -> Records:
    """Yield the messages as OTLP in JSON: those with spans or log records."""
    require("opentelemetry.proto", "reading OTLP in binary")
    write = import_module("google.protobuf.json_format").MessageToJson
    for number, data in enumerate(_messages(stream)):
        if isinstance(data, UnreadableLine):
            yield problem(data.kind, data.detail, number)
            return
        message = _parse(data)
        if message is None:
            yield problem("no message of OTLP with spans or log records", number=number)
        else:
            yield json_line(number, write(message, indent=None).encode())


def _parse(data: bytes) -> Any:  # noqa: ANN401 - a message of protobuf
    """Return the message whose records have the members of their kind, None if it is neither kind."""
    for module, name in _KINDS:
        message = getattr(import_module(module), name)()
        is_parsed = False
        with suppress(Exception):  # `DecodeError`, and errors of its implementation in C
            message.ParseFromString(data)
            is_parsed = True
        resources = message.resource_spans if name == "TracesData" else message.resource_logs
        scopes = [
            scope
            for resource in resources
            for scope in (resource.scope_spans if name == "TracesData" else resource.scope_logs)
        ]
        records = [one for scope in scopes for one in (scope.spans if name == "TracesData" else scope.log_records)]
        if is_parsed and records and (name == "LogsData" or all(len(span.trace_id) == 16 for span in records)):  # noqa: PLR2004 - of OTLP
            return message
    return None


def _messages(stream: PeekableStream) -> Iterator[bytes | UnreadableLine]:
    """Yield the bytes of each message, and the reason if the last one is cut or too large."""
    rest = bytearray()
    for block in read_blocks(stream):
        if isinstance(block, UnreadableLine):
            yield block
            return
        rest += block
        begin = 0
        while len(rest) - begin >= _SIZE:
            size = int.from_bytes(rest[begin : begin + _SIZE])
            if size > LINE_LIMIT:
                yield problem("the message is too long", f"{size} bytes, at most {LINE_LIMIT} are read")
                return
            end = begin + _SIZE + size
            if len(rest) < end:
                break
            yield bytes(rest[begin + _SIZE : end])
            begin = end
        del rest[:begin]  # once for each block: it moves all that follows
    if rest:
        yield problem("the last message is truncated")


OTLP_BINARY = Container(
    name="otlp-binary",
    title="OTLP in binary",
    matches=_begins_a_message,
    read=one_file("otlp-binary", _read_messages, "#"),
)
