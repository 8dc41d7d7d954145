"""The hooks of mitmproxy: observed traffic passes unchanged and at once; what a policy acts on is held or changed by the guard. Judged is elsewhere.

What mitmproxy does decides the form of this module:

- a response streams only if `flow.response.stream` is set in `responseheaders`, and then its head is gone: an answer in one piece that is acted on does not
  stream, and is changed in `response`;
- an exception within the stream's callable would drop that chunk silently, so nothing may escape from it;
- `b""` sent in the middle of a stream ends it for the client: nothing to send is `[]`;
- the callable is called with `b""` at the end of the message, which is the last chance to send anything;
- it is not called when the client leaves or the server dies: then there is the `error` hook, and no `response`;
- a flow may have no response at all, or one that an addon made;
- there is one event loop: whatever takes time is done in another process, or in a thread that the flow waits for and nobody else.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable

from mitmproxy import ctx
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.http import Headers, HTTPFlow, Response
from mitmproxy.net.http.status_codes import RESPONSES

from harmony_proxy.capture.recorder import End
from harmony_proxy.configuration import Rules
from harmony_proxy.guard.guard import Guard
from harmony_proxy.guard.response_head import ResponseHead
from harmony_proxy.judging.judge_queue import JudgeQueue

_CLIENT_LEFT = "Client disconnected"
_ENDS_CHUNKS = b""
_SWITCHING_PROTOCOLS = 101
_HTTP_1 = ("HTTP/1.0", "HTTP/1.1")
_FRAMING = ("content-length", "transfer-encoding")
_clock = time.perf_counter


class _Watched:
    """A flow's guard, and when its request was sent."""

    __slots__ = ("guard", "id", "is_closed", "is_ended", "is_held", "is_stopped", "sent", "started")

    def __init__(self, guard: Guard, name: str) -> None:
        self.guard = guard
        self.id = name
        self.started = time.time()
        self.sent = _clock()
        self.is_held = self.is_closed = self.is_stopped = self.is_ended = False

    def now(self) -> float:
        """Seconds since the request was sent."""
        return _clock() - self.sent

    def whole(self, body: bytes) -> tuple[ResponseHead | None, bytes]:
        """What becomes of an answer that was held."""
        begun = self.now()
        out = self.guard.feed(body, begun) if body else []
        if not self.guard.must_stop:
            out = [*out, *self.guard.close(begun).body]
        self.guard.recorder.added += self.now() - begun
        return self.guard.head, b"".join(out)


