"""One process at a time writes into a folder; the lock ends with its process, whatever ends it."""

import os
import signal
import subprocess
import sys

import pytest

from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.folder_lock import LOCK_FILE, FolderInUseError, lock_folder

HOLDER = """
import os, sys, time
from pathlib import Path
from harmony_conformance.evidence.folder_lock import lock_folder
with lock_folder(Path(sys.argv[1])):
    child = os.fork() if sys.argv[2] == "with a child" else 0
    if child == 0:  # a child has then left the lock
        print("locked", flush=True)
    time.sleep(600)
"""


def test_a_second_lock_is_refused_in_one_line_with_the_pid(tmp_path):
    with lock_folder(tmp_path), pytest.raises(FolderInUseError) as refused, lock_folder(tmp_path):
        pytest.fail("locked twice")
    assert str(refused.value) == (
        f"{tmp_path}: in use by process {os.getpid()}: wait for its end, or use another folder"
    )
    assert isinstance(refused.value, UsageError)


def test_a_lock_that_is_released_leaves_nothing_behind(tmp_path):
    for _ in range(2):
        with lock_folder(tmp_path):
            assert (tmp_path / LOCK_FILE).read_text() == str(os.getpid())
        assert list(tmp_path.iterdir()) == []


def test_a_lock_is_released_after_an_error(tmp_path):
    with pytest.raises(ValueError, match="oops"), lock_folder(tmp_path):
        raise ValueError("oops")
    with lock_folder(tmp_path):
        pass


def test_a_file_without_its_process_locks_nothing(tmp_path):
    (tmp_path / LOCK_FILE).write_text("12345678901234567890")
    with lock_folder(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == str(os.getpid())


@pytest.mark.parametrize("is_dangling", [False, True])
def test_a_lock_file_that_is_a_symbolic_link_is_refused_and_not_followed(tmp_path, is_dangling):
    folder, target = tmp_path / "out", tmp_path / "diary"
    folder.mkdir()
    if not is_dangling:
        target.write_text("Dear diary")
    (folder / LOCK_FILE).symlink_to(target)
    with pytest.raises(UsageError) as refused, lock_folder(folder):
        pytest.fail("locked by a file elsewhere")
    assert str(refused.value) == (
        f"invalid {folder / LOCK_FILE}: expected a file, got a symbolic link: delete it, or use another folder"
    )
    assert target.exists() is not is_dangling
    assert is_dangling or target.read_text() == "Dear diary"
    assert (folder / LOCK_FILE).is_symlink()


@pytest.mark.parametrize("children", ["alone", "with a child"])
def test_a_killed_process_holds_no_lock_even_if_its_child_lives_on(tmp_path, children):
    words = [sys.executable, "-c", HOLDER, str(tmp_path), children]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "locked\n"
            with pytest.raises(FolderInUseError, match=f"in use by process {holder.pid}:"), lock_folder(tmp_path):
                pytest.fail("locked twice")
            os.kill(holder.pid, signal.SIGKILL)
            os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
            with lock_folder(tmp_path):
                pass
        finally:
            os.killpg(holder.pid, signal.SIGKILL)
