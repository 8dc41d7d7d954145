"""Read a file's lines with their byte offsets in constant memory. Plain and compressed files (gzip, bzip2, xz) are distinguished by their first bytes.

Nothing is lost silently: an `UnreadableLine` reports each line that is too long, truncated gzip data and read errors, with its offset.
Offsets count bytes of the text, after decompression.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from harmony_conformance.evidence.compressed_files import FIRST_BYTES, DamagedFileError, Readable, decompress
from harmony_conformance.json_value import MAX_LINE_DEPTH, Json, loads

LINE_LIMIT = 64 * 1024 * 1024
"""The longest line that is read, in bytes."""
NOT_READ = "the file cannot be read"
"""The kind of a file whose error is in the detail."""

_BLOCK = 1024 * 1024
_GZIP = b"\x1f\x8b"
_UTF8_MARK = b"\xef\xbb\xbf"
_NOT_BLANK = re.compile(rb"\S")
_OTHER_FORMATS: Mapping[bytes, str] = {
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "the file is UTF-16: convert it (iconv -f utf-16 -t utf-8)"),
    b"\x28\xb5\x2f\xfd": "the file is packed by zstd: unpack it (zstd -d)",
    b"PK\x03\x04": "the file is a zip archive: unpack it (unzip)",
    b"PAR1\x15": "the file is Parquet: write it as JSON Lines",
    b"\x04\x22\x4d\x18": "the file is packed by lz4: unpack it (lz4 -d)",
    b"Obj\x01": "the file is Avro: write it as JSON Lines",
}
"""The first bytes of files without JSON lines, and the remedy."""
_LONGEST_MARK = max(map(len, _OTHER_FORMATS))


@dataclass(frozen=True, kw_only=True)
class Line:
    """The bytes of a line without its end, the offset of its first byte, and its number from 1.

    `has_end` is False for a last line without a line feed.
    """

    offset: int
    number: int
    data: bytes
    has_end: bool = True


@dataclass(frozen=True, kw_only=True, order=True)
class LinePosition:
    """The place of a record in a file. The order of positions makes the choice of examples independent of how a log is divided.

    Attributes:
        file: The file, and for a database the table: `FILE:TABLE`.
        offset: The byte offset of the record, or its number from 0 in a file without byte offsets.
        part: The number of the exchange within the record, from 0; -1 if the record is one exchange.
        mark: `@` before a byte offset, `#` before a number.
    """

    file: str
    offset: int
    part: int = -1
    mark: str = "@"

    def __str__(self) -> str:
        """Return `FILE@OFFSET`, `FILE#NUMBER`, or either with `/PART`; also used as exchange id."""
        return f"{self.file}{self.mark}{self.offset}" + (f"/{self.part}" if self.part >= 0 else "")


@dataclass(frozen=True, kw_only=True)
class UnreadableLine:
    """A part of a file that could not be read. `number` counts lines from 1; 0 is the whole file.

    `kind` is one of a few fixed texts, by which problems are counted.
    """

    offset: int
    number: int
    kind: str
    detail: str = ""

    def __str__(self) -> str:
        """Return kind and detail in one line."""
        return f"{self.kind}: {self.detail}" if self.detail else self.kind


def read_lines(path: Path, *, limit: int = LINE_LIMIT) -> Iterator[Line | UnreadableLine]:
    """Yield the lines of a file, without blank ones. A file that cannot be opened yields one `UnreadableLine`.

    Args:
        path: The file, plain or compressed by gzip, bzip2 or xz.
        limit: The largest length of a line, in bytes.
    """
    try:
        with path.open("rb") as raw:
            head = raw.peek(_LONGEST_MARK)
            mark = next(filter(head.startswith, FIRST_BYTES), None)
            if head.startswith(_GZIP):
                with gzip.open(raw, "rb") as unpacked:
                    yield from split_lines(unpacked, limit=limit)
            else:
                yield from split_lines(raw if mark is None else decompress(raw, mark), limit=limit)
    except FileNotFoundError:
        yield UnreadableLine(offset=0, number=0, kind="no such file")
    except IsADirectoryError:
        yield UnreadableLine(offset=0, number=0, kind="it is a folder, not a file")
    except OSError as error:
        yield UnreadableLine(offset=0, number=0, kind=NOT_READ, detail=error.strerror or str(error))


def split_lines(stream: Readable, *, limit: int = LINE_LIMIT) -> Iterator[Line | UnreadableLine]:
    """Yield the lines of an open stream, without blank ones. `limit` is the largest length of a line, in bytes."""
    splitter, end, beginning = _Splitter(limit), 0, b""
    for block in read_blocks(stream):
        if isinstance(block, UnreadableLine):
            yield from splitter.take(has_end=False)
            yield replace(block, number=splitter.number)
            return
        if end < _LONGEST_MARK:  # a stream may deliver it in pieces
            beginning += block[:_LONGEST_MARK]
            if kind := other_format(beginning):
                yield UnreadableLine(offset=0, number=1, kind=kind)
                return
        end += len(block)
        yield from splitter.feed(block)
    yield from splitter.take(has_end=False)


def other_format(beginning: bytes) -> str:
    """Return the format of a file without JSON lines, with the remedy, by its first bytes; empty for any other file."""
    return next((kind for mark, kind in _OTHER_FORMATS.items() if beginning.startswith(mark)), "")


def read_blocks(stream: Readable) -> Iterator[bytes | UnreadableLine]:
    """Yield the blocks of a stream, and the reason if it cannot be read to its end."""
    end = 0
    while True:
        try:
            block = stream.read1(_BLOCK)
        except EOFError:
            yield UnreadableLine(offset=end, number=0, kind="the compressed file is truncated")
            return
        except (zlib.error, gzip.BadGzipFile, DamagedFileError) as error:
            yield UnreadableLine(offset=end, number=0, kind="the compressed file is damaged", detail=str(error))
            return
        except OSError as error:
            detail = error.strerror or str(error)
            yield UnreadableLine(offset=end, number=0, kind=f"{NOT_READ} further", detail=detail)
            return
        if not block:
            return
        end += len(block)
        yield block


class _Splitter:
    """Splits blocks into lines. Its state is the pieces of the current line, or the skipped size of one that is too long."""

    def __init__(self, limit: int) -> None:
        self.number = 1
        self._limit = limit
        self._start = 0
        self._size = 0
        self._pieces: list[bytes] = []

    def feed(self, block: bytes) -> Iterator[Line | UnreadableLine]:
        position = 0
        while (line_end := block.find(b"\n", position)) >= 0:
            self._add(block[position:line_end])
            yield from self.take(has_end=True)
            self._start += 1  # the line's end itself
            self.number += 1
            position = self._skip_blank_lines(block, line_end + 1)
        self._add(block[position:])

    def _skip_blank_lines(self, block: bytes, position: int) -> int:
        """Return the position of the next line with text. A compressed megabyte may have a billion blank lines before it."""
        text = _NOT_BLANK.search(block, position)
        line_start = block.rfind(b"\n", position, text.start() if text is not None else len(block)) + 1
        if line_start <= position:
            return position
        self._start += line_start - position
        self.number += block.count(b"\n", position, line_start)
        return line_start

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= self._limit:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def take(self, *, has_end: bool) -> Iterator[Line | UnreadableLine]:
        start, size = self._start, self._size
        data = b"".join(self._pieces)
        self._start, self._size = start + size, 0
        self._pieces.clear()
        if size > self._limit:
            detail = f"{size} bytes, at most {self._limit} are read"
            yield UnreadableLine(offset=start, number=self.number, kind="the line is too long", detail=detail)
            return
        if start == 0:
            data = data.removeprefix(_UTF8_MARK)
        if data.strip():
            yield Line(offset=start, number=self.number, data=data, has_end=has_end)


class LineEncodingError(ValueError):
    """A line that is not UTF-8 text. `byte` is the index of the first invalid byte in the line."""

    def __init__(self, byte: int) -> None:
        super().__init__(f"not UTF-8 text at byte {byte}")
        self.byte = byte


def parse_line(line: Line) -> Json:
    """Return the JSON value of a line.

    Raises:
        InvalidJsonError: The line is not JSON.
        LineEncodingError: The line is not UTF-8.
    """
    try:
        document = line.data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise LineEncodingError(problem.start) from None
    return loads(document, max_depth=MAX_LINE_DEPTH)
