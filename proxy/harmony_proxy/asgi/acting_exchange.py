"""One exchange of an ASGI application whose route repairs or blocks: the layer between application and server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from harmony_proxy.capture.asgi_observer import Clock, Message, Receive, Send
from harmony_proxy.capture.recorder import End
from harmony_proxy.guard.guard import Guard
from harmony_proxy.judging.counters import Gauges
from harmony_proxy.policy.repair_interface import LARGE_BYTES

MANY_LINES = 1024
"""Lines of one chunk from which on it is examined in a thread: each may be an event."""

_Value = TypeVar("_Value")
_EXAMINERS = ThreadPoolExecutor(max_workers=1, thread_name_prefix="harmony-guard")  # more would only delay the traffic


async def _off_loop(examine: Callable[[], _Value]) -> _Value:
    """Call a function in a thread. A cancelled caller still waits for its end: the guard is not used by two callers at once."""
    call = asyncio.get_running_loop().run_in_executor(_EXAMINERS, examine)
    try:
        return await asyncio.shield(call)
    except asyncio.CancelledError:
        await asyncio.wait((call,))
        raise


class BlockedError(OSError):
    """Raised if the application continues a blocked response: the same type as for a client that has left."""


class InterceptedExchange:
    """One exchange that may be repaired or blocked. State: progress of the response, and whether it counts as held."""

    def __init__(self, guard: Guard, receive: Receive, send: Send, clock: Clock, gauges: Gauges) -> None:
        self.recorder = guard.recorder
        self._guard, self._gauges = guard, gauges
        self._receive, self._send, self._clock = receive, send, clock
        self._is_over = self._has_left = self._is_started = self._is_held = self._is_own_answer = False
        self._reported_end: tuple[End, str] | None = None
        self._stop_event = asyncio.Event()
        self._start: Message = {"type": "http.response.start"}
        self.started_at, self._begun = time.time(), clock()

    async def receive(self) -> Message:
        """Receive a message for the application; a disconnect once its response is blocked."""
        message_task, stop = asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._stop_event.wait())
        try:
            await asyncio.wait((message_task, stop), return_when=asyncio.FIRST_COMPLETED)
            if self._stop_event.is_set():
                return {"type": "http.disconnect"}
            message = message_task.result()
        finally:
            message_task.cancel()
            stop.cancel()
        if message["type"] == "http.request":
            self.recorder.is_partial = message.get("more_body", False)
            self._guard.request_body(message.get("body", b""))
        elif not self._is_over:
            self._has_left = True
        return message

    async def send(self, message: Message) -> None:
        """Pass a message of the application through the guard."""
        if self._stop_event.is_set():
            raise BlockedError("the answer was blocked")
        begun = self._now()
        match message["type"]:
            case _ if self._is_own_answer:
                await self._send(message)
            case "http.response.start":
                self._start = message
                head = message["status"], message.get("headers", ())
                if self._is_large():  # its request is read
                    await _off_loop(lambda: self._guard.response_head(*head))
                else:
                    self._guard.response_head(*head)
                self._count_held(self._guard.is_buffering)
                self.recorder.added_seconds += self._now() - begun
                await self._send_head()
            case "http.response.body":
                is_last = not message.get("more_body", False)
                data = message.get("body", b"")
                out = await self._feed(data, begun, is_last=is_last)
                if is_last and not self._guard.must_stop:
                    self._is_over = True
                    if self._has_left:  # an application may end its response even after a disconnect
                        self.recorder.abort(End.CLIENT_LEFT, "", begun)
                    if self._is_large():
                        out += (await _off_loop(lambda: self._guard.close(begun))).body
                    else:
                        out = [*out, *self._guard.close(begun).body]
                self.recorder.added_seconds += self._now() - begun
                await self._send_body(out, is_last=is_last or self._guard.must_stop)
            case _:
                await self._send(message)
        if self._guard.must_stop and not self._stop_event.is_set():
            self.recorder.abort(End.BLOCKED, "", self._now())
            self._is_over = True
            self._stop_event.set()

    def report_end(self, end: End, detail: str) -> None:
        """Record the end that the application reports. It sends its own response if the server has not begun one."""
        self._reported_end = end, detail
        self._is_own_answer = not self.recorder.has_status

    async def finish(self) -> None:
        """Handle the return of the application: if its response is truncated, send what the guard adds."""
        self._count_held(False)
        if self._is_over or self._is_own_answer or self._guard.must_stop:
            return
        end, detail = self._end()
        if self._is_large():
            closing = await _off_loop(lambda: self._guard.abort(end, detail, self._now()))
        else:
            closing = self._guard.abort(end, detail, self._now())
        if closing.body:
            await self._send_body(closing.body, is_last=closing.head is not None)

    def record_end(self) -> None:
        """Record the end after the application returned. Only the first end counts."""
        self._count_held(False)
        self.recorder.abort(*self._end(), self._now())

    def _end(self) -> tuple[End, str]:
        if self._reported_end is not None:
            return self._reported_end
        if self._has_left:
            return End.CLIENT_LEFT, ""
        return (End.CUT if self.recorder.has_status else End.RESET), ""

    async def _feed(self, data: bytes, begun: float, *, is_last: bool) -> list[bytes]:
        is_large = self._is_large(len(data)) and (is_last or self._guard.may_be_judged(data))
        if not (is_large or data.count(b"\n") >= MANY_LINES):
            return self._guard.feed(data, begun)
        return await _off_loop(lambda: self._guard.feed(data, begun))

    def _is_large(self, more: int = 0) -> bool:
        """Return True if examining the response with `more` bytes may take long enough to delay other exchanges."""
        return self.recorder.cost + more >= LARGE_BYTES

    def _now(self) -> float:
        return self._clock() - self._begun

    async def _send_head(self) -> None:
        head = self._guard.head
        if head is not None and not self._is_started:
            self._is_started = True
            self._count_held(False)
            if self.recorder.sent is not None:
                self.recorder.sent.head(head.status, head.headers)
            await self._send({**self._start, "status": head.status, "headers": list(head.headers)})

    async def _send_body(self, out: list[bytes], *, is_last: bool) -> None:
        body = b"".join(out)
        if body or is_last:
            await self._send_head()
            if self.recorder.sent is not None:
                self.recorder.sent.feed(body, self._now())
            await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    def _count_held(self, is_held: bool) -> None:
        if is_held is not self._is_held:
            self._is_held = is_held
            self._gauges.responses_buffered += 1 if is_held else -1
