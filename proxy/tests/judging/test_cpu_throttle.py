"""While the traffic is busy, judging takes its share and no more; otherwise it takes what it needs."""

import os
import subprocess
import sys
import time

import pytest

from harmony_proxy.judging.cpu_throttle import SHARE, CpuThrottle, cpu_throttle

EXCHANGE = 0.003
"""Seconds of work for each."""


class Machine:
    """A clock, and the time that each side has used of it."""

    def __init__(self, load):
        self.load, self.now, self.used, self.done = load, 0.0, 0.0, 0.0
        self.way = CpuThrottle(lambda: self.used, own=lambda: self.done, clock=lambda: self.now)

    def pass_time(self, seconds):
        self.now += seconds
        self.used += seconds * self.load

    def judge(self):
        self.pass_time(EXCHANGE)
        self.done += EXCHANGE
        rest = self.way.pause_seconds()
        self.pass_time(rest)
        return rest

    def share(self, seconds=10.0):
        stop, done = self.now + seconds, self.done
        while self.now < stop:
            self.judge()
        return (self.done - done) / seconds


@pytest.mark.parametrize(("load", "share"), [(0.0, 1.0), (0.4, 1.0), (0.6, SHARE), (1.0, SHARE), (3.0, SHARE)])
def test_how_much_is_judged_depends_on_how_busy_the_traffic_is(load, share):
    assert Machine(load).share() == pytest.approx(share, rel=0.1)


def test_it_follows_the_traffic():
    machine = Machine(1.0)
    machine.share()
    machine.load = 0.0
    assert machine.share() > 0.9
    machine.load = 1.0
    assert machine.share() < 0.3


def test_a_rest_is_bounded_however_long_an_exchange_took():
    machine = Machine(1.0)
    machine.share()
    machine.pass_time(5.0)
    machine.done += 5.0
    assert machine.way.pause_seconds() <= 0.2


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="Linux")
def test_the_clock_of_the_parent_is_read():
    asks = "from harmony_proxy.judging.cpu_throttle import cpu_throttle; print(cpu_throttle()._traffic())"
    affine = "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]);"
    told = subprocess.run([sys.executable, "-c", affine + asks], capture_output=True, check=True)
    assert 0 < float(told.stdout) <= time.process_time()


def test_where_no_clock_of_a_process_can_be_read_nothing_is_waited_for(monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    assert cpu_throttle() is None
