"""Content encodings undone: for judging, and for answers that are acted on. What is only observed reaches the client as the server packed it.

gzip and deflate by the standard library, br and zstd by the libraries that the extras bring along. A body in another encoding, in several at once, or
one that unpacks to more than the limit, is not judged and said to be so.
"""

from __future__ import annotations

import importlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.wire import Chunk

Decoder = Callable[[bytes], bytes]
_ZLIB_HEADER, _DEFLATE = 2, 8


class NotDecoded(ValueError):  # noqa: N818 - it says what happened
    """A body that could not be unpacked; says why."""


class Unpacking:
    """One body being unpacked, piece by piece."""

    def __init__(self, encoding: str) -> None:
        """Of this content encoding.

        Raises:
            NotDecoded: it is not known here, or its library is not installed.
        """
        self._encoding = encoding.strip().lower()
        self._decode: Decoder | None = None
        self._step = 0
        if self._encoding in ("", "identity"):
            return
        make, self._step = _DECODERS.get(self._encoding, (None, 0))
        if make is None:
            raise NotDecoded(f"the body is encoded as {self._encoding[:40]!r}, which is not unpacked here")
        try:
            self._decode = make()
        except ImportError as missing:
            raise NotDecoded(f"unpacking {self._encoding} needs {missing.name}") from None

    @property
    def is_plain(self) -> bool:
        """Whether there is nothing to unpack."""
        return self._decode is None

    def feed(self, data: bytes, *, most: int) -> bytes:
        """More of the body, unpacked.

        Raises:
            NotDecoded: the bytes are not in the encoding, or unpack to more than `most`.
        """
        if self._decode is None:
            return data
        unpacked: list[bytes] = []
        size = 0
        for start in range(0, len(data), self._step):
            try:
                unpacked.append(self._decode(data[start : start + self._step]))
            except Exception as error:  # noqa: BLE001 - each library has errors of its own
                raise NotDecoded(f"the body is not {self._encoding}: {type(error).__name__}") from None
            size += len(unpacked[-1])
            if size > most:
                raise NotDecoded(f"the body unpacks to more than {most} bytes")
        return b"".join(unpacked)


def decode_chunks(chunks: Iterable[Chunk], encoding: str, *, limit: int) -> tuple[Chunk, ...]:
    """The chunks unpacked, each at the time of the packed one that gave it.

    Raises:
        NotDecoded: the encoding is not known here, the bytes are not in it, or there are too many of them.
    """
    unpacking = Unpacking(encoding)
    return tuple(chunks) if unpacking.is_plain else tuple(_decode(chunks, unpacking, limit))


def _decode(chunks: Iterable[Chunk], unpacking: Unpacking, limit: int) -> Iterator[Chunk]:
    left = limit
    for chunk in chunks:
        try:
            unpacked = unpacking.feed(chunk.data, most=left)
        except NotDecoded as problem:
            raise NotDecoded(str(problem).replace(f"than {left} ", f"than {limit} ")) from None
        left -= len(unpacked)
        if unpacked:
            yield Chunk(at=chunk.at, data=unpacked)


def _gzip() -> Decoder:
    decoder = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    return decoder.decompress


def _deflate() -> Decoder:
    """With the two bytes of zlib's header or without: servers send both."""
    begin = bytearray()
    chosen: list[Decoder] = []

    def decode(data: bytes) -> bytes:
        if chosen:
            return chosen[0](data)
        begin.extend(data)
        if len(begin) < _ZLIB_HEADER:
            return b""
        has_header = begin[0] & 0x0F == _DEFLATE and int.from_bytes(begin[:_ZLIB_HEADER]) % 31 == 0
        chosen.append(zlib.decompressobj(wbits=zlib.MAX_WBITS if has_header else -zlib.MAX_WBITS).decompress)
        return chosen[0](bytes(begin))

    return decode


def _brotli() -> Decoder:
    decoder: Decoder = importlib.import_module("brotli").Decompressor().process
    return decoder


def _zstd() -> Decoder:
    decoder: Decoder = importlib.import_module("zstandard").ZstdDecompressor().decompressobj().decompress
    return decoder


# The second value is how many packed bytes are unpacked at a time: what comes of them is counted before more is unpacked.
_DECODERS: Mapping[str, tuple[Callable[[], Decoder], int]] = MappingProxyType(
    {
        "gzip": (_gzip, 4096),
        "x-gzip": (_gzip, 4096),
        "deflate": (_deflate, 4096),
        "br": (_brotli, 64),
        "zstd": (_zstd, 1024),
    }
)
