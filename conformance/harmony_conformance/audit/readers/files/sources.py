"""Byte streams of logs: files, folders, globs, standard input, URLs; decompressed by their first bytes, in constant memory.

Each decompressor has a bounded output for each step and a bounded window, so that a small file cannot fill the memory.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from glob import glob, has_magic
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, cast

from harmony_conformance.audit.renamed_files import FileIdentity, open_same
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.compressed_files import FIRST_BYTES, BlockStream, DamagedFileError, decompress
from harmony_conformance.evidence.file_lines import LINE_LIMIT
from harmony_conformance.transport.content_coding import BodyDecoder, ContentDecodingError
from harmony_conformance.transport.redaction import MASK, is_secret_parameter
from harmony_ref.extras import install_command

STDIN = "-"
_BLOCK = 64 * 1024
_MOST_LAYERS = 3
_NOT_FOUND = 404
_LONGEST_READ = 512 * 1024 * 1024
_ZSTD_INPUT = 64
_LARGEST_EMPTY = 256
"""Bytes of a compressed file without content: its header has the name of the file at most."""
EXTRA = "logs"
_USER = re.compile(r"(?<=://)(?:[^/?#\s]*|[^/?#:\s]+:(?!\d{1,5}/)[^?#\s]*)@")
"""User and password in a URL. A password may have an unescaped slash, as keys of S3 do."""
_PARAMETER = re.compile(r"(?<=[?&#;])(?P<name>[^=&#;\s]+)=(?P<value>[^&#;\s'\"]+)")


class MissingLibraryError(UsageError):
    """Something that needs a library that is not installed. The message has the command that installs it."""

    def __init__(self, what: str, library: str, extra: str = EXTRA) -> None:
        super().__init__(f"{what} needs {library}: {install_command(extra)}")


def require(library: str, what: str, extra: str = EXTRA) -> None:
    """Check that a library is installed.

    Raises:
        MissingLibraryError: It is not.
    """
    try:
        is_installed = find_spec(library) is not None
    except ModuleNotFoundError:  # its parent is missing
        is_installed = False
    if not is_installed:
        raise MissingLibraryError(what, library.replace(".", "-"), extra)


def is_url(name: str) -> bool:
    """Return True for `scheme://…`."""
    return "://" in name


def mask_urls(value: str) -> str:
    """Return a text in which URLs have no user, no password, and no value of a query parameter with a credential."""
    return _PARAMETER.sub(_mask_parameter, _USER.sub(f"{MASK}@", value)) if "://" in value else value


def _mask_parameter(match: re.Match[str]) -> str:
    return f"{match['name']}={MASK if is_secret_parameter(match['name']) else match['value']}"


def expand(names: Iterator[str]) -> Iterator[str]:
    """Yield the files of names that may be folders, globs or URLs, sorted within each name. Hidden files of folders are left out.

    Raises:
        UsageError: A name is no file, or a folder or glob has none.
        MissingLibraryError: A URL needs a library.
    """
    for name in names:
        if name == STDIN or (not is_url(name) and Path(name).is_file()):
            yield name
        elif is_url(name):
            yield from _expand_url(name)
        elif Path(name).is_dir():
            found = (path for path in Path(name).rglob("*") if _is_listed(path) or _leads_out(path, name))
            shown = (path for path in found if not _is_hidden(path.relative_to(name)))
            yield from _some(sorted(map(str, shown)), f"{name}: the folder has no file")
        elif has_magic(name):
            yield from _some(sorted(_matching(name)), f"{name}: no such file")
        elif os.path.lexists(name):
            yield name  # a pipe or a device
        else:
            raise UsageError(f"{name}: no such file")


def same_files(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield each name that leads to a file of another name, and that name: a file that is read twice counts twice.

    Of several names of a file the first that is no link is read, since a link like `current.log` leads to another file tomorrow.
    """
    by_file: dict[tuple[int, int], list[str]] = {}
    for name in dict.fromkeys(names):
        if not is_url(name) and Path(name).is_file():
            status = Path(name).stat()
            by_file.setdefault((status.st_dev, status.st_ino), []).append(name)
    for same in by_file.values():
        read = next((name for name in same if not Path(name).is_symlink()), same[0])
        yield from ((name, read) for name in same if name != read)


def special_files(names: Iterable[str]) -> Iterator[str]:
    """Yield the pipes, sockets and devices in folders. They are read only by their name: opening a pipe waits for its writer."""
    for name in names:
        if not is_url(name) and Path(name).is_dir():
            found = (
                path for path in Path(name).rglob("*") if path.exists() and not path.is_file() and not path.is_dir()
            )
            yield from sorted(str(path) for path in found if not _is_hidden(path.relative_to(name)))


