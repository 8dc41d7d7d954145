"""Content encodings undone, for judging only: what a client gets stays as the server sent it.

gzip and deflate by the standard library, br and zstd by the libraries that mitmproxy brings along. A body in another encoding, in several at once, or
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


def decode_chunks(chunks: Iterable[Chunk], encoding: str, *, limit: int) -> tuple[Chunk, ...]:
    """The chunks unpacked, each at the time of the packed one that gave it.

    Raises:
        NotDecoded: the encoding is not known here, the bytes are not in it, or there are too many of them.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return tuple(chunks)
    make, step = _DECODERS.get(encoding, (None, 0))
    if make is None:
        raise NotDecoded(f"the body is encoded as {encoding[:40]!r}, which is not unpacked here")
    try:
        return tuple(_decode(chunks, make(), step, limit))
    except NotDecoded:
        raise
    except ImportError as missing:
        raise NotDecoded(f"unpacking {encoding} needs {missing.name}") from None
    except Exception as error:  # noqa: BLE001 - each library has errors of its own
        raise NotDecoded(f"the body is not {encoding}: {type(error).__name__}") from None


def _decode(chunks: Iterable[Chunk], decode: Decoder, step: int, limit: int) -> Iterator[Chunk]:
    size = 0
    for chunk in chunks:
        unpacked: list[bytes] = []
        for start in range(0, len(chunk.data), step):
            unpacked.append(decode(chunk.data[start : start + step]))
            size += len(unpacked[-1])
            if size > limit:
                raise NotDecoded(f"the body unpacks to more than {limit} bytes")
        if any(unpacked):
            yield Chunk(at=chunk.at, data=b"".join(unpacked))


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
