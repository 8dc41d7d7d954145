"""The content codings of HTTP, undone piece by piece: gzip and deflate always, br and zstd where their libraries are there."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType

_OUTPUT = 64 * 1024  # bytes that one step of zlib adds at most
_INPUT = 64  # bytes that brotli and Zstandard, which have no such limit, get at a time


class ContentDecodingError(ValueError):
    """Bytes that are not in the coding that their headers name."""


class Decoder(ABC):
    """Undoes a coding, in steps: a few bytes may decode to more than the memory holds, and the caller stops where it has enough."""

    @abstractmethod
    def decode(self, data: bytes) -> Iterator[bytes]:
        """Yield what these bytes add.

        Raises:
            BadCoding: they are not in this coding.
        """

    @abstractmethod
    def end(self) -> Iterator[bytes]:
        """Yield what was buffered, at the end of the data.

        Raises:
            BadCoding: more had to come.
        """


class _Zlib(Decoder):
    """Gzip, or deflate: in the wrapper of zlib as the standard has it, or bare as some servers do."""

    def __init__(self, *ways: int) -> None:
        self._inflating, *self._others = [zlib.decompressobj(way) for way in ways]

    def decode(self, data: bytes) -> Iterator[bytes]:
        others, self._others, left = self._others, [], data
        try:
            while left:
                yield self._inflating.decompress(left, _OUTPUT)
                left = self._inflating.unconsumed_tail
        except zlib.error as problem:
            if not others:
                raise ContentDecodingError(str(problem)) from None
            self._inflating = others[0]
            yield from self.decode(data)

    def end(self) -> Iterator[bytes]:
        yield self._inflating.flush()


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
        self._begin = library.ZstdDecompressor().decompressobj
        self._error: type[Exception] = library.ZstdError
        self._decoding = self._begin()
        self._has_begun = False

    def decode(self, data: bytes) -> Iterator[bytes]:
        self._has_begun = True
        try:
            for part in _slices(data):
                yield self._decoding.decompress(part)
                while self._decoding.eof and self._decoding.unused_data:
                    rest, self._decoding = self._decoding.unused_data, self._begin()
                    yield self._decoding.decompress(rest)
        except self._error as problem:
            raise ContentDecodingError(str(problem)) from None

    def end(self) -> Iterator[bytes]:
        if self._has_begun and not self._decoding.eof:
            raise ContentDecodingError("Zstandard data is incomplete")
        yield b""


class _Stacked(Decoder):
    """Two codings, the outer one put on last."""

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
    """Yield data in slices so small that what one decodes to fits the memory."""
    for start in range(0, len(data), _INPUT):
        yield data[start : start + _INPUT]


_LIBRARIES: Mapping[str, str] = MappingProxyType({"br": "brotli", "zstd": "zstandard"})
_CODINGS: Mapping[str, Callable[[], Decoder]] = MappingProxyType(
    {
        "gzip": lambda: _Zlib(zlib.MAX_WBITS | 16),
        "deflate": lambda: _Zlib(zlib.MAX_WBITS, -zlib.MAX_WBITS),
        "br": _Brotli,
        "zstd": _Zstandard,
    }
)
_UNDONE = tuple(name for name in _CODINGS if name not in _LIBRARIES or find_spec(_LIBRARIES[name]) is not None)
ACCEPTED = ", ".join(_UNDONE)
"""The codings that can be undone, as Accept-Encoding has them."""


def decoder(content_encoding: str) -> Decoder | None:
    """What undoes the codings that a Content-Encoding lists; those nobody knows are left as they are. None: there is nothing to undo."""
    named = (name.strip().lower() for name in content_encoding.split(","))
    applied = [_CODINGS[name]() for name in named if name in _UNDONE]
    return reduce(_Stacked, applied) if applied else None
