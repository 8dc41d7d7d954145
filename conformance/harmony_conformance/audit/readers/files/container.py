"""A file format: how it is detected, and how its records are read as lines of JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import LiteralString

from harmony_conformance.audit.readers.files.sources import MissingLibraryError, PeekableStream
from harmony_conformance.evidence.file_lines import Line, UnreadableLine

Records = Iterator[Line | UnreadableLine]
HEAD_BYTES = 64 * 1024
"""Number of bytes at the beginning of a file that show its format."""


@dataclass(frozen=True, kw_only=True)
class InputFile:
    """A file of a log, or a table of a database. Its records must be read before the next one is opened.

    Attributes:
        name: The name in places.
        format: The name of its format.
        records: The records, each a JSON value.
        mark: `@` if places are byte offsets, `#` if they are numbers of records from 0.
        is_plain: True if the records are the lines of the file as it is stored.
    """

    name: str
    format: str
    records: Records
    mark: str = "@"
    is_plain: bool = False


@dataclass(frozen=True, kw_only=True)
class Container:
    """One file format.

    Attributes:
        name: The value of `--format` that selects it.
        title: A description in a few words.
        matches: Return True if a file begins so. The second argument is its name.
        read: Return its records; several files for a database, one for each table.
    """

    name: str
    title: LiteralString
    matches: Callable[[bytes, str], bool]
    read: Callable[[PeekableStream, str], Iterable[InputFile]]


def one_file(
    form: str, read: Callable[[PeekableStream], Records], mark: str = "@"
) -> Callable[[PeekableStream, str], Iterable[InputFile]]:
    """Return the reader of a format with one sequence of records in a file."""
    return lambda stream, name: [InputFile(name=name, format=form, records=_with_library(read(stream)), mark=mark)]


def _with_library(records: Records) -> Records:
    """Yield records, or the reason if their library is missing: the other files of a log are read all the same."""
    try:
        yield from records
    except MissingLibraryError as error:
        yield problem(str(error))


def json_line(number: int, data: bytes) -> Line:
    """Return a record of a file without byte offsets. `number` counts from 0."""
    return Line(offset=number, number=number + 1, data=data)


def problem(kind: str, detail: str = "", number: int = 0) -> UnreadableLine:
    """Return a file, or a record with a number from 0, that cannot be read."""
    return UnreadableLine(offset=number, number=number, kind=kind, detail=detail)
