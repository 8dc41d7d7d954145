"""The content codings of HTTP, undone piece by piece: gzip and deflate always, br and zstd where their libraries are there."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType


class BadCoding(ValueError):  # noqa: N818 - it says what the bytes are
    """Bytes that are not in the coding that their headers name."""


class Decoder(ABC):
    """Undoes a coding."""

    @abstractmethod
    def decode(self, data: bytes) -> bytes:
        """What these bytes add.

        Raises:
            BadCoding: they are not in this coding.
        """

    @abstractmethod
    def end(self) -> bytes:
        """What was held back, now that there are no more.

        Raises:
            BadCoding: more had to come.
        """


class _Zlib(Decoder):
    """Gzip, or deflate: in the wrapper of zlib as the standard has it, or bare as some servers do."""

    def __init__(self, *ways: int) -> None:
        self._inflating, *self._others = [zlib.decompressobj(way) for way in ways]

    def decode(self, data: bytes) -> bytes:
        others, self._others = self._others, []
        try:
            return self._inflating.decompress(data)
        except zlib.error as problem:
            if not others:
                raise BadCoding(str(problem)) from None
            self._inflating = others[0]
            return self.decode(data)

    def end(self) -> bytes:
        return self._inflating.flush()


class _Brotli(Decoder):
    def __init__(self) -> None:
        library = import_module("brotli")
        self._decode: Callable[[bytes], bytes] = library.Decompressor().process
        self._error: type[Exception] = library.error

    def decode(self, data: bytes) -> bytes:
        try:
            return self._decode(data)
        except self._error as problem:
            raise BadCoding(str(problem)) from None

    def end(self) -> bytes:
        return b""


class _Zstandard(Decoder):
    """Any number of frames, one after another."""

    def __init__(self) -> None:
        library = import_module("zstandard")
        self._begin = library.ZstdDecompressor().decompressobj
        self._error: type[Exception] = library.ZstdError
        self._decoding = self._begin()
        self._has_begun = False

    def decode(self, data: bytes) -> bytes:
        self._has_begun = True
        try:
            decoded: bytes = self._decoding.decompress(data)
            while self._decoding.eof and self._decoding.unused_data:
                rest, self._decoding = self._decoding.unused_data, self._begin()
                decoded += self._decoding.decompress(rest)
        except self._error as problem:
            raise BadCoding(str(problem)) from None
        return decoded

    def end(self) -> bytes:
        if self._has_begun and not self._decoding.eof:
            raise BadCoding("Zstandard data is incomplete")
        return b""


class _Several(Decoder):
    """Codings on top of each other, in the order in which they were put on."""

    def __init__(self, applied: Sequence[Decoder]) -> None:
        self._decoders = tuple(reversed(applied))

    def decode(self, data: bytes) -> bytes:
        for one in self._decoders:
            data = one.decode(data)
        return data

    def end(self) -> bytes:
        data = b""
        for one in self._decoders:
            data = one.decode(data) + one.end()
        return data


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
    return _Several(applied) if len(applied) > 1 else applied[0] if applied else None
