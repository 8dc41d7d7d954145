"""SIGTERM interrupts like the keyboard, in this process alone."""

import asyncio
import os
import signal
import sys

import pytest

from harmony_conformance.runtime.termination import interrupted_by_termination

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGTERM from outside")


@pytest.fixture
def keyboard(request):
    before = signal.signal(signal.SIGINT, request.param)
    yield
    signal.signal(signal.SIGINT, before)


hears = pytest.mark.parametrize("keyboard", [signal.default_int_handler], ids=["hears SIGINT"], indirect=True)
is_deaf = pytest.mark.parametrize(
    "keyboard",
    [signal.SIG_IGN, signal.SIG_DFL],
    ids=["ignores SIGINT, as in the background", "ends by SIGINT"],
    indirect=True,
)


@hears
def test_it_interrupts_and_the_exit_code_is_its_own(keyboard):
    with interrupted_by_termination() as interruption:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert interruption.exit_code == 143
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@hears
def test_an_event_loop_ends_in_order(keyboard):
    ended = []

    async def work():
        try:
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append("in order")
            raise

    with interrupted_by_termination(), pytest.raises(KeyboardInterrupt):
        asyncio.run(work())
    assert ended == ["in order"]


@is_deaf
def test_it_ends_a_process_that_no_keyboard_interrupts(keyboard):
    with interrupted_by_termination():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_without_it_the_exit_code_is_that_of_the_keyboard():
    with interrupted_by_termination() as interruption:
        assert interruption.exit_code == 130


@hears
def test_a_handler_that_is_there_stays(keyboard):
    def mine(number, frame):
        raise AssertionError

    signal.signal(signal.SIGTERM, mine)
    try:
        with interrupted_by_termination():
            assert signal.getsignal(signal.SIGTERM) is mine
        assert signal.getsignal(signal.SIGTERM) is mine
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
@hears
def test_a_forked_process_ends_by_it(keyboard):
    """A worker that ignored it could not be ended by its parent."""
    with interrupted_by_termination():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        child = os.fork()
        if not child:
            os._exit(0 if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
