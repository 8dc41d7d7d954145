"""The table of file formats, and the files of a log with their records."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.audit.readers.files.container import HEAD_BYTES, Container, InputFile, Records, problem
from harmony_conformance.audit.readers.files.disk_index import DiskIndex
from harmony_conformance.audit.readers.files.mitmproxy_flows import FLOWS
from harmony_conformance.audit.readers.files.otlp_binary import OTLP_BINARY
from harmony_conformance.audit.readers.files.sources import (
    MissingLibraryError,
    PeekableStream,
    is_broken_link,
    is_linked_folder,
    is_url,
    mask_urls,
    open_source,
)
from harmony_conformance.audit.readers.files.tables import ARROW, DUCKDB, PARQUET, SQLITE
from harmony_conformance.audit.readers.files.texts import CAPTURE, CSV, DOCUMENTS, LINES
from harmony_conformance.audit.readers.files.vllm_log import VLLM_LOG
from harmony_conformance.audit.readers.records.pairs import BATCH_INPUT_MEMBERS, BATCH_REQUEST
from harmony_conformance.audit.renamed_files import REPLACED, FileIdentity, ReplacedFileError
from harmony_conformance.evidence.file_lines import NOT_READ, Line, UnreadableLine
from harmony_conformance.json_value import Json, JsonObject, integer, members, text

ALL_CONTAINERS = (PARQUET, ARROW, SQLITE, DUCKDB, OTLP_BINARY, FLOWS, CAPTURE, VLLM_LOG, DOCUMENTS, CSV, LINES)
CONTAINERS: Mapping[str, Container] = MappingProxyType({container.name: container for container in ALL_CONTAINERS})
"""The file formats by name, in the order in which they are tried. The last one matches every file."""
_CUSTOM_ID = b'"custom_id"'
_LONGEST_INPUT = 4 * 1024 * 1024
_LINKED_FOLDER = "a link to a folder, which is not followed: name the folder as a PATH"
_SHORTENED = "the file became shorter while it was read, as by a rotation that truncates: the rest is lost"
_NO_ENDS: Mapping[str, int] = MappingProxyType({})
_NO_IDENTITIES: Mapping[str, FileIdentity] = MappingProxyType({})


def open_logs(
    names: Iterable[str],
    form: str,
    ends: Mapping[str, int] = _NO_ENDS,
    known: Mapping[str, FileIdentity] = _NO_IDENTITIES,
) -> Iterator[InputFile]:
    """Yield the files of a log, and the tables of databases, each with its records. Lines of OpenAI's batches are joined by `custom_id`.

    A file that cannot be opened is one with an unreadable record.

    Args:
        names: Files, URLs, or `-`.
        form: The name of a file format, or any other text to detect it.
        ends: The byte offsets up to which files are read. Others are read to their end, databases and Parquet too.
        known: What the files are, so that one that is renamed meanwhile is read all the same.
    """
    files = list(names)
    with ExitStack() as stack:
        inputs = [name for name in files if _is_batch_input(name)]
        index = stack.enter_context(DiskIndex()) if inputs else None
        for name in inputs:
            for log in _open_log(name, form, ends.get(name), known.get(name)):
                if index is not None:
                    yield from _collect(log, index)
        for name in files:
            if name in inputs:
                continue
            for log in _open_log(name, form, ends.get(name), known.get(name)):
                yield log if index is None else _joined(log, index)
        if index is not None:
            yield from _unanswered(index)


def find_container(head: bytes, name: str, form: str) -> Container:
    """Return the format of that name, else the one that a file begins like."""
    return CONTAINERS.get(form) or next(container for container in ALL_CONTAINERS if container.matches(head, name))


def _open_log(name: str, form: str, end: int | None, identity: FileIdentity | None) -> Iterator[InputFile]:
    shown = mask_urls(name) if is_url(name) else name
    try:
        with open_source(name, end, identity) as stream:
            yield from find_container(stream.peek(HEAD_BYTES), shown, form).read(stream, shown)
            if (size := _size_of(stream)) is not None and end is not None and size < end:
                detail = f"{size} bytes are left of {end}"
                yield InputFile(name=shown, format="", records=iter([problem(_SHORTENED, detail, size)]))
    except MissingLibraryError as error:
        yield _unopened(shown, str(error))
    except FileNotFoundError:
        yield _unopened(shown, "a link that leads to no file" if is_broken_link(Path(name)) else "no such file")
    except IsADirectoryError:
        is_link = is_linked_folder(Path(name))
        yield _unopened(shown, _LINKED_FOLDER if is_link else "it is a folder, not a file")
    except ReplacedFileError:
        yield _unopened(shown, REPLACED)
    except OSError as error:
        yield _unopened(shown, NOT_READ, mask_urls(error.strerror or str(error)))


def _size_of(stream: PeekableStream) -> int | None:
    """Return the size of an open file now; None for another stream."""
    try:
        return os.fstat(stream.file.fileno()).st_size if stream.file is not None else None
    except OSError:  # it has no descriptor
        return None


def _unopened(name: str, kind: str, detail: str = "") -> InputFile:
    return InputFile(name=name, format="", records=iter([problem(kind, detail)]))


def _is_batch_input(name: str) -> bool:
    """Return True for the input file of OpenAI's Batch API, by its first line."""
    if not is_url(name) and not Path(name).is_file():  # what is read from a pipe cannot be read again
        return False
    try:
        with open_source(name) as stream:
            head = stream.peek(HEAD_BYTES)
            head = stream.peek(_LONGEST_INPUT) if _CUSTOM_ID in head else b""
    except (OSError, MissingLibraryError):
        return False
    first = _parse(head.lstrip().partition(b"\n")[0])
    return first.keys() >= BATCH_INPUT_MEMBERS and "response" not in first


