import io
import os
from contextlib import ExitStack, suppress

import pytest

from harmony_proxy.judging import log_file


@pytest.fixture
def opened():
    """Opens logs, which are closed when the test is over."""
    with ExitStack() as stack:

        def of(path):
            log = log_file.LogFile(path)
            stack.callback(closed, log)
            return log

        yield of


def closed(log):
    with suppress(OSError):
        log.close()


def test_lines_are_appended(tmp_path, opened):
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    log = opened(path)
    log.write(b"one\n")
    log.write(b"two\n")
    log.close()
    assert path.read_bytes() == b"before\none\ntwo\n"


@pytest.mark.parametrize("rotate", [os.rename, lambda old, _: old.unlink()], ids=["moved", "removed"])
def test_one_that_is_moved_away_is_made_anew(tmp_path, rotate, opened):
    path = tmp_path / "log"
    log = opened(path)
    log.write(b"one\n")
    rotate(path, tmp_path / "log.1")
    log.write(b"two\n")
    assert path.read_bytes() == b"two\n"
    path.write_bytes(b"")  # as `copytruncate` does
    log.write(b"three\n")
    assert path.read_bytes() == b"three\n"


def test_one_that_is_moved_away_and_cannot_be_closed_well_is_made_anew(tmp_path, monkeypatch, opened):
    class Remote(io.FileIO):
        def close(self):
            super().close()
            raise OSError("what was written before is lost")

    path = tmp_path / "log"
    monkeypatch.setattr("harmony_proxy.judging.log_file.io.FileIO", Remote)
    log = opened(path)
    log.write(b"one\n")
    path.rename(tmp_path / "log.1")
    log.write(b"two\n")
    assert path.read_bytes() == b"two\n"


def test_where_no_new_one_can_be_made_the_old_one_is_written(tmp_path, opened):
    (folder := tmp_path / "folder").mkdir()
    log = opened(folder / "log")
    log.write(b"one\n")
    folder.rename(tmp_path / "elsewhere")
    log.write(b"two\n")
    assert (tmp_path / "elsewhere" / "log").read_bytes() == b"one\ntwo\n"


def test_one_that_cannot_be_written_is_tried_again(tmp_path, opened):
    log = opened(tmp_path / "later" / "log")
    with pytest.raises(FileNotFoundError):
        log.write(b"one\n")
    (tmp_path / "later").mkdir()
    log.write(b"two\n")
    assert (tmp_path / "later" / "log").read_bytes() == b"two\n"


def test_a_line_that_was_cut_off_does_not_spoil_the_next(tmp_path, opened):
    resource = pytest.importorskip("resource", reason="the system has no limit of file sizes")
    path = tmp_path / "log"
    log = opened(path)
    log.write(b"one\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (7, hard))
    try:
        for line in (b"second\n", b"third\n"):
            with pytest.raises(OSError, match="too large"):
                log.write(line)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.write(b"fourth\n")
    assert path.read_bytes() == b"one\nsec\nfourth\n"
