"""A file that cannot be written to its end: a report is removed, and the file of a user stays as it was."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from harmony_conformance.runtime.private_files import write_private
from harmony_conformance.runtime.text_files import replace_text_file

resource = pytest.importorskip("resource", reason="Windows has no limit of sizes")
LIMIT = 1000


@contextmanager
def small_disk():
    """Files cannot grow beyond a limit. It is no fixture: pytest writes the result of a test, perhaps to a file, before it ends a fixture."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_part_of_a_report_is_removed(tmp_path):
    with small_disk(), pytest.raises(OSError, match="File too large"):
        write_private(tmp_path / "report.html", b"x" * 2 * LIMIT)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_opened_is_not_removed(tmp_path):
    (link := tmp_path / "report.html").symlink_to("elsewhere")
    with pytest.raises(OSError, match=r"symbolic link|Too many levels"):
        write_private(link, b"x")
    assert link.is_symlink()


def test_the_file_of_a_user_stays_as_it_was(tmp_path):
    (file := tmp_path / "known.toml").write_text("mine", "utf-8")
    with small_disk(), pytest.raises(OSError, match="File too large"):
        replace_text_file(file, "x" * 2 * LIMIT)
    assert file.read_text("utf-8") == "mine"
    assert list(tmp_path.iterdir()) == [file]


def test_it_is_replaced_with_its_mode_and_through_its_link(tmp_path):
    (file := tmp_path / "known.toml").write_text("mine", "utf-8")
    file.chmod(0o640)
    (link := tmp_path / "link.toml").symlink_to(file.name)
    replace_text_file(link, "new")
    assert (file.read_text("utf-8"), file.stat().st_mode & 0o777, link.is_symlink()) == ("new", 0o640, True)


@pytest.mark.skipif(sys.platform != "linux", reason="/dev/null is no device elsewhere")
def test_a_device_is_written_and_not_replaced():
    replace_text_file(Path(os.devnull), "new")
    assert Path(os.devnull).is_char_device()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_file_that_is_a_mount_is_written_in_its_place(tmp_path, monkeypatch, is_there):
    file = tmp_path / "known.toml"
    if is_there:
        file.write_text("mine", "utf-8")

    def is_busy(*_):
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(Path, "replace", is_busy)
    if is_there:
        replace_text_file(file, "new")
        assert file.read_text("utf-8") == "new"
    else:
        with pytest.raises(OSError, match="busy"):
            replace_text_file(file, "new")
    assert not (tmp_path / ".known.toml.part").exists()
