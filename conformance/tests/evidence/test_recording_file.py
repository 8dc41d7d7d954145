"""Records are appended whole or not at all; a recording that was torn is read up to there and named so."""

import errno
import gzip
import os
import shutil
import subprocess
from io import FileIO

import pytest

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import exchange_line
from harmony_conformance.evidence.recording_file import (
    BrokenRecordingError,
    append_atomically,
    end_line,
    read_recorded,
    read_recording,
    run_line,
    sent_line,
    series_key,
)
from harmony_conformance.transport.messages import Request


def line(step, scenario="one"):
    request = Request(path="/v1/chat/completions", body=b'{"text":"\xc3\xbc\xc3\xbc\xc3\xbc"}')
    return exchange_line(Exchange(id=step, scenario=scenario, step=step, request=request))


class FullDisk(FileIO):
    """A file that takes `room` bytes more and then has no space, as a disk that fills up within a record."""

    room = 10**9

    def write(self, data):
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = super().write(data[: self.room])
        self.room -= taken
        return taken


def test_a_record_follows_a_failed_one_without_a_gap(tmp_path):
    with FullDisk(tmp_path / "x", "wb") as file:
        append_atomically(file, b"first\n")
        file.room = 3
        with pytest.raises(OSError, match="No space left"):
            append_atomically(file, b"second\n")
        file.room = 100
        append_atomically(file, b"third\n")
    assert (tmp_path / "x").read_bytes() == b"first\nthird\n"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    mounted = mount and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("this user may not mount a file system")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_full_disk_tears_no_record_and_leaves_no_hole(small_disk):
    records = [bytes([65 + place % 26]) * (700 * (1 + place % 90)) + b"\n" for place in range(200)]
    with FileIO(small_disk / "x", "wb") as file:
        written, failed = [], 0
        for record in records:
            try:
                append_atomically(file, record)
                written.append(record)
            except OSError:
                failed += 1
    assert failed > 1
    assert records.index(written[-1]) > len(written) - 1  # a shorter one fitted behind a failed one
    assert (small_disk / "x").read_bytes() == b"".join(written)


TORN = {
    "JSON that is cut": line("b")[:-9],
    "text that is cut within a character": line("b")[: line("b").index("ü".encode()) + 1],
    "a tail of null bytes": line("b")[:40] + bytes(500),
    "null bytes alone": bytes(4096),
}


@pytest.mark.parametrize("what", TORN)
def test_a_torn_last_record_is_reported_and_what_is_before_it_is_read(tmp_path, what):
    path = tmp_path / "exchanges.jsonl"
    path.write_bytes(line("a") + TORN[what])
    recording = read_recording(path)
    assert [list(one.exchanges) for one in recording.series] == [["a"]]
    assert "line 2" in recording.damage
    assert recording.missing_part == recording.damage
    assert "\n" not in recording.damage
    with pytest.raises(BrokenRecordingError, match="line 2"):
        read_recorded(path)


def test_a_compressed_recording_that_is_cut_is_read_up_to_there(tmp_path):
    path = tmp_path / "exchanges.jsonl.gz"
    path.write_bytes(gzip.compress(line("a") + line("b") + os.urandom(4000).hex().encode())[:-2000])
    recording = read_recording(path)
    assert [list(one.exchanges) for one in recording.series] == [["a", "b"]]
    assert recording.damage


def test_a_torn_record_with_whole_ones_after_it_is_an_error_with_its_line(tmp_path):
    path = tmp_path / "exchanges.jsonl"
    path.write_bytes(line("a") + line("b")[:-9] + b"\n" + line("c"))
    with pytest.raises(BrokenRecordingError, match=f"^{path}, line 2: "):
        read_recording(path)


def test_null_bytes_of_a_lost_record_are_skipped_and_reported(tmp_path):
    path = tmp_path / "exchanges.jsonl"
    path.write_bytes(line("a") + bytes(1517) + line("c") + line("d"))
    recording = read_recording(path)
    assert [list(one.exchanges) for one in recording.series] == [["a", "c", "d"]]
    assert recording.damage == "record lost at line 2 (1517 null bytes)"


def test_a_recording_has_a_beginning_finished_series_and_an_end(tmp_path):
    path = tmp_path / "exchanges.jsonl"
    begun = run_line({"tries": 1}) + line("a") + line("b") + sent_line(("one", "chat", 0)) + line("a", "two")
    path.write_bytes(begun)
    recording = read_recording(path)
    assert recording.header["tries"] == 1
    assert recording.finished == {("one", "chat", 0)}
    assert [series_key(one) for one in recording.series] == [("one", "chat", 0), ("two", "chat", 0)]
    assert recording.missing_part == "the recorded run did not end"
    path.write_bytes(begun + end_line())
    assert read_recording(path).missing_part == ""
    path.write_bytes(line("a"))
    assert read_recording(path).missing_part == ""


def test_a_request_for_metrics_belongs_to_the_api_of_its_scenario(tmp_path):
    """`run --api all` sends scenarios about load over several APIs, and asks for the same metrics in each."""
    steps = (("first", "chat"), ("idle", "metrics"))
    request = Request(path="/metrics", method="GET", body=b"")
    lines = [
        exchange_line(Exchange(id=f"one/{of}/{step}/0", scenario="one", step=step, request=request, api=api))
        for of in ("chat", "messages")
        for step, api in ((step, of if api == "chat" else api) for step, api in steps)
    ]
    (tmp_path / "x").write_bytes(b"".join(lines))
    series = read_recorded(tmp_path / "x")
    assert [(one.api, [*one.exchanges]) for one in series] == [
        ("chat", ["first", "idle"]),
        ("messages", ["first", "idle"]),
    ]
