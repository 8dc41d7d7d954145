"""Server behind the proxies, with minimal work, and with faults that the question requests: `upstream.py PORT`.

Prints the port when it listens. GET /counts returns the number of requests by fault.
"""

import asyncio
import json
import socket
import struct
import sys
import time
from collections import Counter

import httptools
import uvloop
from answers import GARBAGE, ROLE, Events, Plan, asked
from faults import SETTLE_SECONDS, STALL_SECONDS, middle, whole

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ncache-control: no-cache\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
JSON_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
BURST = 32
"""Events of one write, where there is no pace."""

counts: Counter[str] = Counter()


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


class Upstream(asyncio.Protocol):
    """A connection; requests in sequence."""

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.parser = httptools.HttpRequestParser(self)
        self.body: list[bytes] = []
        self.url = b""
        self.timer: asyncio.TimerHandle | None = None
        self.paused = False
        self.resume = None

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def connection_lost(self, problem) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.resume = None

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        if self.resume is not None:
            go_on, self.resume = self.resume, None
            go_on()

    def on_message_begin(self) -> None:
        self.body.clear()

    def on_url(self, url: bytes) -> None:
        self.url = url

    def on_body(self, data: bytes) -> None:
        self.body.append(data)

    def on_message_complete(self) -> None:
        if self.url.endswith(b"/counts"):
            self.answer(json.dumps(counts).encode())
            return
        plan = asked(b"".join(self.body))
        counts[plan.fault or "none"] += 1
        if plan.events:
            self.transport.write(STREAM_HEAD + chunk(ROLE))
            self.plan, self.events, self.index = plan, Events(plan), 0
            self.begun = self.loop.time()
            self.go_on()
        elif plan.pace:
            self.timer = self.loop.call_later(plan.pace / 1e6, self.answer, whole(plan))
        else:
            self.answer_whole(plan)

    def answer_whole(self, plan: Plan) -> None:
        if plan.fault == "nonsense":
            self.transport.write(b"\x00\x01 this is no HTTP\r\n\r\n")
            self.transport.close()
        elif plan.fault == "refused":
            self.transport.close()
        elif plan.fault == "short":
            body = whole(plan)
            self.transport.write(JSON_HEAD % (2 * len(body)) + body)
            self.transport.close()
        else:
            self.answer(whole(plan))

    def answer(self, body: bytes) -> None:
        self.transport.write(JSON_HEAD % len(body) + body)

    def go_on(self) -> None:
        """Send the next events, and schedule the following ones."""
        if self.transport.is_closing():
            return
        plan = self.plan
        if plan.fault and self.index == middle(plan) and self.broken(plan.fault):
            return
        if self.index >= plan.events:
            self.transport.write(chunk(self.events.last()) + b"0\r\n\r\n")
        elif plan.pace:
            self.send(1)
            self.timer = self.loop.call_at(self.begun + self.index * plan.pace / 1e6, self.go_on)
        else:
            self.send(BURST)
            if self.paused:
                self.resume = self.go_on
            else:
                self.loop.call_soon(self.go_on)

    def send(self, most: int) -> None:
        stop = min(self.index + most, self.plan.events)
        text = self.events.text
        self.transport.write(b"".join(chunk(text(index, time.monotonic_ns())) for index in range(self.index, stop)))
        self.index = stop

    def broken(self, fault: str) -> bool:
        """Cause the fault in the middle. Return True if it ends or pauses the stream."""
        self.plan = Plan(
            events=self.plan.events, pace=self.plan.pace, padding=self.plan.padding, number=self.plan.number
        )
        if fault == "reset":
            self.timer = self.loop.call_later(SETTLE_SECONDS, self.reset)
        elif fault == "cut":
            self.transport.close()
        elif fault == "stall":
            self.begun += STALL_SECONDS
            self.timer = self.loop.call_later(STALL_SECONDS, self.go_on)
        elif fault == "garbage":
            self.transport.write(chunk(GARBAGE))
            return False
        return True

    def reset(self) -> None:
        self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()


async def serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", port, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
