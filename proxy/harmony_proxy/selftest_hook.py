"""The guard in between, for `harmony-conformance selftest --through proxy`: it observes an application, and what it kept of each exchange is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from harmony_conformance.evidence.exchange import Exchange
from harmony_proxy.asgi.guard import HarmonyGuard
from harmony_proxy.capture.build_exchange import build_exchange
from harmony_proxy.capture.observation import App
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.judging.queue_codec import read


class GuardBetween:
    """An application that is watched."""

    def __init__(self, app: App) -> None:
        self._kept = _Keeping(JudgeSettings())
        self.app = HarmonyGuard(app, handing=self._kept, clock=_now)

    def exchanges(self) -> Sequence[Exchange]:
        """What has gone by, as it is judged; what the guard does not judge is not among it."""
        put_together = (build_exchange(read(noted)) for noted in self._kept.over)
        return tuple(found.exchange for found in put_together if found.exchange is not None)


class _Keeping(JudgeQueue):
    """What was handed over stays there: nothing judges it here, and nothing is dropped."""

    def start(self) -> None:
        """Nothing has to begin."""

    def pack(self) -> int:
        """Nothing is bounded here."""
        return 1

    def problem(self) -> None:
        """What goes wrong with the guard is no small matter here.

        Raises:
            AssertionError: always.
        """
        raise AssertionError("the guard had a problem of its own")


def _now() -> float:
    return asyncio.get_running_loop().time()
