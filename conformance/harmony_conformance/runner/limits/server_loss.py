"""Detection of a server that went away, as opposed to a request that it did not answer.

Both end as a lost connection. A plain `GET` distinguishes them: any HTTP answer shows that the server is there. After several lost connections in a row,
the plain request of discovery replaces it, because a gateway may answer in place of a dead server. It is also the last attempt,
because a server may answer nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from harmony_conformance.engines.diagnosis import MODELS_PATH
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES
from harmony_conformance.runner.limits.access_loss import LimitedSend
from harmony_conformance.runner.limits.run_limits import RunLimits
from harmony_conformance.transport.messages import Failure, FailureKind, Request

_LOST = frozenset({FailureKind.NO_CONNECTION, FailureKind.RESET, FailureKind.CUT})
_PROBES = 4
_INTERVAL = 0.5  # seconds between two probes
_PROBE_SECONDS = 5.0
_LOST_IN_A_ROW = 5
_OPEN_SHOWN = 3
_ANY_ANSWER = Request(path=MODELS_PATH, method="GET", body=b"")


class ServerLoss:
    """State: the last answered request, and the requests without an answer since then."""

    def __init__(self, plain: Mapping[str, Request], limits: RunLimits) -> None:
        """`plain`: a request that succeeded, by the name of its API. `limits`: those of the whole run; the loss of the server ends it."""
        self._plain, self._limits = plain, limits
        self._gone: Failure | None = None
        self._last: Exchange | None = None
        self._lost: list[Exchange] = []
        self._one_by_one = asyncio.Lock()

    def note_answer(self, x: Exchange) -> None:
        """Receive an exchange whose connection was not lost."""
        if x.response is not None:
            self._last = x
            self._lost.clear()

    async def diagnose(self, x: Exchange, ask: LimitedSend) -> Exchange:
        """Return an exchange whose connection was lost. If the server went away, the loss is its failure, and the run stops.

        An invalid request that was sent alone keeps its own failure: it may have ended the server.
        """
        self._lost.append(x)
        async with self._one_by_one:
            if self._gone is None and await self._is_gone(x, ask):
                self._gone = Failure(kind=FailureKind.SERVER_GONE, detail=self._describe(x))
                self._limits.stop(self._gone)
        if self._gone is None or (x.validity in REFUSABLE_VALIDITIES and (x.concurrency or 1) == 1):
            return x
        return replace(x, response=None, failure=self._gone)

    async def _is_gone(self, x: Exchange, ask: LimitedSend) -> bool:
        plain = self._plain.get(x.api, _ANY_ANSWER)
        first = plain if len(self._lost) >= _LOST_IN_A_ROW else _ANY_ANSWER
        with suppress(TimeoutError):
            async with asyncio.timeout(_PROBE_SECONDS):
                for attempt in range(_PROBES):
                    await asyncio.sleep(_INTERVAL if attempt else 0)
                    sent = await ask(first if attempt < _PROBES - 1 else plain)
                    if sent is None or sent.failure is None or sent.failure.kind not in _LOST:
                        return False
                return True
        return False  # the server is silent, which the limit of timeouts in a row ends

    def _describe(self, x: Exchange) -> str:
        last = self._last
        place = f"scenario {last.scenario}, step {last.step}" if last is not None else "discovery"
        names = [f"{one.scenario}, step {one.step}" for one in self._lost]
        more = f" and {len(names) - _OPEN_SHOWN} more" if len(names) > _OPEN_SHOWN else ""
        reason = x.failure.detail if x.failure is not None else ""
        return (
            f"the server went away after {place} ({reason}); without an answer: {'; '.join(names[:_OPEN_SHOWN])}{more}"
        )


def is_connection_lost(x: Exchange) -> bool:
    """Return True if the connection of an exchange was refused, reset or closed too early."""
    return x.failure is not None and x.failure.kind in _LOST
