"""Records that wait for their other half, by key, in a temporary file: a log of any size needs no more memory."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self


class DiskIndex:
    """Values by key. State: a database in a temporary folder, which `with` deletes."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="harmony-audit-")
        self._database = sqlite3.connect(Path(self._folder.name) / "index")
        self._database.execute("PRAGMA journal_mode = OFF")
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute("CREATE TABLE waiting (key TEXT PRIMARY KEY, value BLOB)")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._database.close()
        self._folder.cleanup()

    def put(self, key: str, value: bytes) -> None:
        """Store a value; a second one of the same key replaces the first."""
        self._database.execute("INSERT OR REPLACE INTO waiting VALUES (?, ?)", (_storable(key), value))

    def pop(self, key: str) -> bytes | None:
        """Return the value of a key and delete it, None if it is missing."""
        stored = self._database.execute(
            "DELETE FROM waiting WHERE key = ? RETURNING value", (_storable(key),)
        ).fetchall()
        return bytes(stored[0][0]) if stored else None

    def values(self) -> Iterator[bytes]:
        """Yield the values that are left, in the order in which they were stored."""
        for (value,) in self._database.execute("SELECT value FROM waiting ORDER BY rowid"):
            yield bytes(value)


def _storable(key: str) -> str:
    return key.encode("utf-8", "backslashreplace").decode()
