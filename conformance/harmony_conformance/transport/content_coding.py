"""Bounded decoding of HTTP content codings: gzip and deflate, and br and zstd if their libraries are installed.

A few kilobytes may decode to more than fits in memory. So each step has a small output, and decoding stops at a limit.
The limit also applies to the intermediate form of a body with two codings.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Protocol

from harmony_conformance.transport.messages import Chunk

MOST_CODINGS = 2
"""The most codings of one body that are decoded."""
_STEP = 64 * 1024  # the most bytes that one step of gzip, deflate or br allocates
_MEMBERS_INPUT = (
    4096  # the input bytes per step of gzip: its library copies what follows a member, which may have 20 bytes
)
_ZSTD_INPUT = (
    64  # the input bytes per step of zstd: its library has no limit of output, but a block of 128 KiB needs 4 bytes
)
_ZSTD_WINDOW = 8 * 1024 * 1024  # the largest window that RFC 9659 allows for HTTP
_DEFLATE, _ZLIB_HEADER = 8, 2


class ContentDecodingError(ValueError):
    """Bytes that are not in the coding that the header names. The message is the reason."""


class UnsupportedCodingError(ContentDecodingError):
    """A coding that is unknown, or whose library is not installed."""


class DecodedSizeError(ContentDecodingError):
    """A body that decodes to more bytes than the limit."""


class _Codec(Protocol):
    """The decoder of one coding."""

    @property
    def is_complete(self) -> bool:
        """True if the data may end here."""
        ...

    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes that `data` adds, in small parts. Errors are those of the library."""
        ...


class BodyDecoder:
    """Decodes one body incrementally."""

    def __init__(self, content_encoding: str) -> None:
        """Select the codecs of a Content-Encoding header.

        Raises:
            UnsupportedCodingError: A coding is unknown, or its library is not installed.
            ContentDecodingError: There are more than `MOST_CODINGS` codings.
        """
        names = [name for word in content_encoding.split(",") if (name := word.strip().lower()) not in ("", "identity")]
        for name in names:
            if name not in _CODECS:
                # Without the name: a server may echo a key in it, and the message is logged.
                raise UnsupportedCodingError(f"unsupported content encoding: expected {', '.join(_CODECS)}")
            if (library := _LIBRARIES.get(name)) is not None and find_spec(library) is None:
                raise UnsupportedCodingError(f"decoding {name} requires {library}")
        if len(names) > MOST_CODINGS:
            raise ContentDecodingError(f"{len(names)} content codings: at most {MOST_CODINGS} are decoded")
        self._codecs = [(name, _CODECS[name]()) for name in reversed(names)]
        self._has_begun = False

    @property
    def is_plain(self) -> bool:
        """True if the body is not encoded."""
        return not self._codecs

    def feed(self, data: bytes, *, limit: int) -> bytes:
        """Return the decoded bytes that `data` adds.

        Raises:
            DecodedSizeError: There are more than `limit` bytes, after any of the codings.
            ContentDecodingError: The bytes are not in the coding.
        """
        self._has_begun = self._has_begun or bool(data)
        parts: Iterator[bytes] = iter((data,))
        for name, codec in self._codecs:
            parts = _limited(_decoded(name, codec, parts), limit)
        return b"".join(parts)

    def end(self) -> None:
        """Check that the body is complete.

        Raises:
            ContentDecodingError: The encoded data is truncated.
        """
        for name, codec in self._codecs:
            if self._has_begun and not codec.is_complete:
                raise ContentDecodingError(f"truncated {name} body")


def decode_chunks(chunks: Iterable[Chunk], content_encoding: str, *, limit: int) -> tuple[Chunk, ...]:
    """Return the chunks decoded, each with the time of its encoded chunk.

    Raises:
        ContentDecodingError: A coding is not supported, the bytes are not in it, or there are more than `limit`.
    """
    decoder = BodyDecoder(content_encoding)
    if decoder.is_plain:
        return tuple(chunks)
    decoded: list[Chunk] = []
    size = 0
    for chunk in chunks:
        try:
            data = decoder.feed(chunk.data, limit=limit - size)
        except DecodedSizeError:
            raise _size_error(limit) from None
        size += len(data)
        decoded += [Chunk(arrival_time=chunk.arrival_time, data=data)] if data else []
    return tuple(decoded)


def _decoded(name: str, codec: _Codec, parts: Iterable[bytes]) -> Iterator[bytes]:
    """Decode parts by one codec. The errors of earlier codecs pass."""
    for part in parts:
        decoded = codec.decode(part)
        while True:
            try:
                piece = next(decoded)
            except StopIteration:
                break
            except Exception as error:  # noqa: BLE001 - each library has errors of its own
                raise ContentDecodingError(f"invalid {name} body: {error}") from None
            yield piece


