"""Keys of configuration files: what a reader accepts is what the reference page of the file lists."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class FileKey:
    """A key of a file, or a variable of the environment.

    Attributes:
        kind: Type of the value, or its possible values.
        example: A line of TOML, or the value of a variable.
        default: What applies without the key; empty: nothing does.
        table: The table of the file that has the key; empty: the top of the file.
        required: Whether the table is invalid without the key.
    """

    name: str
    kind: str
    meaning: str
    example: str
    default: str = ""
    table: str = ""
    required: bool = False


def names_of(keys: Iterable[FileKey], table: str = "") -> tuple[str, ...]:
    """Return the names of the keys of a table, in their order."""
    return tuple(key.name for key in keys if key.table == table)
