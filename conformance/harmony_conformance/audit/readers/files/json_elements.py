"""JSON values that are not one for each line: elements of a list, of a list inside a document, values over several lines.

A scanner finds where a value begins and ends, and keeps its bytes and its offset. A library that parses would keep neither, and no limit of size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harmony_conformance.evidence.compressed_files import Readable
from harmony_conformance.evidence.file_lines import LINE_LIMIT, Line, UnreadableLine, read_blocks

LISTS: frozenset[tuple[bytes, ...]] = frozenset(
    {(), (b"log", b"entries"), (b"resourceSpans",), (b"resourceLogs",), (b"data",), (b"observations",), (b"batch",)}
)
"""Paths of the lists in a document whose elements are records. The empty path is a document that is a list."""
_WRAPPED = frozenset({(b"resourceSpans",), (b"resourceLogs",), (b"batch",)})
"""Lists whose elements are records only inside an object with the name of the list."""
_DEEPEST_LIST = 2
_NAME_LIMIT = 64
_STRUCTURE = re.compile(rb'["{}\[\],]')
_IN_RECORD = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'["\\]')
_UTF8_MARK = b"\xef\xbb\xbf"
_SPACE = b" \t\r\n"


def read_elements(stream: Readable, *, limit: int = LINE_LIMIT) -> Iterator[Line | UnreadableLine]:
    """Yield the elements of a list, or of the lists in documents, or the documents themselves if they have no such list."""
    scanner = _Scanner(limit)
    for block in read_blocks(stream):
        if isinstance(block, UnreadableLine):
            yield from scanner.end()
            yield block
            return
        yield from scanner.feed(block)
    yield from scanner.end()


class _Scanner:
    """Finds the records in a stream of JSON.

    State: the number of open containers, the names of the outer ones, the depth of the list of records (-1 outside of one), the current record.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._offset = 0
        self._number = 0
        self._depth = 0
        self._names: list[bytes] = []
        self._list_depth = -1
        self._has_list = False
        self._in_string = self._escaped = False
        self._string = b""
        self._start = 0
        self._size = 0
        self._pieces: list[bytes] = []

    def feed(self, block: bytes) -> Iterator[Line | UnreadableLine]:
        """Yield the records that a block completes."""
        if not self._offset and block.startswith(_UTF8_MARK):
            block, self._offset, self._start = block[len(_UTF8_MARK) :], len(_UTF8_MARK), len(_UTF8_MARK)
        position = taken = 0
        while True:
            if self._in_string:
                position = self._skip_string(block, position)
                if self._in_string:
                    break
                continue
            pattern = _IN_RECORD if self._depth > max(self._list_depth, _DEEPEST_LIST) else _STRUCTURE
            found = pattern.search(block, position)
            if found is None:
                break
            position = found.end()
            match found[0]:
                case b'"':
                    self._in_string, self._string = True, b""
                case b"{" | b"[":
                    if self._open(found[0]):
                        self._drop(position)
                        taken = position
                case separator:
                    if self._depth == self._list_depth:
                        self._add(block[taken : position - 1])
                        taken = position
                        yield from self._take(position)
                    if separator != b"," and self._close():
                        self._add(block[taken:position])
                        taken = position
                        yield from self._take_document(position)
        self._add(block[taken:])
        self._offset += len(block)

    def end(self) -> Iterator[Line | UnreadableLine]:
        """Yield the last record, which may be cut."""
        if self._list_depth > 0 or not self._has_list:
            yield from self._take(0)

    def _skip_string(self, block: bytes, position: int) -> int:
        """Return the position after the string or at the end of the block. Keep its text where it may be the name of a list."""
        begin = position
        while True:
            if self._escaped:
                if position >= len(block):
                    break
                position, self._escaped = position + 1, False
            found = _IN_STRING.search(block, position)
            if found is None:
                position = len(block)
                break
            position = found.end()
            if found[0] == b"\\":
                self._escaped = True
            else:
                self._in_string = False
                break
        if self._depth <= _DEEPEST_LIST and len(self._string) < _NAME_LIMIT:
            self._string += block[begin : min(position - (not self._in_string), begin + _NAME_LIMIT)]
        return position

    def _open(self, opener: bytes) -> bool:
        """Open a container. Return True if its elements are the records."""
        self._depth += 1
        if self._depth > _DEEPEST_LIST + 1:
            return False
        self._names = [*self._names[: self._depth - 1], self._string]
        if opener == b"[" and self._list_depth < 0 and tuple(self._names[1:]) in LISTS:
            self._list_depth, self._has_list = self._depth, True
            return True
        return False

    def _close(self) -> bool:
        """Close a container. Return True if it was the last open one."""
        if self._depth == self._list_depth:
            self._list_depth = -1
        self._depth = max(self._depth - 1, 0)
        return not self._depth

    def _add(self, piece: bytes) -> None:
        if self._list_depth < 0 and self._has_list:
            self._size, self._pieces = 0, []
            return
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def _drop(self, position: int) -> None:
        self._start, self._size, self._pieces = self._offset + position, 0, []

    def _take(self, position: int) -> Iterator[Line | UnreadableLine]:
        """Yield the current record, and begin another one."""
        start, size, data = self._start, self._size, b"".join(self._pieces)
        self._drop(position)
        if size > self._limit:
            self._number += 1
            detail = f"{size} bytes, at most {self._limit} are read"
            yield UnreadableLine(offset=start, number=self._number, kind="the record is too long", detail=detail)
            return
        blank = len(data) - len(data.lstrip(_SPACE))
        if data := data.strip(_SPACE):
            self._number += 1
            path: tuple[bytes, ...] = tuple(self._names[1 : self._list_depth]) if self._list_depth > 0 else ()
            wrapped = b'{"%b":[%b]}' % (path[0], data) if path and path in _WRAPPED else data
            yield Line(offset=start + blank, number=self._number, data=wrapped)

    def _take_document(self, position: int) -> Iterator[Line | UnreadableLine]:
        """Yield a document without a list of records, or drop the rest of one that has such a list."""
        if not self._has_list:
            yield from self._take(position)
        self._has_list = False
        self._drop(position)
