"""The standalone proxy in a thread of this process. Its judge queue keeps the exchanges instead of judging them."""

import asyncio
import time
from contextlib import contextmanager
from threading import Thread

import pytest
import uvicorn

from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.build_exchange import build_exchange
from harmony_proxy.capture.memory_budget import MemoryBudget
from harmony_proxy.judging.queue_codec import decode_exchange

WAIT = 20


def until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class Decoded(list):
    def append(self, exchange):
        super().append(decode_exchange(exchange))


class RecordingQueue:
    """A judge queue that keeps exchanges; `port` is that of its proxy."""

    memory, captures = MemoryBudget(), False

    def __init__(self):
        self.finished_exchanges = self.handed = Decoded()

    def start(self):
        pass

    def close(self):
        pass

    def count_problem(self):
        raise AssertionError

    def enqueue(self, exchange, size):
        del size
        self.finished_exchanges.append(exchange)

    def pack(self):
        return 1

    def next(self):
        """How the next exchange went by."""
        until(lambda: self.handed)
        return build_exchange(self.handed.pop())


@contextmanager
def run_proxy(base, policy=None, **limits):
    from harmony_proxy.standalone.request_body import Limits
    from harmony_proxy.standalone.server import config, create_listening_socket
    from harmony_proxy.standalone.upstream import Upstream

    queue = RecordingQueue()
    guard = HarmonyGuard(Upstream(base, limits=Limits(**limits)), queue=queue, policy=policy)
    server = uvicorn.Server(config(guard, 1.0))
    listening = create_listening_socket("127.0.0.1", 0)
    thread = Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    until(lambda: server.started)
    queue.port = listening.getsockname()[1]
    yield queue
    server.should_exit = True
    thread.join(WAIT)


@pytest.fixture(scope="session")
def serving():
    """Starts a proxy before an upstream: `serving(base, policy, **limits)`."""
    return run_proxy
