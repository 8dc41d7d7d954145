"""One exchange of an ASGI application that is acted on: what stands between it and its server."""

from __future__ import annotations

import asyncio
import time

from harmony_proxy.capture.observation import Clock, Message, Receive, Send
from harmony_proxy.capture.recorder import End, Recorder
from harmony_proxy.guard.guard import Guard
from harmony_proxy.judging.counters import Gauges


class BlockedError(OSError):
    """What an application gets that goes on with an answer that was blocked: the same as from a client that has left."""


def _how_it_broke(recorder: Recorder, *, has_left: bool) -> End:
    if has_left:
        return End.CLIENT_LEFT
    return End.CUT if recorder.has_status else End.RESET


class ActingExchange:
    """One exchange that is acted on. State: whether the client has had the head, whether it was blocked or is over or is counted as held."""

    def __init__(self, guard: Guard, receive: Receive, send: Send, clock: Clock, gauges: Gauges) -> None:
        self.recorder = guard.recorder
        self._guard = guard
        self._receive, self._send, self._clock = receive, send, clock
        self._gauges = gauges
        self._is_over = self._has_left = self._is_started = self._is_held = self._is_ours = False
        self._broken: tuple[End, str] | None = None
        self._stopped = asyncio.Event()
        self._kind: Message = {"type": "http.response.start"}
        self.started = time.time()
        self._begun = clock()

    async def receive(self) -> Message:
        """What the application asks for; once its answer is blocked, that the client has left."""
        asked, stop = asyncio.ensure_future(self._receive()), asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((asked, stop), return_when=asyncio.FIRST_COMPLETED)
            if self._stopped.is_set():
                return {"type": "http.disconnect"}
            message = asked.result()
        finally:
            asked.cancel()
            stop.cancel()
        if message["type"] == "http.request":
            self.recorder.is_partial = message.get("more_body", False)
            self._guard.request_body(message.get("body", b""))
        elif not self._is_over:
            self._has_left = True
        return message

    async def send(self, message: Message) -> None:
        """What the application sends: what the guard makes of it."""
        if self._stopped.is_set():
            raise BlockedError("the answer was blocked")
        begun = self._now()
        match message["type"]:
            case _ if self._is_ours:
                await self._send(message)
            case "http.response.start":
                self._kind = message
                self._guard.response_head(message["status"], message.get("headers", ()))
                self._count_held(self._guard.is_holding)
                self.recorder.added += self._now() - begun
                await self._begin()
            case "http.response.body":
                out = self._guard.feed(message.get("body", b""), begun)
                is_last = not message.get("more_body", False)
                if is_last and not self._guard.must_stop:
                    self._is_over = True
                    if self._has_left:  # an application that has heard so may end its answer all the same
                        self.recorder.abort(End.CLIENT_LEFT, "", begun)
                    out = [*out, *self._guard.close(begun).body]
                self.recorder.added += self._now() - begun
                await self._give(out, is_last=is_last or self._guard.must_stop)
            case _:
                await self._send(message)
        if self._guard.must_stop and not self._stopped.is_set():
            self.recorder.abort(End.BLOCKED, "", self._now())
            self._is_over = True
            self._stopped.set()

    def ended(self, end: End, detail: str) -> None:
        """The application knows how it ended, and answers itself where the server did not."""
        self._broken = end, detail
        self._is_ours = not self.recorder.has_status

    async def finish(self) -> None:
        """The application is done. If its answer is not, the client is told so."""
        self._count_held(False)
        if self._is_over or self._is_ours or self._guard.must_stop:
            return
        end, detail = self._broken or (_how_it_broke(self.recorder, has_left=self._has_left), "")
        closing = self._guard.abort(end, detail, self._now())
        if closing.body:
            await self._give(closing.body, is_last=closing.head is not None)

    def broke_off(self) -> None:
        """The application is done; how it ended was told, or is plain. Only the first end counts."""
        self._count_held(False)
        end, detail = self._broken or (_how_it_broke(self.recorder, has_left=self._has_left), "")
        self.recorder.abort(end, detail, self._now())

    def _now(self) -> float:
        return self._clock() - self._begun

    async def _begin(self) -> None:
        head = self._guard.head
        if head is not None and not self._is_started:
            self._is_started = True
            self._count_held(False)
            await self._send({**self._kind, "status": head.status, "headers": list(head.headers)})

    async def _give(self, out: list[bytes], *, is_last: bool) -> None:
        body = b"".join(out)
        if body or is_last:
            await self._begin()
            await self._send({"type": "http.response.body", "body": body, "more_body": not is_last})

    def _count_held(self, is_held: bool) -> None:
        if is_held is not self._is_held:
            self._is_held = is_held
            self._gauges.held += 1 if is_held else -1
