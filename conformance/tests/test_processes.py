"""A process that is being started is not stopped by the keyboard, and once it is there it ends without a word."""

import os
import signal
import subprocess
import sys

import pytest

from harmony_conformance.processes import starting

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows inherits no signal mask")
PRESSED = "import os, signal; os.kill(os.getpid(), signal.SIGINT); "


def started(code):
    with starting():
        process = subprocess.Popen([sys.executable, "-c", PRESSED + code], stderr=subprocess.PIPE, text=True)
    said = process.communicate(timeout=60)[1]
    return process.returncode, said


def test_a_key_that_is_pressed_while_modules_are_read_shows_no_traceback():
    assert started("import json") == (0, "")


def test_it_ends_the_process_that_was_waited_for():
    assert started("from harmony_conformance.processes import be_stopped; be_stopped()") == (-signal.SIGINT, "")


def test_who_starts_it_is_told_in_the_end():
    def press():
        with starting():
            os.kill(os.getpid(), signal.SIGINT)
            told.append("started")

    told = []
    with pytest.raises(KeyboardInterrupt):
        press()
    assert told == ["started"]
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
