import gzip
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.transport.messages import Chunk
from harmony_proxy.capture.decoding import BodyDecodingError, Unpacking, decode_chunks

TEXT = b'data: {"choices": []}\n\n' * 40


def brotli(data):
    return pytest.importorskip("brotli").compress(data)


def zstd(data):
    return pytest.importorskip("zstandard").ZstdCompressor().compress(data)


def deflate_without_header(data):
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


PACKERS = [
    pytest.param("", bytes, id="none"),
    pytest.param("identity", bytes, id="identity"),
    pytest.param("gzip", gzip.compress, id="gzip"),
    pytest.param("X-Gzip", gzip.compress, id="x-gzip"),
    pytest.param("deflate", zlib.compress, id="deflate"),
    pytest.param("deflate", deflate_without_header, id="deflate without its header"),
    pytest.param("br", brotli, id="br"),
    pytest.param("zstd", zstd, id="zstd"),
]


@pytest.mark.parametrize(("encoding", "pack"), PACKERS)
def test_every_split_of_a_packed_body_gives_the_same_text(encoding, pack):
    packed = pack(TEXT)
    for cut in range(0, len(packed), max(1, len(packed) // 60)):
        chunks = [Chunk(at=0.1, data=packed[:cut]), Chunk(at=0.2, data=packed[cut:])]
        unpacked = decode_chunks(chunks, encoding, limit=len(TEXT))
        assert b"".join(chunk.data for chunk in unpacked) == TEXT
        assert {chunk.at for chunk in unpacked} <= {0.1, 0.2}


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_members_one_behind_the_other_are_one_body_at_every_split(encoding, pack):
    packed = b"".join(pack(b"data: %d\n\n" % number) for number in range(3))
    for cut in range(len(packed)):
        chunks = [Chunk(at=0.1, data=packed[:cut]), Chunk(at=0.2, data=packed[cut:])]
        unpacked = decode_chunks(chunks, encoding, limit=100)
        assert b"".join(chunk.data for chunk in unpacked) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


@pytest.mark.parametrize("padding", [b"\0", b"\0" * 600, b"\x1f", b"junk"])
def test_what_follows_a_member_and_is_none_is_padding(padding):
    unpacking = Unpacking("gzip")
    assert unpacking.feed(gzip.compress(TEXT) + padding, most=len(TEXT)) == TEXT
    assert unpacking.feed(padding, most=len(TEXT)) == b""
    unpacking.end()


@pytest.mark.parametrize(("encoding", "pack"), PACKERS[2:])
def test_a_body_that_ends_within_its_encoding_is_said_to(encoding, pack):
    packed = pack(TEXT)
    unpacking = Unpacking(encoding)
    unpacking.end()  # of nothing there is no more
    unpacking.feed(packed[:-1], most=len(TEXT))
    with pytest.raises(BodyDecodingError, match=f"truncated {encoding.lower()} body"):
        unpacking.end()
    unpacking.feed(packed[-1:], most=len(TEXT))
    unpacking.end()


def test_an_event_has_the_time_of_the_packed_bytes_that_completed_it():
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    sent = [
        Chunk(at=float(number), data=packer.compress(b"data: %d\n\n" % number) + packer.flush(zlib.Z_SYNC_FLUSH))
        for number in range(3)
    ]
    assert [(chunk.at, chunk.data) for chunk in decode_chunks(sent, "gzip", limit=1000)] == [
        (0.0, b"data: 0\n\n"),
        (1.0, b"data: 1\n\n"),
        (2.0, b"data: 2\n\n"),
    ]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_bytes_in_another_encoding_are_said_to_be_so(encoding):
    with pytest.raises(BodyDecodingError, match=f"invalid {encoding} body"):
        decode_chunks([Chunk(at=0.0, data=b"plain text, not packed at all")], encoding, limit=1000)


@pytest.mark.parametrize("encoding", ["compress", "gzip, br", "x" * 500])
def test_an_encoding_that_is_not_known_is_named(encoding):
    with pytest.raises(BodyDecodingError, match="unsupported content encoding") as raised:
        decode_chunks([], encoding, limit=1)
    assert len(str(raised.value)) < 120


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", brotli), ("zstd", zstd)]
)
def test_a_small_body_that_unpacks_to_a_large_one_is_refused(encoding, pack):
    packed = pack(bytes(50_000_000))
    with pytest.raises(BodyDecodingError, match="decompresses to more than 1000000 bytes"):
        decode_chunks([Chunk(at=0.0, data=packed)], encoding, limit=1_000_000)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "br", "zstd"]))
def test_no_bytes_break_it(data, encoding):
    with suppress(BodyDecodingError):
        decode_chunks([Chunk(at=0.0, data=data)], encoding, limit=10_000)
