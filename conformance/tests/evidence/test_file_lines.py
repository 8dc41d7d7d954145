import bz2
import gzip
import io
import lzma

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from harmony_conformance.evidence import compressed_files, file_lines
from harmony_conformance.evidence.file_lines import Line, UnreadableLine, read_lines, split_lines

UTF16 = "the file is UTF-16: convert it (iconv -f utf-16 -t utf-8)"


def told(found):
    return [(one.offset, one.number, one.data if isinstance(one, Line) else one.kind) for one in found]


def written(tmp_path, data, name="log.jsonl"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


LINES = [
    pytest.param(b"", [], id="an empty file has no line"),
    pytest.param(b"\n\n \n", [], id="blank lines are left out"),
    pytest.param(b"a\nbc\n", [(0, 1, b"a"), (2, 2, b"bc")], id="each line has its offset and number"),
    pytest.param(b"a\n\nb", [(0, 1, b"a"), (3, 3, b"b")], id="the last line needs no end"),
    pytest.param(b"a\r\nb\r\n", [(0, 1, b"a\r"), (3, 2, b"b\r")], id="a carriage return is white space of the line"),
    pytest.param(b"\xef\xbb\xbfa\nb", [(0, 1, b"a"), (5, 2, b"b")], id="a byte order mark of UTF-8 is dropped"),
    pytest.param(b"\xff\xfea\0\n\0", [(0, 1, UTF16)], id="UTF-16 is told once"),
    pytest.param(b"\xfe\xff\0a\0\n", [(0, 1, UTF16)], id="and in the other byte order"),
    pytest.param(b"abcdefghi\nok\n", [(0, 1, "the line is too long"), (10, 2, b"ok")], id="a long line is skipped"),
    pytest.param(b"ok\nabcdefghi", [(0, 1, b"ok"), (3, 2, "the line is too long")], id="also at the end"),
    pytest.param(b"abcdefgh\n", [(0, 1, b"abcdefgh")], id="a line at the limit is read"),
]


@pytest.mark.parametrize(("data", "expected"), LINES)
def test_a_file_is_read_as_lines(tmp_path, data, expected):
    assert told(read_lines(written(tmp_path, data), limit=8)) == expected


COMPRESSORS = pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])


@COMPRESSORS
@pytest.mark.parametrize(("data", "expected"), LINES)
def test_a_compressed_file_is_read_as_the_same_lines_whatever_its_name(tmp_path, data, expected, compress):
    assert told(read_lines(written(tmp_path, compress(data)), limit=8)) == expected


@COMPRESSORS
def test_joined_compressed_files_are_read_as_one(tmp_path, compress):
    joined = compress(b"a\nb") + compress(b"c\nd\n")
    assert told(read_lines(written(tmp_path, joined))) == [(0, 1, b"a"), (2, 2, b"bc"), (5, 3, b"d")]


def test_an_xz_file_that_needs_too_much_memory_is_damaged(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed_files, "_XZ_MEMORY", 1 << 20)
    (problem,) = read_lines(written(tmp_path, lzma.compress(b"line\n")))
    assert problem.kind == "the compressed file is damaged"


def test_a_long_line_is_reported_with_its_length(tmp_path):
    (problem,) = read_lines(written(tmp_path, b"x" * 20), limit=8)
    assert str(problem) == "the line is too long: 20 bytes, at most 8 are read"


def test_a_missing_file_is_one_problem(tmp_path):
    (problem,) = read_lines(tmp_path / "absent")
    assert str(problem) == "no such file"


def test_a_folder_is_one_problem(tmp_path):
    (problem,) = read_lines(tmp_path)
    assert str(problem) == "it is a folder, not a file"


@COMPRESSORS
def test_a_compressed_file_that_breaks_off_gives_its_whole_lines_and_says_where(tmp_path, compress):
    text = b"".join(b'{"number": %d}\n' % (number * 7919 % 1_000_003) for number in range(200_000))
    packed = compress(text)
    found = list(read_lines(written(tmp_path, packed[: len(packed) // 2])))
    assert isinstance(found[-1], UnreadableLine)
    assert found[-1].kind == "the compressed file is truncated"
    whole = [one for one in found[:-2] if isinstance(one, Line)]
    assert whole
    assert all(text.startswith(line.data + b"\n", line.offset) for line in whole)
    assert found[-1].offset > whole[-1].offset


@COMPRESSORS
def test_a_damaged_compressed_file_says_so(tmp_path, compress):
    packed = bytearray(compress(b"line\n" * 50_000))
    packed[40:60] = bytes(20)
    found = list(read_lines(written(tmp_path, bytes(packed))))
    assert isinstance(found[-1], UnreadableLine)
    assert found[-1].kind.startswith("the compressed file ")


def test_a_read_that_fails_is_reported_after_the_lines_before_it():
    class Failing(io.BytesIO):
        def read1(self, size=-1):
            if self.tell() == 4:
                raise OSError(5, "Input/output error")
            return super().read1(4)

    assert told(split_lines(Failing(b"a\nb\nc\n"))) == [
        (0, 1, b"a"),
        (2, 2, b"b"),
        (4, 3, "the file cannot be read further"),
    ]


@example(data=b"(\xb5/\xfd", block=1, limit=1)
@example(data=b"PK\x03\x04\n{}", block=3, limit=30)
@given(data=st.binary(max_size=60), block=st.integers(1, 20), limit=st.integers(1, 30))
def test_where_blocks_end_makes_no_difference(data, block, limit):
    class Small(io.BytesIO):
        def read1(self, size=-1):
            return super().read1(block)

    expected = list(split_lines(io.BytesIO(data), limit=limit))
    assert list(split_lines(Small(data), limit=limit)) == expected


@given(data=st.binary(max_size=80))
def test_every_byte_that_is_no_white_space_is_in_a_line_or_a_problem(data):
    found = list(split_lines(io.BytesIO(data), limit=1000))
    if any(isinstance(one, UnreadableLine) for one in found):
        assert found[0].kind.startswith("the file is ")
        return
    seen = b"".join(line.data for line in found)
    assert b"".join(seen.split()) == b"".join(data.removeprefix(b"\xef\xbb\xbf").split())


def test_a_long_line_is_skipped_in_little_memory(monkeypatch):
    class Endless:
        left = 300

        def read1(self, _):
            self.left -= 1
            return b"x" * file_lines._BLOCK if self.left > 0 else b"\nlast"[: 5 if self.left == 0 else 0]

    import tracemalloc

    tracemalloc.start()
    found = list(split_lines(Endless(), limit=4 * file_lines._BLOCK))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [type(one) for one in found] == [UnreadableLine, Line]
    assert peak < 12 * file_lines._BLOCK
