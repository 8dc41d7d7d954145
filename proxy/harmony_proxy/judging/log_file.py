"""The file that the outcome log is written to: appended to line by line, followed when it is moved away, and never with a torn line in its middle."""

from __future__ import annotations

import io
import os
from contextlib import suppress
from pathlib import Path


class LogFile:
    """State: the open file, and whether its last line was cut off.

    Whoever rotates it moves it away and has nothing to tell us: the next line goes to a new file at its path. One that cannot be made is done without, as long
    as the old one can be written.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = (0, 0)
        self._file: io.FileIO | None = None
        self._is_torn = False

    def write(self, line: bytes) -> None:
        """Append a line, with its line break.

        Raises:
            OSError: it cannot be written, or not to its end.
        """
        file = self._current()
        left = memoryview(b"\n" + line if self._is_torn else line)
        while left:
            size = file.write(left) or 0
            self._is_torn = self._is_torn or size > 0
            left = left[size:]
        self._is_torn = False

    def close(self) -> None:
        """No more is written."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _current(self) -> io.FileIO:
        file = self._file
        if file is None:
            return self._opened()
        if not self._is_there():
            with suppress(OSError):
                following = self._opened()
                self._is_torn = False
                with suppress(OSError):  # it is closed all the same
                    file.close()
                return following
        return file

    def _opened(self) -> io.FileIO:
        file = io.FileIO(self._path, "a")
        told = os.fstat(file.fileno())
        self._file, self._identity = file, (told.st_ino, told.st_dev)
        return file

    def _is_there(self) -> bool:
        try:
            told = self._path.stat()
        except OSError:
            return False
        return (told.st_ino, told.st_dev) == self._identity
