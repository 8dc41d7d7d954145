"""Decompression of bzip2 and xz files by blocks, in bounded memory."""

from __future__ import annotations

import bz2
import lzma
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Protocol

_BLOCK = 64 * 1024
_XZ_MEMORY = 256 * 1024 * 1024


class DamagedFileError(OSError):
    """Compressed data that cannot be decompressed further."""


class Readable(Protocol):
    """A binary stream."""

    def read1(self, size: int, /) -> bytes:
        """Return at most `size` available bytes, or none at the end."""
        ...


class BlockStream:
    """A binary stream of blocks. A call returns the next block, however long."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks

    def read1(self, _: int, /) -> bytes:
        """Return the next block, or nothing at the end."""
        return next(filter(None, self._blocks), b"")


class _Decompressor(Protocol):
    """A decompressor of one bzip2 stream or xz stream."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


_DECOMPRESSORS: Mapping[bytes, Callable[[], _Decompressor]] = MappingProxyType(
    {
        b"BZh": bz2.BZ2Decompressor,
        b"\xfd7zXZ\x00": lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY),
    }
)
FIRST_BYTES = tuple(_DECOMPRESSORS)
"""First bytes of a bzip2 file and of an xz file."""


def decompress(stream: Readable, first_bytes: bytes) -> BlockStream:
    """Return the decompressed bytes of concatenated streams. Null bytes after one are padding.

    Reading raises:
        DamagedFileError: The data is damaged, or needs more than 256 MiB.
        EOFError: The data is truncated.
    """
    return BlockStream(_read_members(stream, _DECOMPRESSORS[first_bytes]))


def _read_members(stream: Readable, make: Callable[[], _Decompressor]) -> Iterator[bytes]:
    rest = b""
    while data := (rest or stream.read1(_BLOCK)).lstrip(b"\0"):
        member, rest = make(), b""
        while not member.eof:
            try:
                yield member.decompress(data, _BLOCK)
            except (OSError, lzma.LZMAError, ValueError, EOFError) as error:
                raise DamagedFileError(str(error).partition("\n")[0] or type(error).__name__) from None
            data = stream.read1(_BLOCK) if member.needs_input and not member.eof else b""
            if not data and member.needs_input and not member.eof:
                raise EOFError
        rest = member.unused_data
