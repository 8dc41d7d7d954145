"""Requests to an engine that an earlier request killed: they show nothing about themselves, and only the exchange that killed it fails.

An engine is dead from the end of the first exchange that shows it until a later request is answered. Two signs show a dead engine: its server says so,
or the port refuses the connection. Any other error, whatever its status, may be the answer to the request itself.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Sequence
from dataclasses import replace

from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.transport.messages import Failure, FailureKind

_SERVER_ERROR = 500
_DEAD = (
    "EngineCore encountered an issue",  # vLLM, v1/engine/exceptions.py, EngineDeadError
    "EngineDeadError",
    "Background loop has errored already",  # vLLM before v1, engine/async_llm_engine.py
    "llama runner process no longer running",  # Ollama, llm/server.go
)
_LOST = frozenset({FailureKind.RESET, FailureKind.CUT})


def mark_dead_engine(many: Sequence[Series]) -> tuple[Series, ...]:
    """Return the series, in which the requests to a dead engine have no response, and a failure in its place.

    Each of these failures names the exchange that killed the engine: the first that shows a dead engine, or the lost connection before it.
    """
    exchanges = [x for one in many for x in one.exchanges.values()]
    if not any(map(_shows_dead_engine, exchanges)):
        return tuple(many)
    killer: Exchange | None = None
    lost: Exchange | None = None
    killers: dict[int, Exchange] = {}
    for x in sorted(exchanges, key=_start):
        if not _shows_dead_engine(x):
            if x.turn is not None and x.failure is None and killer is not None and _start(x) >= _end(killer):
                killer = None
            lost = x if x.failure is not None and x.failure.kind in _LOST else lost if x.turn is None else None
        elif killer is not None:
            if _start(x) >= _end(killer):
                killers[id(x)] = killer
        elif lost is not None and x.response is None:
            killer = killers[id(x)] = lost
        else:
            killer = x
    return tuple(
        replace(one, exchanges={step: _mark(x, killers.get(id(x))) for step, x in one.exchanges.items()})
        for one in many
    )


def _mark(x: Exchange, killer: Exchange | None) -> Exchange:
    if killer is None:
        return x
    failure = Failure(kind=FailureKind.SERVER_GONE, detail=f"the engine was dead since {killer.id}")
    return replace(x, response=None, failure=failure)


def _shows_dead_engine(x: Exchange) -> bool:
    if x.failure is not None:
        return x.failure.kind is FailureKind.NO_CONNECTION and "refused" in x.failure.detail.lower()
    if x.response is None or x.response.status < _SERVER_ERROR:
        return False
    body = x.response.body.decode("utf-8", "replace")
    return any(sentence in body for sentence in _DEAD)


def _start(x: Exchange) -> float:
    """Return the time of sending in seconds; 0 if it is unknown, so that such exchanges keep their order."""
    time = _TIME.match(x.started or "")
    if time is None:
        return 0.0
    *parts, fraction = time.groups(default="0")
    return timegm((*map(int, parts), 0, 0, 0)) + float(f"0.{fraction}")


_TIME = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})T(\d{2}):(\d{2}):(\d{2})(?:\.(\d+))?"
)  # of one clock, so the zone is the same


def _end(x: Exchange) -> float:
    chunks = x.response.chunks if x.response is not None else ()
    return _start(x) + (chunks[-1].arrival_time if chunks and _start(x) else 0.0)
