"""The file of the outcome log: append whole lines, and reopen the path after log rotation."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path

from harmony_conformance.runtime.private_files import private_opener


def append_error(log: Path | None) -> str:
    """Return the reason why lines cannot be appended to the log; empty if they can."""
    try:
        if log is not None:
            open(log, "ab", opener=private_opener).close()
    except OSError as problem:
        return problem.strerror or str(problem)
    return ""


class LogFile:
    """An append-only log. State: the open file, and whether its last line is incomplete.

    Log rotation needs no signal: after the file is moved, the next line creates a new file at the path. If that fails,
    lines still go to the old file. A line break separates an incomplete line from the next one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = (0, 0)
        self._file: io.FileIO | None = None
        self._is_torn = False

    def write(self, line: bytes) -> None:
        """Append a line that ends with a line break.

        Raises:
            OSError: the line could not be written, or only in part.
        """
        file = self._current()
        rest = memoryview(b"\n" + line if self._is_torn else line)
        while rest:
            size = file.write(rest) or 0
            self._is_torn = self._is_torn or size > 0
            rest = rest[size:]
        self._is_torn = False

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _current(self) -> io.FileIO:
        file = self._file
        if file is None:
            return self._open()
        if not self._is_at_path():
            with suppress(OSError):
                following = self._open()
                self._is_torn = False
                with suppress(OSError):  # the descriptor is closed even on an error
                    file.close()
                return following
        return file

    def _open(self) -> io.FileIO:
        file = io.FileIO(self._path, "a", opener=private_opener)
        status = os.fstat(file.fileno())
        self._file, self._identity = file, (status.st_ino, status.st_dev)
        return file

    def _is_at_path(self) -> bool:
        try:
            status = self._path.stat()
        except OSError:
            return False
        return (status.st_ino, status.st_dev) == self._identity
