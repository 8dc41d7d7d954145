"""Lock of an output folder: one process at a time writes into it.

The lock is an advisory lock of the operating system (`flock`) on a file with the process id. It ends with its process, also after `kill -9`.
A file that such a process left behind locks nothing. Windows has no such lock: there the folder is not protected.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from harmony_conformance.errors import UsageError

LOCK_FILE = ".lock"
"""Name of the file in the folder; it is deleted at the end."""
_LONGEST_PID = 20  # digits
_OPEN: set[int] = set()


class FolderInUseError(UsageError):
    """A folder that another process writes into. The message names the process."""

    def __init__(self, folder: Path, pid: str) -> None:
        holder = f"process {pid}" if pid.isdigit() else "another process"
        super().__init__(f"{folder}: in use by {holder}: wait for its end, or use another folder")


@contextmanager
def lock_folder(folder: Path) -> Generator[None]:
    """Lock an existing folder while the context is active. Child processes do not inherit the lock.

    Raises:
        FolderInUseError: Another process, or another context of this process, has locked the folder.
        UsageError: The lock file is a symbolic link, whose target would be truncated.
        OSError: The folder is not writable, or its file system has no locks.
    """
    if sys.platform == "win32":
        yield
        return
    path = folder / LOCK_FILE
    descriptor = _lock(path, folder)
    _OPEN.add(descriptor)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode("ascii"), 0)
        yield
    finally:
        with suppress(FileNotFoundError):
            path.unlink()
        _OPEN.discard(descriptor)
        os.close(descriptor)


if sys.platform != "win32":
    import fcntl

    def _lock(path: Path, folder: Path) -> int:
        """Return the descriptor of the locked file. A file that its owner deleted in between is opened again."""
        while True:
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            except OSError as error:
                if path.is_symlink():
                    raise UsageError(
                        f"invalid {path}: expected a file, got a symbolic link: delete it, or use another folder"
                    ) from error
                raise
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_same_file(descriptor, path):
                    return descriptor
            except BlockingIOError:
                pid = os.pread(descriptor, _LONGEST_PID, 0).decode("ascii", "replace")
                os.close(descriptor)
                raise FolderInUseError(folder, pid) from None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _is_same_file(descriptor: int, path: Path) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), path.lstat())
        except FileNotFoundError:
            return False

    def _close_in_child() -> None:
        """Close the inherited descriptors: otherwise a child that outlives its parent would hold the lock."""
        for descriptor in _OPEN:
            os.close(descriptor)
        _OPEN.clear()

    os.register_at_fork(after_in_child=_close_in_child)
