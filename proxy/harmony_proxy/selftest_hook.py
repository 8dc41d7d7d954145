"""The guard for `harmony-conformance selftest --through proxy`: observe an application, and rebuild its exchanges."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from harmony_conformance.evidence.exchange import Exchange
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.asgi_observer import App
from harmony_proxy.capture.build_exchange import build_exchange
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.queue_codec import decode_exchange


class GuardBetween:
    """An ASGI application behind an observing guard."""

    def __init__(self, app: App) -> None:
        self._queue = _UnboundedQueue(JudgeSettings())
        self.app = HarmonyGuard(app, queue=self._queue, clock=lambda: asyncio.get_running_loop().time())

    def exchanges(self) -> Sequence[Exchange]:
        """Return the recorded exchanges as the judge gets them, without those that the guard does not judge."""
        built = (build_exchange(decode_exchange(note)) for note in self._queue.finished_exchanges)
        return tuple(one.exchange for one in built if one.exchange is not None)


class _UnboundedQueue(JudgeQueue):
    """A queue that retains every exchange: none is judged or dropped."""

    def start(self) -> None:
        """Do nothing: there is no judge process."""

    def pack(self) -> int:
        """Do nothing: the queue is unbounded."""
        return 1

    def count_problem(self) -> None:
        """Raise an AssertionError for any internal error of the guard."""
        raise AssertionError("internal error of the guard")
