import gzip
import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmony_conformance.transport.content_coding import (
    BodyDecoder,
    ContentDecodingError,
    DecodedSizeError,
    decode_chunks,
)
from harmony_conformance.transport.messages import Chunk

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
        chunks = [Chunk(arrival_time=0.1, data=packed[:cut]), Chunk(arrival_time=0.2, data=packed[cut:])]
        unpacked = decode_chunks(chunks, encoding, limit=len(TEXT))
        assert b"".join(chunk.data for chunk in unpacked) == TEXT
        assert {chunk.arrival_time for chunk in unpacked} <= {0.1, 0.2}


@pytest.mark.parametrize(("encoding", "pack"), [("gzip", gzip.compress), ("zstd", zstd)])
def test_members_one_behind_the_other_are_one_body_at_every_split(encoding, pack):
    packed = b"".join(pack(b"data: %d\n\n" % number) for number in range(3))
    for cut in range(len(packed)):
        chunks = [Chunk(arrival_time=0.1, data=packed[:cut]), Chunk(arrival_time=0.2, data=packed[cut:])]
        unpacked = decode_chunks(chunks, encoding, limit=100)
        assert b"".join(chunk.data for chunk in unpacked) == b"data: 0\n\ndata: 1\n\ndata: 2\n\n"


@pytest.mark.parametrize("padding", [b"\0", b"\0" * 600, b"\x1f", b"junk"])
def test_what_follows_a_member_and_is_none_is_padding(padding):
    unpacking = BodyDecoder("gzip")
    assert unpacking.feed(gzip.compress(TEXT) + padding, limit=len(TEXT)) == TEXT
    assert unpacking.feed(padding, limit=len(TEXT)) == b""
    unpacking.end()


@pytest.mark.parametrize(("encoding", "pack"), PACKERS[2:])
def test_a_body_that_ends_within_its_encoding_is_said_to(encoding, pack):
    packed = pack(TEXT)
    unpacking = BodyDecoder(encoding)
    unpacking.end()  # of nothing there is no more
    unpacking.feed(packed[:-1], limit=len(TEXT))
    with pytest.raises(ContentDecodingError, match=f"truncated {encoding.lower()} body"):
        unpacking.end()
    unpacking.feed(packed[-1:], limit=len(TEXT))
    unpacking.end()


def test_an_event_has_the_time_of_the_packed_bytes_that_completed_it():
    packer = zlib.compressobj(wbits=zlib.MAX_WBITS | 16)
    sent = [
        Chunk(
            arrival_time=float(number), data=packer.compress(b"data: %d\n\n" % number) + packer.flush(zlib.Z_SYNC_FLUSH)
        )
        for number in range(3)
    ]
    assert [(chunk.arrival_time, chunk.data) for chunk in decode_chunks(sent, "gzip", limit=1000)] == [
        (0.0, b"data: 0\n\n"),
        (1.0, b"data: 1\n\n"),
        (2.0, b"data: 2\n\n"),
    ]


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_bytes_in_another_encoding_are_said_to_be_so(encoding):
    with pytest.raises(ContentDecodingError, match=f"invalid {encoding} body"):
        decode_chunks([Chunk(arrival_time=0.0, data=b"plain text, not packed at all")], encoding, limit=1000)


@pytest.mark.parametrize("encoding", ["compress", "gzip, compress", "x" * 500])
def test_an_encoding_that_is_not_known_is_not_quoted(encoding):
    with pytest.raises(ContentDecodingError, match="unsupported content encoding: expected gzip, ") as raised:
        decode_chunks([], encoding, limit=1)
    assert encoding.split()[-1] not in str(raised.value)


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", brotli), ("zstd", zstd)]
)
def test_a_small_body_that_unpacks_to_a_large_one_is_refused(encoding, pack):
    packed = pack(bytes(50_000_000))
    with pytest.raises(ContentDecodingError, match="decompresses to more than 1000000 bytes"):
        decode_chunks([Chunk(arrival_time=0.0, data=packed)], encoding, limit=1_000_000)


@settings(deadline=None)
@given(st.binary(max_size=200), st.sampled_from(["gzip", "deflate", "br", "zstd"]))
def test_no_bytes_break_it(data, encoding):
    with suppress(ContentDecodingError):
        decode_chunks([Chunk(arrival_time=0.0, data=data)], encoding, limit=10_000)


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [
        ("gzip", gzip.compress),
        ("br", brotli),
        ("zstd", zstd),
        ("gzip, gzip", lambda data: gzip.compress(gzip.compress(data))),
        ("gzip, br", lambda data: brotli(gzip.compress(data))),
        ("br, zstd", lambda data: zstd(brotli(data))),
    ],
)
def test_memory_stays_at_the_limit_of_a_body(encoding, pack):
    packed, limit = pack(bytes(100_000_000)), 1_000_000
    decoder = BodyDecoder(encoding)
    tracemalloc.start()
    try:
        with pytest.raises(DecodedSizeError, match="more than 1000000 bytes"):
            decoder.feed(packed, limit=limit)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 6 * limit  # a step of zstd has 2 MB


def test_an_intermediate_form_has_the_limit_too():
    padded = gzip.compress(b"short") + bytes(50_000_000)  # padding, which the inner gzip ignores
    with pytest.raises(DecodedSizeError):
        BodyDecoder("gzip, gzip").feed(gzip.compress(padded), limit=1_000_000)


def test_a_body_has_at_most_two_codings():
    with pytest.raises(ContentDecodingError, match="3 content codings: at most 2 are decoded"):
        BodyDecoder("gzip, deflate, gzip")
    BodyDecoder("identity, gzip, , deflate")


def test_a_window_beyond_that_of_http_is_refused():
    zstandard = pytest.importorskip("zstandard")
    parameters = zstandard.ZstdCompressionParameters(window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    packed = compressor.compress(b"text") + compressor.flush()
    with pytest.raises(ContentDecodingError, match="invalid zstd body"):
        BodyDecoder("zstd").feed(packed, limit=1000)


def test_ten_thousand_empty_members_are_decoded_in_little_memory():
    packed = gzip.compress(b"") * 10_000 + gzip.compress(TEXT)
    assert BodyDecoder("gzip").feed(packed, limit=len(TEXT)) == TEXT


@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 65_600, 131_072, 131_073])
def test_output_that_waits_behind_a_full_step_is_decoded(size):
    for encoding, pack in (("deflate", deflate_without_header), ("deflate", zlib.compress), ("gzip", gzip.compress)):
        decoder = BodyDecoder(encoding)
        assert decoder.feed(pack(b"a" * size), limit=size) == b"a" * size
        decoder.end()
