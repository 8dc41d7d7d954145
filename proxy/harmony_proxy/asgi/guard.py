"""`HarmonyGuard`: a pure ASGI class around any application that serves gpt-oss.

    vllm serve openai/gpt-oss-20b --middleware harmony_proxy.asgi.HarmonyGuard        settings: HARMONY_GUARD_* (see `loading`)
    app.add_middleware(HarmonyGuard, policy="policy.toml", log="outcomes.jsonl")

Observing, it notes what goes by in one list, and puts that into a queue when it is over (see `noting`). Acting, it holds
and changes what the policy says; an answer that is blocked in its middle ends for the application as if the client had left.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import replace
from pathlib import Path

from harmony_proxy.asgi.acting_exchange import ActingExchange
from harmony_proxy.capture.observation import (
    ENDED,
    App,
    Clock,
    Message,
    Observer,
    Receive,
    Scope,
    Send,
    Terms,
    close_note,
    ending,
    place,
)
from harmony_proxy.capture.recorder import HEADER_COST, LIMIT, End, Recorder
from harmony_proxy.capture.routes import api_of
from harmony_proxy.configuration import Configuration, Rules, from_environment, load_rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.guard.response_head import ResponseHeads
from harmony_proxy.judging.counters import Gauges
from harmony_proxy.judging.judge_queue import LARGE_BYTES, JudgeQueue
from harmony_proxy.judging.judge_settings import JudgeSettings
from harmony_proxy.policy.policy import Policy

_PAST_US = frozenset({"http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"})
"""Ways of answering that would go past a guard that acts."""

_PATHS = 64
"""How many are remembered."""


class HarmonyGuard:
    """Around an application. Without arguments the environment says what it is set to; what is given is set so.

    Args:
        app: the application.
        policy: a `Policy` made by `loading.load_rules`, as `Rules`, or a TOML file. Default: observe.
        log: the outcome log; default: none.
        excerpts: what of the traffic the findings in it quote: `none`, `redacted`, `full`.
        capture: whether it holds samples of failing exchanges: `none`, `redacted`, `full`.
        handing: what exchanges are handed to; default: a process of its own that judges them.
        limit: the most that is kept of one exchange, in bytes.
        clock: seconds since whenever; another one than that of `time.perf_counter` is for who reads what is handed over himself.

    Raises:
        BadSetting: it is set to what cannot be.
    """

    def __init__(  # noqa: PLR0913 - all have a default
        self,
        app: App,
        *,
        policy: Rules | str | Path | None = None,
        log: str | Path | None = None,
        excerpts: str | None = None,
        capture: str | None = None,
        handing: JudgeQueue | None = None,
        limit: int = LIMIT,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._app = app
        told = from_environment(os.environ)
        rules = policy if isinstance(policy, Rules) else load_rules(Path(policy)) if policy is not None else told.rules
        self._rules = rules
        self._policy: Policy = rules.policy
        self._observes = rules.policy.observes
        self._limit = limit
        self._clock = clock
        self._handing = handing or JudgeQueue(_judging(told, log, excerpts, capture))
        self._run = os.urandom(4).hex()
        self._is_told = getattr(app, "tells_its_end", False)
        self._ours: dict[str, bytes] = {}  # where we observe: paths of an API of ours, seen before, as they are noted
        self._due = 1  # so many are over when what waits is packed
        self._terms = Terms(clock, limit, self._handing.problem)
        self.gauges = Gauges()
        self._metrics = told.metrics
        self._is_started = False

    @property
    def handing(self) -> JudgeQueue:
        """What exchanges are handed to."""
        return self._handing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection's scope."""
        try:
            where = self._ours[scope["path"]] if scope["method"] == "POST" else None
            query = scope["query_string"]
        except KeyError:  # a path that was not seen before, or no request at all
            where, query = None, b""
        if where is None:
            await self._served(scope, receive, send)
            return
        noting = Observer()
        noting.asked = receive
        noting.sent = send
        noting.terms = self._terms
        noting.used = HEADER_COST
        clock, gauges = self._clock, self.gauges
        gauges.begun = number = gauges.begun + 1
        noting.note = note = [where + b"?" + query if query else where, number, scope["headers"], clock()]
        if self._is_told:
            scope[ENDED] = ending(note, clock)
        app = self._app
        try:
            await app(scope, noting.receive, noting.send)
        except asyncio.CancelledError:
            ending(note, clock)(End.SHUT_DOWN, "")
            raise
        finally:
            gauges.ended = ended = gauges.ended + 1
            if note[-1] is not None:
                close_note(note, clock)
            handing = self._handing
            handing.over.append(note)
            if ended >= self._due or noting.used >= LARGE_BYTES:
                self._due = ended + handing.pack()
            if self._is_told:
                scope.pop(ENDED, None)  # which holds the note, and servers keep a scope until the next request

    async def _served(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What is not observed, and the first on each path of what is."""
        if scope["type"] != "http" or scope["method"] != "POST" or not api_of(scope["path"]):
            is_life = scope["type"] == "lifespan"
            await self._app(scope, receive, self._until_shut_down(send) if is_life else send)
            return
        if not self._is_started:
            self.start()
        if not self._observes:
            await self._acted(scope, receive, send)
            return
        if len(self._ours) >= _PATHS:
            self._ours.clear()
        self._ours[scope["path"]] = place(self._run, scope["path"])
        scope.setdefault("query_string", b"")
        await self(scope, receive, send)

    def start(self) -> None:
        """Begin to judge. The first exchange does so: a server may make us in one process and serve in others."""
        self._is_started = True
        self._handing.start()
        if self._metrics is not None:
            from harmony_proxy.judging.metrics import serve_metrics  # noqa: PLC0415 - needs prometheus_client, which few have

            serve_metrics(self._metrics, self._handing, self.gauges)

    async def _acted(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = self._name()
        guard = Guard(
            self._policy,
            request_id=name,
            limit=self._limit,
            actors=self._rules.handlers,
            heads=ResponseHeads.WITH_BYTES,
        )
        headers = list(guard.request_head(scope["method"], _asked(scope), scope["headers"]))
        acting = ActingExchange(guard, receive, send, self._clock, self.gauges)
        inner = {**scope, "headers": headers, ENDED: acting.ended}
        told: dict[str, object] = scope.get("extensions") or {}
        inner["extensions"] = {name: value for name, value in told.items() if name not in _PAST_US}
        try:
            await self._app(inner, acting.receive, acting.send)
        except asyncio.CancelledError:
            acting.ended(End.SHUT_DOWN, "")
            raise
        except Exception:
            if not guard.must_stop:
                await acting.finish()
                raise
        else:
            await acting.finish()
        finally:
            self.gauges.ended += 1
            acting.broke_off()
            for _ in range(guard.problems):
                self._handing.problem()
            recorder = acting.recorder
            self._handing.hand_over(recorder.packed(name, acting.started), recorder.cost)

    def refused(self, status: int, end: End, why: str) -> None:
        """A server of ours refused a request before we were asked: it is counted and logged, and nothing of it is known."""
        recorder = Recorder()
        recorder.response_head(status, ())
        recorder.abort(end, why, 0.0)
        self._handing.hand_over(recorder.packed(self._name(), time.time()), recorder.cost)
        self.gauges.ended += 1

    def _name(self) -> str:
        self.gauges.begun += 1
        return f"{self._run}-{self.gauges.begun}"

    def _until_shut_down(self, send: Send) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "lifespan.shutdown.complete":
                await asyncio.to_thread(self._handing.close)
            await send(message)

        return sending


def _asked(scope: Scope) -> str:
    """The path, and the query, which may hold a key that the server echoes."""
    query: bytes = scope.get("query_string") or b""
    path: str = scope["path"]
    return f"{path}?{query.decode('latin-1')}" if query else path


def _judging(told: Configuration, log: str | Path | None, excerpts: str | None, capture: str | None) -> JudgeSettings:
    return replace(
        told.judging,
        log=Path(log) if log is not None else told.judging.log,
        excerpts=excerpts if excerpts is not None else told.judging.excerpts,
        capture=capture if capture is not None else told.judging.capture,
    )
