"""The guard in between, for `harmony-conformance selftest --through proxy`: it observes an application, and what it kept of each exchange is put together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from harmony_conformance.exchange import Exchange
from harmony_proxy.asgi import HarmonyGuard
from harmony_proxy.frames import Handed, read
from harmony_proxy.handing import Handing
from harmony_proxy.judge_settings import Settings
from harmony_proxy.noting import App
from harmony_proxy.passage import passage
from harmony_proxy.recorder import Kept


class Watching:
    """An application that is watched."""

    def __init__(self, app: App) -> None:
        self._kept = _Keeping(Settings())
        self.app = HarmonyGuard(app, handing=self._kept, clock=_now)

    def exchanges(self) -> Sequence[Exchange]:
        """What has gone by, as it is judged; what the guard does not judge is not among it."""
        put_together = (passage(kept) for kept in self._kept.handed)
        return tuple(found.exchange for found in put_together if found.exchange is not None)


class _Keeping(Handing):
    """State: what was handed over so far. Nothing judges it here, and nothing is dropped."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.handed: list[Kept] = []

    def start(self) -> None:
        """Nothing has to begin."""

    def hand_over(self, exchange: Handed, size: int) -> None:  # noqa: ARG002 - nothing is bounded here
        """Keep it."""
        self.handed.append(read(exchange))

    def problem(self) -> None:
        """What goes wrong with the guard is no small matter here.

        Raises:
            AssertionError: always.
        """
        raise AssertionError("the guard had a problem of its own")


def _now() -> float:
    return asyncio.get_running_loop().time()
