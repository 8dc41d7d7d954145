"""Decompression of bodies, for judging and for repairs. A response that is only observed stays compressed.

The standard library decodes gzip and deflate; the libraries of the extras decode br and zstd. A body is reported as not
judged if it has another encoding, several encodings, or more decompressed bytes than the limit.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Protocol

from harmony_conformance.transport.messages import Chunk

_ZLIB_HEADER, _DEFLATE = 2, 8


class BodyDecodingError(ValueError):
    """A body that could not be decompressed. The message is the reason."""


class _Unpacker(Protocol):
    @property
    def is_complete(self) -> bool: ...

    def unpack(self, data: bytes) -> bytes: ...


class Unpacking:
    """Decompresses one body incrementally."""

    def __init__(self, encoding: str) -> None:
        """Select the decompressor of a content encoding.

        Raises:
            BodyDecodingError: the encoding is unknown, or its library is not installed.
        """
        self._encoding = encoding.strip().lower()
        self._unpacker: _Unpacker | None = None
        self._step = 0
        self._is_begun = False
        if self._encoding in ("", "identity"):
            return
        make, self._step = _UNPACKERS.get(self._encoding, (None, 0))
        if make is None:
            raise BodyDecodingError(f"unsupported content encoding {self._encoding[:40]!r}")
        try:
            self._unpacker = make()
        except ImportError as missing:
            raise BodyDecodingError(f"decoding {self._encoding} requires {missing.name}") from None

    @property
    def is_plain(self) -> bool:
        """True if the body is not compressed."""
        return self._unpacker is None

    def feed(self, data: bytes, *, most: int) -> bytes:
        """Return more of the body, decompressed.

        Raises:
            BodyDecodingError: the bytes do not have the encoding, or decompress to more than `most` bytes.
        """
        if self._unpacker is None:
            return data
        self._is_begun = self._is_begun or bool(data)
        unpacked: list[bytes] = []
        size = 0
        for start in range(0, len(data), self._step):
            try:
                unpacked.append(self._unpacker.unpack(data[start : start + self._step]))
            except Exception as error:  # noqa: BLE001 - each library has errors of its own
                raise BodyDecodingError(f"invalid {self._encoding} body: {type(error).__name__}") from None
            size += len(unpacked[-1])
            if size > most:
                raise BodyDecodingError(f"the body decompresses to more than {most} bytes")
        return b"".join(unpacked)

    def end(self) -> None:
        """Check that the body is complete.

        Raises:
            BodyDecodingError: the compressed data is truncated.
        """
        if self._unpacker is not None and self._is_begun and not self._unpacker.is_complete:
            raise BodyDecodingError(f"truncated {self._encoding} body")


def decode_chunks(chunks: Iterable[Chunk], encoding: str, *, limit: int) -> tuple[Chunk, ...]:
    """Return the chunks decompressed, each with the time of its compressed chunk.

    Raises:
        BodyDecodingError: the encoding is unknown, the bytes do not have it, or there are more than `limit`.
    """
    unpacking = Unpacking(encoding)
    if unpacking.is_plain:
        return tuple(chunks)
    decoded: list[Chunk] = []
    left = limit
    for chunk in chunks:
        try:
            unpacked = unpacking.feed(chunk.data, most=left)
        except BodyDecodingError as problem:
            raise BodyDecodingError(str(problem).replace(f"than {left} ", f"than {limit} ")) from None
        left -= len(unpacked)
        decoded += [Chunk(at=chunk.at, data=unpacked)] if unpacked else []
    return tuple(decoded)


class _Member(Protocol):
    """A decompressor like zlib's: of one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _Members:
    """Decompresses a sequence of gzip members or zstd frames. Other bytes after one are padding, as in most clients."""

    def __init__(self, make: Callable[[], _Member]) -> None:
        self._make = make
        self._member = make()
        self._is_first, self._has_given, self._is_over = True, False, False

    @property
    def is_complete(self) -> bool:
        return self._member.eof or not (self._is_first or self._has_given)

    def unpack(self, data: bytes) -> bytes:
        unpacked: list[bytes] = []
        while data and not self._is_over:
            if self._member.eof:
                self._member, self._is_first, self._has_given = self._make(), False, False
            try:
                unpacked.append(self._member.decompress(data))
            except Exception:  # each library has errors of its own
                if self._is_first or self._has_given:
                    raise
                self._is_over = True
                break
            self._has_given = self._has_given or bool(unpacked[-1])
            data = self._member.unused_data if self._member.eof else b""
        return b"".join(unpacked)


class _Deflate:
    """Decompresses deflate with or without the two bytes of zlib's header: servers send both."""

    def __init__(self) -> None:
        self._begin = b""
        self._member: _Member | None = None

    @property
    def is_complete(self) -> bool:
        return self._member is not None and self._member.eof

    def unpack(self, data: bytes) -> bytes:
        if self._member is None:
            data = self._begin = self._begin + data
            if len(data) < _ZLIB_HEADER:
                return b""
            has_header = data[0] & 0x0F == _DEFLATE and int.from_bytes(data[:_ZLIB_HEADER]) % 31 == 0
            self._member = zlib.decompressobj(wbits=zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        return self._member.decompress(data)


class _Brotli:
    def __init__(self) -> None:
        self._decompressor = importlib.import_module("brotli").Decompressor()

    @property
    def is_complete(self) -> bool:
        return bool(self._decompressor.is_finished())

    def unpack(self, data: bytes) -> bytes:
        return bytes(self._decompressor.process(data))


def _gzip() -> _Unpacker:
    return _Members(lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16))


def _zstd() -> _Unpacker:
    library = importlib.import_module("zstandard")
    return _Members(lambda: library.ZstdDecompressor().decompressobj())


# The second value is the number of bytes per step: the output of a step is checked against the limit before the next.
_UNPACKERS: Mapping[str, tuple[Callable[[], _Unpacker], int]] = MappingProxyType(
    {
        "gzip": (_gzip, 4096),
        "x-gzip": (_gzip, 4096),
        "deflate": (_Deflate, 4096),
        "br": (_Brotli, 64),
        "zstd": (_zstd, 1024),
    }
)