def _limited(parts: Iterable[bytes], limit: int) -> Iterator[bytes]:
    size = 0
    for part in parts:
        size += len(part)
        if size > limit:
            raise _size_error(limit)
        yield part


def _size_error(limit: int) -> DecodedSizeError:
    return DecodedSizeError(f"the body decompresses to more than {limit} bytes")


class _Member(Protocol):
    """A decompressor like zlib's: of one gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, /) -> bytes: ...


class _ZlibMember:
    """A gzip member or deflate stream. Each step has a limited output."""

    def __init__(self, window_bits: int) -> None:
        self._decompressor = zlib.decompressobj(window_bits)

    @property
    def eof(self) -> bool:
        return self._decompressor.eof

    @property
    def unused_data(self) -> bytes:
        return self._decompressor.unused_data

    def steps(self, data: bytes) -> Iterator[bytes]:
        part = b""
        while data or (len(part) == _STEP and not self.eof):  # a full part may have more behind it, also without input
            part = self._decompressor.decompress(data, _STEP)
            yield part
            data = self._decompressor.unconsumed_tail


class _ZstdFrame:
    def __init__(self) -> None:
        library = import_module("zstandard")
        self._decompressor: _Member = library.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        self._rest = b""

    @property
    def eof(self) -> bool:
        return self._decompressor.eof

    @property
    def unused_data(self) -> bytes:
        return self._decompressor.unused_data + self._rest

    def steps(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _ZSTD_INPUT):
            if self.eof:
                self._rest = data[start:]
                return
            yield self._decompressor.decompress(data[start : start + _ZSTD_INPUT])


class _Members:
    """Decodes a sequence of gzip members or zstd frames. Other bytes after one are padding, as in most clients."""

    def __init__(self, make: Callable[[], _ZlibMember | _ZstdFrame]) -> None:
        self._make = make
        self._member = make()
        self._is_first, self._has_output, self._is_padding = True, False, False

    @property
    def is_complete(self) -> bool:
        return self._member.eof or not (self._is_first or self._has_output)

    def decode(self, data: bytes) -> Iterator[bytes]:
        for start in range(0, len(data), _MEMBERS_INPUT):
            yield from self._decode_slice(data[start : start + _MEMBERS_INPUT])

    def _decode_slice(self, data: bytes) -> Iterator[bytes]:
        while data and not self._is_padding:
            if self._member.eof:
                self._member, self._is_first, self._has_output = self._make(), False, False
            try:
                for part in self._member.steps(data):
                    self._has_output = self._has_output or bool(part)
                    yield part
            except Exception:
                if self._is_first or self._has_output:
                    raise
                self._is_padding = True
                return
            data = self._member.unused_data if self._member.eof else b""


class _Deflate:
    """Decodes deflate with zlib's header of two bytes, as the standard requires, or without, as some servers send it."""

    def __init__(self) -> None:
        self._begin = b""
        self._member: _ZlibMember | None = None

    @property
    def is_complete(self) -> bool:
        return self._member is not None and self._member.eof

    def decode(self, data: bytes) -> Iterator[bytes]:
        if self._member is None:
            data = self._begin = self._begin + data
            if len(data) < _ZLIB_HEADER:
                return
            has_header = data[0] & 0x0F == _DEFLATE and int.from_bytes(data[:_ZLIB_HEADER]) % 31 == 0
            self._member = _ZlibMember(zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS)
        yield from self._member.steps(data)


class _Brotli:
    def __init__(self) -> None:
        self._decompressor = import_module("brotli").Decompressor()

    @property
    def is_complete(self) -> bool:
        return bool(self._decompressor.is_finished())

    def decode(self, data: bytes) -> Iterator[bytes]:
        yield self._decompressor.process(data, output_buffer_limit=_STEP)
        while not self._decompressor.can_accept_more_data():
            yield self._decompressor.process(b"", output_buffer_limit=_STEP)


_CODECS: Mapping[str, Callable[[], _Codec]] = MappingProxyType(
    {
        "gzip": lambda: _Members(lambda: _ZlibMember(zlib.MAX_WBITS | 16)),
        "x-gzip": lambda: _Members(lambda: _ZlibMember(zlib.MAX_WBITS | 16)),
        "deflate": _Deflate,
        "br": _Brotli,
        "zstd": lambda: _Members(_ZstdFrame),
    }
)
_LIBRARIES: Mapping[str, str] = {"br": "brotli", "zstd": "zstandard"}
ACCEPT_ENCODING = ", ".join(
    name
    for name in ("gzip", "deflate", "br", "zstd")
    if name not in _LIBRARIES or find_spec(_LIBRARIES[name]) is not None
)
"""The supported codings as value of Accept-Encoding."""
