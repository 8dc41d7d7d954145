"""`HarmonyGuard`: pure ASGI middleware around any application that serves gpt-oss.

    vllm serve openai/gpt-oss-20b --middleware harmony_proxy.asgi.HarmonyGuard   # settings: HARMONY_GUARD_*
    app.add_middleware(HarmonyGuard, policy="policy.toml", log="outcomes.jsonl")

See `configuration` for the settings. A route that observes records each exchange in one list, and enqueues it at its end
(see `observation`). Other routes buffer and change responses. If a response is blocked midway, the application sees a
client that disconnects.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from harmony_proxy.asgi.acting_exchange import InterceptedExchange
from harmony_proxy.capture.asgi_observer import (
    END_CALLBACK_KEY,
    App,
    Clock,
    Message,
    Observer,
    ObserverSettings,
    Receive,
    Scope,
    Send,
    close_note,
    end_callback,
    note_start,
)
from harmony_proxy.capture.recorder import HEADER_COST, LIMIT, End, Recorder
from harmony_proxy.capture.routes import PathKind, classify_path, is_plain
from harmony_proxy.configuration import InvalidSettingError, Rules, from_environment, load_rules
from harmony_proxy.guard.error_responses import OVERLOADED, UNKNOWN_PATH, overloaded_response, unguarded_response
from harmony_proxy.guard.guard import Guard
from harmony_proxy.guard.response_head import HeadTiming
from harmony_proxy.judging.counters import Gauges
from harmony_proxy.judging.judge_queue import LARGE_BYTES, JudgeQueue
from harmony_proxy.judging.judge_settings import EXCERPT_MODES

_BYPASSES = frozenset({"http.response.pathsend", "http.response.zerocopysend", "http.response.trailers"})
"""ASGI extensions that would bypass a guard that repairs or blocks."""

_POLICY_VIOLATION = 1008  # close code of WebSockets
_PATHS = 64  # largest number of cached paths


class HarmonyGuard:
    """ASGI middleware. Without arguments it is configured by the environment; arguments take precedence.

    Args:
        app: The application.
        policy: `Rules` made by `configuration.load_rules`, or a TOML file. Default: observe.
        log: The outcome log; default: none.
        excerpts: Traffic quoted in the log: `none`, `redacted`, `full`.
        capture: Samples of failing exchanges, and before and after of repairs, in the log: `none`, `redacted`, `full`.
        queue: The queue for finished exchanges; default: one with a judge process.
        limit: Memory limit for one exchange, in bytes.
        clock: Returns seconds; one other than `time.perf_counter` requires a custom reader of the queue.

    Raises:
        InvalidSettingError: a setting is invalid.
    """

    def __init__(  # noqa: PLR0913 - all have a default
        self,
        app: App,
        *,
        policy: Rules | str | Path | None = None,
        log: str | Path | None = None,
        excerpts: str | None = None,
        capture: str | None = None,
        queue: JudgeQueue | None = None,
        limit: int = LIMIT,
        clock: Clock = time.perf_counter,
    ) -> None:
        self._app = app
        environment = from_environment(os.environ)
        loaded = load_rules(Path(policy)) if isinstance(policy, str | Path) else policy
        self._rules = environment.rules if loaded is None else loaded
        if self._rules.empty_file is not None and not isinstance(policy, Rules):  # the command warns itself
            sys.stderr.write(f"harmony guard: {self._rules.empty_file} is empty, so every check is observed\n")
        for name, mode in (("excerpts", excerpts), ("capture", capture)):
            if mode is not None and mode not in EXCERPT_MODES:
                raise InvalidSettingError(f"invalid {name}: expected one of {', '.join(EXCERPT_MODES)}, got {mode!r}")
        self._observes = self._rules.policy.observes
        self._limit, self._clock = limit, clock
        options: dict[str, Any] = {
            "log": Path(log) if log is not None else None,
            "excerpts": excerpts,
            "capture": capture,
        }
        changes = {name: value for name, value in options.items() if value is not None}
        self._queue = queue or JudgeQueue(
            replace(environment.judging, **changes),
            memory_limit=self._rules.memory_limit or environment.rules.memory_limit,
        )
        self._memory = self._queue.memory
        self._run = os.urandom(4).hex()
        self._app_reports_end = getattr(app, "reports_end", False)
        self._starts: dict[str, bytes] = {}  # first value of a note, by path; only observed paths of a supported API
        self._next_pack_at = 1  # number of ended exchanges at which to pack the queue
        self._terms = ObserverSettings(clock, limit, self._queue.count_problem, self._memory)
        self.gauges = Gauges()
        self._metrics = environment.metrics
        self._is_started = False

    @property
    def queue(self) -> JudgeQueue:
        """The queue for finished exchanges."""
        return self._queue

    @property
    def rules(self) -> Rules:
        """The rules in force."""
        return self._rules

    def use_rules(self, rules: Rules) -> None:
        """Apply other rules to requests from now on. Open exchanges keep theirs, and the memory limit stays."""
        self._rules = replace(rules, memory_limit=self._rules.memory_limit)
        self._observes = rules.policy.observes
        self._starts.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI scope."""
        try:
            start = self._starts[scope["path"]] if scope["method"] == "POST" else None
            query = scope["query_string"]
        except KeyError:  # a path that is not cached, or not an HTTP request
            start, query = None, b""
        if start is None:
            await self._serve_uncached(scope, receive, send)
            return
        observer = Observer()
        observer.server_receive = receive
        observer.server_send = send
        observer.terms = terms = self._terms
        observer.used_bytes = HEADER_COST
        observer.granted_bytes = terms.first_bytes
        clock, gauges = self._clock, self.gauges
        gauges.exchanges_started = number = gauges.exchanges_started + 1
        observer.note = note = [start + b"?" + query if query else start, number, scope["headers"], clock()]
        if self._app_reports_end:
            scope[END_CALLBACK_KEY] = end_callback(note, clock)
        app = self._app
        try:
            await app(scope, observer.receive, observer.send)
        except asyncio.CancelledError:
            end_callback(note, clock)(End.SHUT_DOWN, "")
            raise
        finally:
            gauges.exchanges_ended = ended = gauges.exchanges_ended + 1
            if note[-1] is not None:
                close_note(note, clock)
            queue = self._queue
            queue.finished_exchanges.append(note)
            if ended >= self._next_pack_at or observer.used_bytes >= LARGE_BYTES:
                self._next_pack_at = ended + queue.pack()
                observer.release()
            if self._app_reports_end:
                scope.pop(
                    END_CALLBACK_KEY, None
                )  # it references the note, and servers retain a scope until the next request

    async def _serve_uncached(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a scope that is not observed, or the first one on an observed path."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, self._close_at_shutdown(send))
            return
        kind = classify_path(scope.get("method", scope["type"]), scope["path"])
        if kind is not PathKind.GUARDED:
            await self._serve_unguarded(scope, receive, send, kind)
            return
        if not self._is_started:
            self.start()
        if not self._observes:
            await self._serve_intercepted(scope, receive, send)
            return
        if len(self._starts) >= _PATHS:
            self._starts.clear()
        self._starts[scope["path"]] = note_start(self._run, scope["path"])
        scope.setdefault("query_string", b"")
        await self(scope, receive, send)

    async def _serve_unguarded(self, scope: Scope, receive: Receive, send: Send, kind: PathKind) -> None:
        path: str = scope["path"]
        if kind is PathKind.UNKNOWN:
            if self._rules.policy.refuses_unknown(path if is_plain(path) else ""):
                self.gauges.unknown_refused += 1
                await self._refuse_unknown(scope["type"], send)
                return
            self.gauges.unknown_passed += 1
        await self._app(scope, receive, send)

    async def _refuse_unknown(self, kind: str, send: Send) -> None:
        head, body = unguarded_response()
        self.refused(head.status, End.REFUSED, UNKNOWN_PATH)
        if kind == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION})
            return
        await send({"type": "http.response.start", "status": head.status, "headers": list(head.headers)})
        await send({"type": "http.response.body", "body": body})

    def start(self) -> None:
        """Start the judge. The first exchange does it: a server may create the guard in one process and serve in others."""
        self._is_started = True
        self._queue.start()
        if self._metrics is not None:
            from harmony_proxy.judging.metrics import serve_metrics  # noqa: PLC0415 - requires prometheus_client, an extra

            try:
                serve_metrics(self._metrics, self._queue, self.gauges)
            except OSError as problem:  # another process of the same server may have the port: traffic continues
                host, port = self._metrics
                sys.stderr.write(f"harmony guard: no metrics at {host}:{port}: {problem.strerror or problem}\n")

    async def _serve_intercepted(self, scope: Scope, receive: Receive, send: Send) -> None:
        name = self._next_id()
        guard = Guard(
            self._rules.policy,
            request_id=name,
            limit=self._limit,
            memory=self._memory,
            handlers=self._rules.handlers,
            head_timing=HeadTiming.WITH_BYTES,
        )
        query: bytes = scope.get("query_string") or b""  # it may contain a key that the server echoes
        path: str = f"{scope['path']}?{query.decode('latin-1')}" if query else scope["path"]
        headers = list(guard.request_head(scope["method"], path, scope["headers"]))
        if self._queue.captures and not guard.observes:
            guard.recorder.record_sent()
        if guard.fails_closed and self._memory.is_exhausted:
            await self._refuse_for_memory(send)
            return
        acting = InterceptedExchange(guard, receive, send, self._clock, self.gauges)
        inner = {**scope, "headers": headers, END_CALLBACK_KEY: acting.report_end}
        extensions: dict[str, object] = scope.get("extensions") or {}
        inner["extensions"] = {name: value for name, value in extensions.items() if name not in _BYPASSES}
        try:
            await self._app(inner, acting.receive, acting.send)
        except asyncio.CancelledError:
            acting.report_end(End.SHUT_DOWN, "")
            raise
        except Exception:
            if not guard.must_stop:
                await acting.finish()
                raise
        else:
            await acting.finish()
        finally:
            self.gauges.exchanges_ended += 1
            acting.record_end()
            for _ in range(guard.problems):
                self._queue.count_problem()
            recorder = acting.recorder
            self._queue.enqueue(recorder.pack(name, acting.started_at), recorder.cost)
            recorder.release()

    async def _refuse_for_memory(self, send: Send) -> None:
        head, body = overloaded_response()
        self.refused(head.status, End.REFUSED, OVERLOADED)
        self.gauges.exchanges_ended += 1  # `refused` counts another one as started
        await send({"type": "http.response.start", "status": head.status, "headers": list(head.headers)})
        await send({"type": "http.response.body", "body": body})

    def refused(self, status: int, end: End, why: str) -> None:
        """Count and log a request that was refused, by the standalone server or by its path."""
        recorder = Recorder()
        recorder.response_head(status, ())
        recorder.abort(end, why, 0.0)
        self._queue.enqueue(recorder.pack(self._next_id(), time.time()), recorder.cost)
        self.gauges.exchanges_ended += 1

    def _next_id(self) -> str:
        self.gauges.exchanges_started += 1
        return f"{self._run}-{self.gauges.exchanges_started}"

    def _close_at_shutdown(self, send: Send) -> Send:
        async def send_and_close(message: Message) -> None:
            if message["type"] == "lifespan.shutdown.complete":
                await asyncio.to_thread(self._queue.close)
            await send(message)

        return send_and_close
