"""Files that hold traffic: created for the owner alone. An existing file or folder keeps its mode."""

from __future__ import annotations

import os
from pathlib import Path

_FILE, _FOLDER = 0o600, 0o700


def private_opener(path: str, flags: int) -> int:
    """Open a file for `open(…, opener=private_opener)`, which creates it with mode 0600."""
    return os.open(path, flags, _FILE)


def unlinked_opener(path: str, flags: int) -> int:
    """Open a file like `private_opener`. A symbolic link is an error: its target may be anywhere."""
    return private_opener(path, flags | getattr(os, "O_NOFOLLOW", 0))


def write_private(path: Path, data: bytes) -> None:
    """Write a file, which is created with mode 0600. One that cannot be written to its end is removed: a part looks like a whole one.

    Raises:
        OSError: The file cannot be written, or is a symbolic link.
    """
    file = open(path, "wb", opener=unlinked_opener)  # noqa: SIM115 - an error of opening removes nothing
    try:
        with file:
            file.write(data)
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def create_private_folder(path: Path) -> None:
    """Create a folder and its missing parents, each with mode 0700.

    Raises:
        OSError: The folder cannot be created.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        folder.mkdir(mode=_FOLDER, exist_ok=True)
    path.mkdir(exist_ok=True)