class ConformanceAddon:
    """Watches flows, in reverse and in regular mode. `prefix` is put before each path, for an upstream whose API does not begin at its root."""

    def __init__(self, handing: JudgeQueue, *, rules: Rules | None = None, prefix: str = "") -> None:
        self.rules = rules or Rules()
        self._handing = handing
        self._prefix = prefix
        self._flows: dict[str, _Watched] = {}
        self._run = os.urandom(4).hex()
        self._number = 0

    def __len__(self) -> int:
        """How many flows are going on."""
        return len(self._flows)

    def requestheaders(self, flow: HTTPFlow) -> None:
        """The request begins."""
        request, path = flow.request, flow.request.path
        if self._prefix:
            request.path = self._prefix + path
        try:
            self._number += 1
            name = f"{self._run}-{self._number}"
            guard = Guard(self.rules.policy, request_id=name, actors=self.rules.handlers)
            watched = self._flows[flow.id] = _Watched(guard, name)
            told = request.headers.fields
            headers = tuple(guard.request_head(request.method, path, told))
            if headers != told:
                request.headers = Headers(headers)
            if request.stream or ctx.options.stream_large_bodies:
                request.stream = self._noting(watched)
        except Exception:  # noqa: BLE001 - the traffic goes on whatever happens to us
            self._handing.problem()

    def request(self, flow: HTTPFlow) -> None:
        """The request is whole and about to be sent."""
        watched = self._flows.get(flow.id)
        if watched is None:
            return
        watched.sent = _clock()
        if not flow.request.stream:
            watched.guard.request_body(flow.request.raw_content or b"")

    def responseheaders(self, flow: HTTPFlow) -> None:
        """The response begins: let it stream, unless it has to be held."""
        response = flow.response
        if response is None:
            return
        if response.raw_content is not None:  # it is no server's: an addon answered
            self._flows.pop(flow.id, None)
            return
        watched = self._flows.get(flow.id)
        if watched is None:
            response.stream = True
            return
        try:
            self._begin(flow, response, watched)
        except Exception:  # noqa: BLE001 - as above
            self._handing.problem()
            response.stream = self._tee(watched)

    def response(self, flow: HTTPFlow) -> Awaitable[None] | None:
        """The response is complete: with the client, or held."""
        watched = self._flows.get(flow.id)
        if watched is None:
            return None
        if watched.is_held:
            return self._release(flow, watched)
        if not watched.is_closed:
            watched.guard.close(watched.now())
        if watched.is_ended and flow.killable:
            # the rest came together with what was blocked: mitmproxy would end the chunks once more
            flow.kill()  # type: ignore[no-untyped-call]
        self._over(flow)
        return None

    def error(self, flow: HTTPFlow) -> None:
        """The client left, or the server died, or was never there."""
        watched = self._flows.get(flow.id)
        if watched is None:
            return
        try:
            end, detail = _how_it_ended(flow)
            watched.guard.abort(end, detail, watched.now())
        except Exception:  # noqa: BLE001 - as above
            self._handing.problem()
        self._over(flow)

    def shut_down(self) -> None:
        """Hand over what was still going on."""
        for watched in tuple(self._flows.values()):
            watched.guard.abort(End.SHUT_DOWN, "", watched.now())
            self._hand_over(watched)
        self._flows.clear()

    def _begin(self, flow: HTTPFlow, response: Response, watched: _Watched) -> None:
        guard = watched.guard
        head = guard.response_head(response.status_code, response.headers.fields)
        if response.status_code == _SWITCHING_PROTOCOLS:
            return
        if guard.observes:
            response.stream = self._tee(watched)
            return
        watched.is_held = head is None
        if head is None:
            response.stream = False
            return
        _tell(flow, response, head)
        if flow.request.http_version in _HTTP_1:
            # where it is blocked, both connections are closed behind it: a client that was not told sends its next request on one that is going away
            response.headers["connection"] = "close"
        response.stream = self._acting(flow, watched)

    def _tee(self, watched: _Watched) -> Callable[[bytes], bytes | list[bytes]]:
        recorder, sent, problem = watched.guard.recorder, watched.sent, self._handing.problem

        def tee(data: bytes) -> bytes | list[bytes]:
            try:
                recorder.feed(data, _clock() - sent)
            except Exception:  # noqa: BLE001 - an exception here would cost the client this chunk
                problem()
            return data or []

        return tee

    def _acting(self, flow: HTTPFlow, watched: _Watched) -> Callable[[bytes], list[bytes]]:
        guard = watched.guard

        def act(data: bytes) -> list[bytes]:
            if watched.is_closed:
                return [data] if data and not guard.must_stop else []
            begun = watched.now()
            watched.is_closed = not data
            try:
                told = guard.feed(data, begun) if data else guard.close(begun).body
            except Exception:  # noqa: BLE001 - as above; the guard itself never raises
                self._handing.problem()
                return [data] if data else []
            out = [piece for piece in told if piece]
            guard.recorder.added += watched.now() - begun
            if guard.must_stop and not watched.is_stopped:
                watched.is_stopped = True
                guard.recorder.abort(End.BLOCKED, "", begun)
                if data and self._abort(flow):
                    watched.is_ended = True
                    out.append(_ENDS_CHUNKS)  # and nothing after it: the connection is closed with the server's
            return out

        return act

    def _abort(self, flow: HTTPFlow) -> bool:
        try:
            return abort_server(flow)
        except Exception:  # noqa: BLE001 - what is not there any more is done without: the rest is swallowed
            self._handing.problem()
            return False

    def _noting(self, watched: _Watched) -> Callable[[bytes], bytes | list[bytes]]:
        """Where mitmproxy streams requests, a copy of the body."""

        def note(data: bytes) -> bytes | list[bytes]:
            watched.guard.request_body(data)
            return data or []

        return note

    async def _release(self, flow: HTTPFlow, watched: _Watched) -> None:
        response = flow.response
        try:
            if response is not None:
                head, body = await asyncio.to_thread(watched.whole, response.raw_content or b"")
                if head is not None:
                    _tell(flow, response, head)
                    response.raw_content = body
        except Exception:  # noqa: BLE001 - as above
            self._handing.problem()
        finally:
            self._over(flow)

    def _over(self, flow: HTTPFlow) -> None:
        watched = self._flows.pop(flow.id, None)
        if watched is not None:
            self._hand_over(watched)

    def _hand_over(self, watched: _Watched) -> None:
        try:
            for _ in range(watched.guard.problems):
                self._handing.problem()
            recorder = watched.guard.recorder
            self._handing.hand_over(recorder.packed(watched.id, watched.started), recorder.cost)
        except Exception:  # noqa: BLE001 - as above
            self._handing.problem()


def abort_server(flow: HTTPFlow) -> bool:
    """Break off what the server still sends for a flow: it stops generating. Whether that could be done.

    mitmproxy has no public way; this one is tried against 11.0.2 and 12.2.3. Over HTTP/2 it would break off other streams as well, so it is not done.
    """
    if flow.response is None or flow.response.is_http2 or flow.response.is_http3:
        return False
    server: object = ctx.master.addons.get("proxyserver")  # type: ignore[no-untyped-call]  # pyright: ignore[reportUnknownMemberType]
    if not isinstance(server, Proxyserver):
        return False
    for handler in server.connections.values():  # pyright: ignore[reportUnknownMemberType]
        task = getattr(handler.transports.get(flow.server_conn), "handler", None)
        if isinstance(task, asyncio.Task):
            return task.cancel("the answer was blocked")  # pyright: ignore[reportUnknownMemberType]
    return False


def _tell(flow: HTTPFlow, response: Response, head: ResponseHead) -> None:
    """Give the client this head. Where the length is no longer known, the body goes in chunks."""
    was_framed = any(name in response.headers for name in _FRAMING)
    if head.status != response.status_code:
        response.status_code = head.status
        response.reason = RESPONSES.get(head.status, "")
        response.trailers = None
    response.headers = Headers(head.headers)
    is_framed = any(name in response.headers for name in _FRAMING)
    if was_framed and not is_framed and flow.request.http_version == "HTTP/1.1":
        response.headers["transfer-encoding"] = "chunked"


def _how_it_ended(flow: HTTPFlow) -> tuple[End, str]:
    detail = " ".join((flow.error.msg if flow.error is not None else "").split())
    if detail.startswith(_CLIENT_LEFT):
        return End.CLIENT_LEFT, detail
    if flow.response is not None:
        return End.CUT, detail
    connected = flow.server_conn.timestamp_tcp_setup is not None
    return (End.RESET if connected else End.NO_CONNECTION), detail