def is_broken_link(path: Path) -> bool:
    """Return True for a link that leads to nothing, or in a circle."""
    return path.is_symlink() and not path.exists()


def empty_files(names: Iterable[str]) -> Iterator[str]:
    """Yield the local files without a byte of content, decompressed if need be. They have no record that a report could name."""
    for name in names:
        if is_url(name) or not Path(name).is_file() or Path(name).stat().st_size > _LARGEST_EMPTY:
            continue
        with suppress(OSError, EOFError, ValueError, zlib.error, UsageError), open_source(name) as stream:
            if not stream.peek(1) and not stream.read(1):  # reading raises the error of a damaged file
                yield name


def is_linked_folder(path: Path) -> bool:
    """Return True for a link to a folder."""
    return path.is_symlink() and path.is_dir()


def _is_listed(path: Path) -> bool:
    """Return True for a file, and for a broken link, which is reported as unreadable: it may stand for a file of the log."""
    return path.is_file() or is_broken_link(path)


def _leads_out(path: Path, folder: str) -> bool:
    """Return True for a link to a folder whose files are not read at another place. It is reported as unreadable, since it is not followed."""
    if not is_linked_folder(path):
        return False
    target, root = Path(os.path.realpath(path)), os.path.realpath(folder)
    return not target.is_relative_to(root) or _is_hidden(target.relative_to(root))


def _is_hidden(inner: Path) -> bool:
    """Return True if a part of a path within a folder is hidden."""
    return any(part.startswith(".") for part in inner.parts)


def _matching(pattern: str) -> Iterator[str]:
    """Yield the files of a glob. Below `**`, links to folders are not followed: two that form a loop stand for 2^40 paths. Hidden files are left out."""
    path = Path(pattern)
    if "**" not in path.parts:
        yield from (found for found in glob(pattern) if _is_listed(Path(found)))  # noqa: PTH207 - of any root
        return
    place = path.parts.index("**")
    rest = path.parts[place + 1 :] or ("*",)
    for root in glob(str(Path(*path.parts[:place]))) if place else (".",):  # noqa: PTH207 - see above
        found = (one for one in Path(root).glob(str(Path("**", *rest))) if _is_listed(one))
        linked = (one for one in Path(root).rglob("*") if _leads_out(one, root))
        yield from (str(one) for one in {*found, *linked} if not _is_hidden(one.relative_to(root)))


def _some(found: list[str], problem: str) -> list[str]:
    if not found:
        raise UsageError(problem)
    return found


def _expand_url(name: str) -> list[str]:
    require("fsspec", f"reading {name.partition('://')[0]}://")
    fsspec = import_module("fsspec.core")
    if not has_magic(name) and not name.endswith("/"):
        return [name]
    try:
        filesystem, path = fsspec.url_to_fs(name)
        found = filesystem.find(path) if name.endswith("/") else filesystem.glob(path)
        return _some(sorted(filesystem.unstrip_protocol(one) for one in found), f"{mask_urls(name)}: no such file")
    except UsageError:
        raise
    except Exception as problem:  # noqa: BLE001 - each file system has its own errors
        raise UsageError(f"{mask_urls(name)}: {_one_line(problem)}") from None


def _one_line(problem: BaseException) -> str:
    return mask_urls((str(problem).splitlines() or [type(problem).__name__])[0])


class PeekableStream:
    """A binary stream whose first bytes can be examined. An error of reading them is raised when they are read.

    `closed` and `close` are for libraries that expect a file object.
    """

    closed = False

    def __init__(self, raw: Callable[[int], bytes], seekable: BinaryIO | None = None) -> None:
        self._read = raw
        self._head = bytearray()
        self._error: Exception | None = None
        self.file = seekable

    def peek(self, size: int) -> bytes:
        """Return up to `size` first bytes, without reading them."""
        while len(self._head) < size and self._error is None:
            try:
                block = self._read(_BLOCK)
            except (OSError, EOFError, ValueError, zlib.error) as error:
                self._error = error
                break
            if not block:
                break
            self._head += block
        return bytes(self._head[:size])

    def read1(self, size: int = -1, /) -> bytes:
        """Return some of the next bytes, at most `size`, none at the end."""
        if not self._head:
            if self._error is not None:
                error, self._error = self._error, None
                raise error
            block = self._read(_BLOCK if size < 0 else size)
            if size < 0 or len(block) <= size:
                return block
            self._head += block  # a decompressor returns what it has
        size = len(self._head) if size < 0 else size
        first = bytes(self._head[:size])
        del self._head[:size]
        return first

    def read(self, size: int = -1, /) -> bytes:
        """Return the next `size` bytes, fewer only at the end.

        Raises:
            DamagedFileError: More than 512 MiB are asked for, or come: a file that announces such a part would fill the memory.
        """
        if size > _LONGEST_READ:
            raise DamagedFileError(f"a part of {size} bytes, at most {_LONGEST_READ} are read")
        parts = bytearray()
        missing = sys.maxsize if size < 0 else size
        while missing and (block := self.read1(min(missing, _BLOCK))):
            parts += block
            missing -= len(block)
            if len(parts) > _LONGEST_READ:
                raise DamagedFileError(f"a part of more than {_LONGEST_READ} bytes")
        return bytes(parts)

    def close(self) -> None:
        """Leave the stream open: its owner closes it."""


