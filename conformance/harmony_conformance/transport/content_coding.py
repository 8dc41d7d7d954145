"""Incremental decoders for HTTP content codings: gzip and deflate, and br and zstd if their libraries are installed."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from importlib import import_module
from importlib.util import find_spec

_OUTPUT = 64 * 1024  # the most bytes per step of zlib
_INPUT = 64  # the input bytes per step of brotli and Zstandard, whose output has no limit


class ContentDecodingError(ValueError):
    """Bytes that are not in the coding that the header names."""


class Decoder(ABC):
    """Decodes in small steps, so that the caller can stop: a few bytes may decode to more than fits in memory."""

    @abstractmethod
    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield the decoded bytes that `data` adds.

        Raises:
            ContentDecodingError: The data is not in this coding.
        """

    @abstractmethod
    def end(self) -> Iterator[bytes]:
        """Yield the buffered bytes at the end of the data.

        Raises:
            ContentDecodingError: The data is incomplete.
        """


class _Zlib(Decoder):
    """Gzip or deflate, the latter with zlib's wrapper as the standard requires, or raw as some servers send it."""

    def __init__(self, *window_bits: int) -> None:
        self._decompressor, *self._alternatives = [zlib.decompressobj(bits) for bits in window_bits]

    def decode(self, data: bytes) -> Iterator[bytes]:
        alternatives, self._alternatives, rest = self._alternatives, [], data
        try:
            while rest:
                yield self._decompressor.decompress(rest, _OUTPUT)
                rest = self._decompressor.unconsumed_tail
        except zlib.error as problem:
            if not alternatives:
                raise ContentDecodingError(str(problem)) from None
            self._decompressor = alternatives[0]
            yield from self.decode(data)

    def end(self) -> Iterator[bytes]:
        yield self._decompressor.flush()


class _Brotli(Decoder):
    def __init__(self) -> None:
        library = import_module("brotli")
        self._decode: Callable[[bytes], bytes] = library.Decompressor().process
        self._error: type[Exception] = library.error

    def decode(self, data: bytes) -> Iterator[bytes]:
        try:
            yield from map(self._decode, _slices(data))
        except self._error as problem:
            raise ContentDecodingError(str(problem)) from None

    def end(self) -> Iterator[bytes]:
        yield b""


class _Zstandard(Decoder):
    """Any number of frames, one after another."""

    def __init__(self) -> None:
        library = import_module("zstandard")
        self._new_frame = library.ZstdDecompressor().decompressobj
        self._error: type[Exception] = library.ZstdError
        self._frame = self._new_frame()
        self._has_begun = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        self._has_begun = True
        try:
            for part in _slices(data):
                yield self._frame.decompress(part)
                while self._frame.eof and self._frame.unused_data:
                    rest, self._frame = self._frame.unused_data, self._new_frame()
                    yield self._frame.decompress(rest)
        except self._error as problem:
            raise ContentDecodingError(str(problem)) from None

    def end(self) -> Iterator[bytes]:
        if self._has_begun and not self._frame.eof:
            raise ContentDecodingError("Zstandard data is incomplete")
        yield b""


class _Stacked(Decoder):
    """Two codings, the outer one applied last."""

    def __init__(self, inner: Decoder, outer: Decoder) -> None:
        self._inner, self._outer = inner, outer

    def decode(self, data: bytes) -> Iterator[bytes]:
        for part in self._outer.decode(data):
            yield from self._inner.decode(part)

    def end(self) -> Iterator[bytes]:
        for part in self._outer.end():
            yield from self._inner.decode(part)
        yield from self._inner.end()


def _slices(data: bytes) -> Iterator[bytes]:
    """Yield slices small enough that the decoded bytes of one fit in memory."""
    for start in range(0, len(data), _INPUT):
        yield data[start : start + _INPUT]


_LIBRARIES: Mapping[str, str] = {"br": "brotli", "zstd": "zstandard"}
_CODINGS: Mapping[str, Callable[[], Decoder]] = {
    "gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
    "deflate": lambda: _Zlib(zlib.MAX_WBITS, -zlib.MAX_WBITS),
    "br": _Brotli,
    "zstd": _Zstandard,
}
_SUPPORTED = tuple(name for name in _CODINGS if name not in _LIBRARIES or find_spec(_LIBRARIES[name]) is not None)
ACCEPTED = ", ".join(_SUPPORTED)
"""The supported codings as value of Accept-Encoding."""


def decoder(content_encoding: str) -> Decoder | None:
    """Return a decoder for the supported codings of a Content-Encoding header, or None if it has none. Other codings stay."""
    names = (name.strip().lower() for name in content_encoding.split(","))
    decoders = [_CODINGS[name]() for name in names if name in _SUPPORTED]
    return reduce(_Stacked, decoders) if decoders else None
