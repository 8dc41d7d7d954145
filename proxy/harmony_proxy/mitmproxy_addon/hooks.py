"""The hooks of mitmproxy: observed traffic passes unchanged and at once; the guard repairs or blocks the rest.

This module works around properties of mitmproxy:

- A response streams only if `responseheaders` sets `flow.response.stream`. Then its head is sent at once.
- So a non-streaming response of an acting route does not stream; `response` changes it.
- An exception within the stream's callable silently drops the chunk, so it catches every exception.
- `b""` sent in the middle of a stream ends it for the client. To send nothing, the callable returns `[]`.
- The callable is called with `b""` at the end of the message, which is the last chance to send anything.
- It is not called when the client leaves or the server dies: mitmproxy then calls `error`, and not `response`.
- A flow may have no response at all, or one that another addon made.
- There is one event loop: slow work runs in another process, or in a thread that only its flow waits for.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from urllib.parse import unquote

from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.http import Headers, HTTPFlow, Response
from mitmproxy.net.http.status_codes import RESPONSES

from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.capture.routes import PathKind, classify_path, is_plain
from harmony_proxy.configuration import Rules
from harmony_proxy.guard.error_responses import OVERLOADED, UNKNOWN_PATH, overloaded_response, unguarded_response
from harmony_proxy.guard.guard import Guard
from harmony_proxy.guard.response_head import ResponseHead
from harmony_proxy.judging.counters import Gauges
from harmony_proxy.judging.judge_queue import JudgeQueue
from harmony_proxy.policy.repair_interface import LARGE_BYTES

_CLIENT_LEFT = "Client disconnected"
_ENDS_CHUNKS = b""
_SWITCHING_PROTOCOLS = 101
_HTTP_1 = ("HTTP/1.0", "HTTP/1.1")
_FRAMING = ("content-length", "transfer-encoding")
_clock = time.perf_counter


class _FlowState:
    """The guard of a flow, and the time at which its request was sent."""

    __slots__ = ("guard", "id", "is_buffered", "is_closed", "is_ended", "is_stopped", "sent_at", "started_at")

    def __init__(self, guard: Guard, name: str) -> None:
        self.guard, self.id = guard, name
        self.started_at, self.sent_at = time.time(), _clock()
        self.is_buffered = self.is_closed = self.is_stopped = self.is_ended = False

    def now(self) -> float:
        """Return the seconds since the request was sent."""
        return _clock() - self.sent_at

    def finish_buffered(self, body: bytes) -> tuple[ResponseHead | None, bytes]:
        """Return the head and body for the client of a response that was buffered until it was complete."""
        begun = self.now()
        out = self.guard.feed(body, begun) if body else []
        if not self.guard.must_stop:
            out = [*out, *self.guard.close(begun).body]
        recorder, head, sent = self.guard.recorder, self.guard.head, b"".join(out)
        recorder.added_seconds += self.now() - begun
        if recorder.sent is not None and head is not None:
            recorder.sent.head(head.status, head.headers)
            recorder.sent.feed(sent, self.now())
        return head, sent


class ConformanceAddon:
    """Guards flows, in reverse and in regular mode. `prefix` is put before each path, for an upstream URL with a path."""

    def __init__(self, queue: JudgeQueue, *, rules: Rules | None = None, prefix: str = "") -> None:
        self.rules = rules or Rules()
        self._queue, self._prefix = queue, prefix
        self._flows: dict[str, _FlowState] = {}
        self._run = os.urandom(4).hex()
        self.gauges = Gauges()

    @contextmanager
    def _counting_problems(self) -> Generator[None]:
        """Count an internal error instead of raising it: it must not affect the traffic."""
        try:
            yield
        except Exception:  # noqa: BLE001 - as above
            self._queue.count_problem()

    def __len__(self) -> int:
        return len(self._flows)

    def requestheaders(self, flow: HTTPFlow) -> None:
        """Start the request."""
        request, path = flow.request, flow.request.path
        if self._refuses_unknown(request.method, unquote(path.partition("?")[0])):
            self._refuse(flow, unguarded_response(), UNKNOWN_PATH)
            return
        if self._prefix:
            request.path = self._prefix + path
        with self._counting_problems():
            name = self._next_id()
            guard = Guard(self.rules.policy, request_id=name, memory=self._queue.memory, handlers=self.rules.handlers)
            fields = request.headers.fields
            headers = tuple(guard.request_head(request.method, path, fields))
            if self._queue.captures and not guard.observes:
                guard.recorder.record_sent()
            if guard.fails_closed and self._queue.memory.is_exhausted:
                self._refuse(flow, overloaded_response(), OVERLOADED, name)
                return
            state = self._flows[flow.id] = _FlowState(guard, name)
            if headers != fields:
                request.headers = Headers(headers)
            if request.stream or ctx.options.stream_large_bodies:

                def record(data: bytes) -> bytes | list[bytes]:
                    state.guard.request_body(data)
                    return data or []

                request.stream = record

    def _refuses_unknown(self, method: str, path: str) -> bool:
        """Count a request on an unknown path, and return True if the policy refuses it."""
        if classify_path(method, path) is not PathKind.UNKNOWN:
            return False
        is_refused = self.rules.policy.refuses_unknown(path if is_plain(path) else "")
        self.gauges.unknown_refused += is_refused
        self.gauges.unknown_passed += not is_refused
        return is_refused

    def _refuse(self, flow: HTTPFlow, answer: tuple[ResponseHead, bytes], why: str, name: str = "") -> None:
        """Answer a request with an error, and log it."""
        head, body = answer
        flow.response = Response.make(head.status, body, head.headers)
        recorder = Recorder()
        recorder.response_head(head.status, ())
        recorder.abort(End.REFUSED, why, 0.0)
        self._queue.enqueue(recorder.pack(name or self._next_id(), time.time()), recorder.cost)
        self.gauges.exchanges_ended += 1

    def _next_id(self) -> str:
        self.gauges.exchanges_started += 1
        return f"{self._run}-{self.gauges.exchanges_started}"

    def request(self, flow: HTTPFlow) -> None:
        """Record the request, which is complete and about to be sent."""
        if (state := self._flows.get(flow.id)) is None:
            return
        state.sent_at = _clock()
        if not flow.request.stream:
            state.guard.request_body(flow.request.raw_content or b"")

    def responseheaders(self, flow: HTTPFlow) -> Awaitable[None] | None:
        """Let the response stream, unless it is buffered."""
        response = flow.response
        if response is None:
            return None
        if response.raw_content is not None:  # not from a server: an addon made it
            if (state := self._flows.pop(flow.id, None)) is not None:
                self.gauges.exchanges_ended += 1
                state.guard.recorder.release()
            return None
        if (state := self._flows.get(flow.id)) is None:
            response.stream = True
            return None
        if not state.guard.observes and state.guard.recorder.cost >= LARGE_BYTES:
            return asyncio.to_thread(self._begin_safely, flow, response, state)  # its request is read
        self._begin_safely(flow, response, state)
        return None

    def _begin_safely(self, flow: HTTPFlow, response: Response, state: _FlowState) -> None:
        try:
            self._begin(flow, response, state)
        except Exception:  # noqa: BLE001 - as above
            self._queue.count_problem()
            response.stream = self._tee(state)

    def response(self, flow: HTTPFlow) -> Awaitable[None] | None:
        """Finish a response that is complete: sent, or buffered."""
        if (state := self._flows.get(flow.id)) is None:
            return None
        if state.is_buffered:
            return self._release(flow, state)
        if not state.is_closed:
            state.guard.close(state.now())
        if state.is_ended and flow.killable:
            # the end came in the same packet as the blocked part: mitmproxy would send the last chunk twice
            flow.kill()
        self._finish(flow)
        return None

    def error(self, flow: HTTPFlow) -> None:
        """Handle a disconnect of the client, or a connection error of the server."""
        if (state := self._flows.get(flow.id)) is None:
            return
        with self._counting_problems():
            state.guard.abort(*_end_of(flow), state.now())
        self._finish(flow)

    def shut_down(self) -> None:
        """Enqueue the exchanges that are still open."""
        for state in tuple(self._flows.values()):
            state.guard.abort(End.SHUT_DOWN, "", state.now())
            self._enqueue(state)
        self._flows.clear()

    def _begin(self, flow: HTTPFlow, response: Response, state: _FlowState) -> None:
        guard = state.guard
        head = guard.response_head(response.status_code, response.headers.fields)
        if response.status_code == _SWITCHING_PROTOCOLS:
            return
        if guard.observes:
            response.stream = self._tee(state)
            return
        state.is_buffered = head is None
        self.gauges.responses_buffered += state.is_buffered
        if head is None:
            response.stream = False
            return
        _set_head(flow, response, head)
        if guard.recorder.sent is not None:
            guard.recorder.sent.head(head.status, head.headers)
        if flow.request.http_version in _HTTP_1:
            # A block closes both connections: without this header the client may send its next request on a closing one.
            response.headers["connection"] = "close"
        response.stream = self._stream_callback(flow, state)

    def _tee(self, state: _FlowState) -> Callable[[bytes], bytes | list[bytes]]:
        recorder, sent, problem = state.guard.recorder, state.sent_at, self._queue.count_problem

        def tee(data: bytes) -> bytes | list[bytes]:
            try:
                recorder.feed(data, _clock() - sent)
            except Exception:  # noqa: BLE001 - an exception here would drop this chunk
                problem()
            return data or []

        return tee

    def _stream_callback(self, flow: HTTPFlow, state: _FlowState) -> Callable[[bytes], list[bytes]]:
        guard = state.guard

        def act(data: bytes) -> list[bytes]:
            if state.is_closed:
                return [data] if data and not guard.must_stop else []
            begun = state.now()
            state.is_closed = not data
            try:
                pieces = guard.feed(data, begun) if data else guard.close(begun).body
            except Exception:  # noqa: BLE001 - as above; the guard itself never raises
                self._queue.count_problem()
                return [data] if data else []
            out = [piece for piece in pieces if piece]
            if guard.recorder.sent is not None:
                guard.recorder.sent.feed(b"".join(out), begun)
            guard.recorder.added_seconds += state.now() - begun
            if guard.must_stop and not state.is_stopped:
                state.is_stopped = True
                guard.recorder.abort(End.BLOCKED, "", begun)
                if data and self._abort(flow):
                    state.is_ended = True
                    out.append(_ENDS_CHUNKS)  # nothing after it: the connection is closed with the server's
            return out

        return act

    def _abort(self, flow: HTTPFlow) -> bool:
        with self._counting_problems():  # without an abort the rest of the response is discarded
            return abort_server(flow)
        return False

    async def _release(self, flow: HTTPFlow, state: _FlowState) -> None:
        response = flow.response
        try:
            with self._counting_problems():
                if response is not None:
                    head, body = await asyncio.to_thread(state.finish_buffered, response.raw_content or b"")
                    if head is not None:
                        _set_head(flow, response, head)
                        response.raw_content = body
        finally:
            self._finish(flow)

    def _finish(self, flow: HTTPFlow) -> None:
        if (state := self._flows.pop(flow.id, None)) is not None:
            self._enqueue(state)

    def _enqueue(self, state: _FlowState) -> None:
        self.gauges.exchanges_ended += 1
        self.gauges.responses_buffered -= state.is_buffered
        with self._counting_problems():
            for _ in range(state.guard.problems):
                self._queue.count_problem()
            recorder = state.guard.recorder
            self._queue.enqueue(recorder.pack(state.id, state.started_at), recorder.cost)
            recorder.release()


def abort_server(flow: HTTPFlow) -> bool:
    """Abort the server's connection, so that it stops generating. Return True if that was possible.

    mitmproxy has no public API for this; tested with 12.2.3. Over HTTP/2 it would abort other streams too, so
    there it does nothing.
    """
    if flow.response is None or flow.response.is_http2 or flow.response.is_http3:
        return False
    server: object = ctx.master.addons.get("proxyserver")
    if not isinstance(server, Proxyserver):
        return False
    for handler in server.connections.values():
        task = getattr(handler.transports.get(flow.server_conn), "handler", None)
        if isinstance(task, asyncio.Task):
            return task.cancel("the answer was blocked")
    return False


def _set_head(flow: HTTPFlow, response: Response, head: ResponseHead) -> None:
    """Set the head for the client. A body of unknown length is sent in chunks."""
    was_framed = any(name in response.headers for name in _FRAMING)
    if head.status != response.status_code:
        response.status_code = head.status
        response.reason = RESPONSES.get(head.status, "")
        response.trailers = None
    response.headers = Headers(head.headers)
    is_framed = any(name in response.headers for name in _FRAMING)
    if was_framed and not is_framed and flow.request.http_version == "HTTP/1.1":
        response.headers["transfer-encoding"] = "chunked"


def _end_of(flow: HTTPFlow) -> tuple[End, str]:
    detail = " ".join((flow.error.msg if flow.error is not None else "").split())
    if detail.startswith(_CLIENT_LEFT):
        return End.CLIENT_LEFT, detail
    if flow.response is not None:
        return End.CUT, detail
    return (End.NO_CONNECTION if flow.server_conn.timestamp_tcp_setup is None else End.RESET), detail