def _parse(data: bytes) -> JsonObject:
    try:
        value: Json = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return members(value)


def _collect(log: InputFile, index: DiskIndex) -> Iterator[InputFile]:
    """Store the lines of an input file, and yield the others."""
    yield InputFile(name=log.name, format=log.format, records=_store(log, index), mark=log.mark)


def _store(log: InputFile, index: DiskIndex) -> Records:
    for line in log.records:
        value = _parse(line.data) if isinstance(line, Line) else {}
        if isinstance(line, UnreadableLine) or not value.keys() >= BATCH_INPUT_MEMBERS:
            yield line
        elif index.pop(text(value["custom_id"])) is not None:
            yield UnreadableLine(
                offset=line.offset, number=line.number, kind="a `custom_id` that an earlier input line has"
            )
        else:
            stored = {"file": log.name, "offset": line.offset, "line": value}
            index.put(text(value["custom_id"]), json.dumps(stored).encode())


def _joined(log: InputFile, index: DiskIndex) -> InputFile:
    return InputFile(name=log.name, format=log.format, records=_join(log.records, index), mark=log.mark)


def _join(records: Records, index: DiskIndex) -> Records:
    """Yield records, those of an output file with their input line."""
    for line in records:
        value = _parse(line.data) if isinstance(line, Line) and _CUSTOM_ID in line.data else {}
        found = index.pop(text(value.get("custom_id"))) if isinstance(line, Line) and "response" in value else None
        if found is None or isinstance(line, UnreadableLine):
            yield line
        else:
            yield replace(line, data=json.dumps({**value, BATCH_REQUEST: _parse(found)["line"]}).encode())


def _unanswered(index: DiskIndex) -> Iterator[InputFile]:
    """Yield the input lines that no output line answered."""
    for name, group in groupby(map(_parse, index.values()), key=lambda stored: text(stored["file"])):
        lines = (
            Line(offset=integer(one["offset"]) or 0, number=1, data=json.dumps(one["line"]).encode()) for one in group
        )
        yield InputFile(name=name, format=LINES.name, records=lines)
