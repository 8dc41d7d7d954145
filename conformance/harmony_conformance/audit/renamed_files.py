"""Files of a log that get another name while an audit runs, as a rotation does: the audit reads the same file on."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

REPLACED = "the file was replaced or removed while the audit ran, as by a rotation: audit it again under its new name"


@dataclass(frozen=True, kw_only=True)
class FileIdentity:
    """A file, whatever its name is, and the folder that it was in. On another machine of a cluster, its numbers mean nothing."""

    folder: str
    device: int
    inode: int
    machine: str


class ReplacedFileError(OSError):
    """The file has no name any more in the folder that it was in."""


def identities(names: Iterable[str]) -> Mapping[str, FileIdentity]:
    """Return the identities of local files. Other names, such as URLs and pipes, have none."""
    machine = platform.node()
    found: dict[str, FileIdentity] = {}
    for name in names:
        with suppress(OSError, ValueError):
            path = Path(os.path.realpath(name))
            if path.is_file():
                status = path.stat()
                found[name] = FileIdentity(
                    folder=str(path.parent), device=status.st_dev, inode=status.st_ino, machine=machine
                )
    return found


def open_same(name: str, identity: FileIdentity | None, buffering: int = -1) -> BinaryIO:
    """Open the file that had this name. Without an identity, or on another machine, it is the file that has the name now.

    Raises:
        ReplacedFileError: The file has no name any more in its folder.
        OSError: It cannot be opened.
    """
    if identity is None or identity.machine != platform.node():
        return Path(name).open("rb", buffering)
    for path in (name, *_names_of(identity)):
        with suppress(FileNotFoundError):
            file = Path(path).open("rb", buffering)  # noqa: SIM115 - the caller closes it
            if _is_same(os.fstat(file.fileno()), identity):
                return file
            file.close()
    raise ReplacedFileError(None, REPLACED)


def _names_of(identity: FileIdentity) -> Iterator[str]:
    """Yield the names of a file in the folder that it was in."""
    with suppress(OSError), os.scandir(identity.folder) as entries:
        yield from (entry.path for entry in entries if entry.inode() == identity.inode)


def _is_same(status: os.stat_result, identity: FileIdentity) -> bool:
    return (status.st_dev, status.st_ino) == (identity.device, identity.inode)
