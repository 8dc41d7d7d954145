"""A process that is being started is not stopped by the keyboard, and once it is there it ends without a word. It is a copy of this one where that is whole."""

import os
import select
import signal
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event, Thread, active_count

import pytest

from harmony_conformance.runtime import processes
from harmony_conformance.runtime.processes import block_interrupts

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows inherits no signal mask")
PRESSED = "import os, signal; os.kill(os.getpid(), signal.SIGINT); "


def started(code):
    with block_interrupts():
        process = subprocess.Popen([sys.executable, "-c", PRESSED + code], stderr=subprocess.PIPE, text=True)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def test_a_key_that_is_pressed_while_modules_are_read_shows_no_traceback():
    assert started("import json") == (0, "")


def test_it_ends_the_process_that_was_waited_for():
    assert started("from harmony_conformance.runtime.processes import restore_interrupts; restore_interrupts()") == (
        -signal.SIGINT,
        "",
    )


def press():
    """Press the key, and wait until another thread has taken it, if there is one (others than Python's among them): this one has blocked it."""
    reading, writing = socket.socketpair()
    with reading, writing:
        writing.setblocking(False)
        before = signal.set_wakeup_fd(writing.fileno())
        os.kill(os.getpid(), signal.SIGINT)
        select.select([reading], [], [], 60 if active_count() > 1 else 0.2)
        signal.set_wakeup_fd(before)


@pytest.fixture(params=[0, 1], ids=["alone", "with another thread"])
def threads(request):
    done = Event()
    others = [Thread(target=done.wait) for _ in range(request.param)]
    for one in others:
        one.start()
    yield
    done.set()
    for one in others:
        one.join()


@pytest.fixture
def keyboard():
    """A key that is heard: of what is begun in the background the shell has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("keyboard", "threads")
def test_who_starts_it_is_told_in_the_end():
    def starts():
        with block_interrupts():
            press()
            told.append("started")

    told, before = [], signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        starts()
    assert told == ["started"]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
    assert signal.getsignal(signal.SIGINT) is before


def test_who_starts_it_from_another_thread_may():
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(started, "import json").result() == (0, "")


LIBRARYS = """
import os, _thread
from harmony_conformance.runtime.processes import process_context, may_fork
alone = may_fork(), process_context().get_start_method()
held = _thread.allocate_lock()
held.acquire()
_thread.start_new_thread(held.acquire, ())  # as a library does: the module that counts threads is told nothing
print(*alone, may_fork(), process_context().get_start_method(), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")
def test_a_process_with_a_thread_that_python_does_not_know_is_not_copied():
    told = subprocess.run([sys.executable, "-c", LIBRARYS], capture_output=True, text=True, check=True, timeout=60)
    assert told.stdout.split() == ["True", "fork", "False", "spawn"]


def test_where_the_threads_of_the_system_cannot_be_listed_those_of_python_are_counted(monkeypatch, threads):
    def refused(_):
        raise PermissionError

    monkeypatch.setattr(processes.Path, "iterdir", refused)
    assert processes._threads() == active_count()