@contextmanager
def open_source(name: str, end: int | None = None, identity: FileIdentity | None = None) -> Generator[PeekableStream]:
    """Open a file, a URL or standard input, and decompress it. A file is read until the byte offset `end`.

    Args:
        name: The name. If the file got another name since, the file is read under that name.
        end: The byte offset of the end.
        identity: What the file is, see `open_same`.

    Raises:
        OSError: It cannot be opened.
        UsageError: A library is missing.
    """
    if name == STDIN:
        yield _decompress(PeekableStream(cast("io.BufferedReader", sys.stdin.buffer).read1))
    elif is_url(name):
        with _open_url(name) as remote:
            yield _decompress(PeekableStream(_reader_of(remote), remote))
    else:
        with cast("io.BufferedReader", open_same(name, identity)) as file:
            yield _decompress(PeekableStream(file.read1 if end is None else _bounded(file.read1, end), file))


def _bounded(read: Callable[[int], bytes], end: int) -> Callable[[int], bytes]:
    """Return a function that reads until a byte offset."""
    start = 0

    def read_some(size: int) -> bytes:
        nonlocal start
        block = read(min(size, end - start)) if start < end else b""
        start += len(block)
        return block

    return read_some


@contextmanager
def _open_url(name: str) -> Generator[BinaryIO]:
    require("fsspec", f"reading {name.partition('://')[0]}://")
    try:
        opened = import_module("fsspec").open(name, "rb").open()
    except FileNotFoundError as problem:
        cause = problem.__cause__  # fsspec raises it for every error of HTTP
        if cause is None or isinstance(cause, FileNotFoundError) or getattr(cause, "status", None) == _NOT_FOUND:
            raise
        raise OSError(None, _one_line(cause)) from None
    except Exception as problem:  # noqa: BLE001 - each file system has its own errors
        raise OSError(None, _one_line(problem)) from None
    try:
        yield cast("BinaryIO", opened)
    finally:
        with suppress(Exception):
            opened.close()


def _reader_of(remote: BinaryIO) -> Callable[[int], bytes]:
    """Return a function that reads a URL, and whose errors are `OSError`: each file system has its own."""

    def read(size: int) -> bytes:
        try:
            return remote.read(size)
        except Exception as problem:  # noqa: BLE001 - see above
            raise OSError(None, _one_line(problem)) from None

    return read


def _decompress(stream: PeekableStream) -> PeekableStream:
    for _ in range(_MOST_LAYERS):
        head = stream.peek(6)
        make = next((make for magic, make in _DECOMPRESSORS.items() if head.startswith(magic)), None)
        if make is None:
            break
        stream = PeekableStream(make(stream))
    return stream


def _unzstd(stream: PeekableStream) -> Callable[[int], bytes]:
    require("zstandard", "reading zstd")
    return BlockStream(_read_frames(stream)).read1


def _read_frames(stream: PeekableStream) -> Iterator[bytes]:
    """Yield the decompressed bytes of zstd frames. The decoder's library has no limit of output, so the input is small."""
    decoder = BodyDecoder("zstd")
    try:
        while data := stream.read1(_BLOCK):
            for start in range(0, len(data), _ZSTD_INPUT):
                yield decoder.feed(data[start : start + _ZSTD_INPUT], limit=LINE_LIMIT)
    except ContentDecodingError as error:
        raise DamagedFileError(_one_line(error)) from None
    try:
        decoder.end()
    except ContentDecodingError:
        raise EOFError from None


def _decompress_members(first_bytes: bytes, stream: PeekableStream) -> Callable[[int], bytes]:
    return decompress(stream, first_bytes).read1


def _gunzip(stream: PeekableStream) -> Callable[[int], bytes]:
    return gzip.GzipFile(fileobj=cast("BinaryIO", stream), mode="rb").read1


_DECOMPRESSORS: Mapping[bytes, Callable[[PeekableStream], Callable[[int], bytes]]] = {
    b"\x1f\x8b": _gunzip,
    b"\x28\xb5\x2f\xfd": _unzstd,
    **{mark: partial(_decompress_members, mark) for mark in FIRST_BYTES},
}
"""Decompressors by the first bytes of a file."""
