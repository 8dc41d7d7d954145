"""Text files that a user wrote: UTF-8, with or without the byte order mark that editors on Windows write."""

from __future__ import annotations

import errno
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from contextlib import suppress
from pathlib import Path

_NOT_REPLACEABLE = frozenset({errno.EACCES, errno.EPERM, errno.EBUSY})
"""The folder is not writable, or the file is a mount, as in a container."""


class InvalidEncodingError(ValueError):
    """A file is not UTF-8. The message has its encoding, or the byte."""


def read_text_file(path: Path) -> str:
    r"""Read a file without its byte order mark, and with `\n` as the end of each line.

    Raises:
        OSError: The file cannot be read.
        InvalidEncodingError: It is not UTF-8.
    """
    try:
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise InvalidEncodingError(encoding_problem(problem)) from None


def replace_text_file(path: Path, content: str) -> None:
    """Write a file of the user: after an error it has its earlier content. A link stays, and so does the mode.

    Raises:
        OSError: The file cannot be written.
    """
    target = path.resolve()
    part = target.with_name(f".{target.name}.part")
    try:
        if target.exists() and not target.is_file():  # a device
            target.write_text(content, "utf-8")
            return
        part.write_text(content, "utf-8")
        if target.exists():
            part.chmod(target.stat().st_mode)
        part.replace(target)
    except OSError as problem:
        if problem.errno not in _NOT_REPLACEABLE or not target.exists():
            raise
        target.write_text(content, "utf-8")
    finally:
        with suppress(OSError):
            part.unlink()


def encoding_problem(problem: UnicodeDecodeError) -> str:
    """Return what is wrong with the bytes of a whole file, in one line."""
    if problem.object[:2] in (BOM_UTF16_LE, BOM_UTF16_BE):
        return "the file is UTF-16: convert it (iconv -f utf-16 -t utf-8)"
    return f"invalid UTF-8 at byte {problem.start}"
