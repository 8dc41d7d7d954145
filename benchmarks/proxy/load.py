"""Client with connections that send requests and measure. It retains only the values that the figures need."""

import asyncio
import time
from dataclasses import dataclass, field

import httptools
from answers import AT, DIGITS, Plan, request

_TIMED = len(AT) + DIGITS


@dataclass(slots=True)
class Answer:
    """Measured values of one answer; times in nanoseconds.

    Attributes:
        first: time from the request to the first byte of the body.
        latencies: time of each event from sending to receiving.
        longest_gap: longest time between two received events.
        complete: True if it ended correctly by HTTP, with status 200.
    """

    first: int = 0
    total: int = 0
    status: int = 0
    size: int = 0
    latencies: list[int] = field(default_factory=list)
    longest_gap: int = 0
    complete: bool = False


class Connection(asyncio.Protocol):
    """A keep-alive connection with one request at a time."""

    def __init__(self) -> None:
        self.done: asyncio.Future[Answer] | None = None
        self.lost = False

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.parser = httptools.HttpResponseParser(self)
        self.loop = asyncio.get_running_loop()

    def ask(self, message: bytes) -> asyncio.Future[Answer]:
        self.done = self.loop.create_future()
        self.answer = Answer()
        self.tail = b""
        self.received = 0
        if self.lost:
            self.finish()
            return self.done
        self.sent = time.monotonic_ns()
        self.transport.write(message)
        return self.done

    def data_received(self, data: bytes) -> None:
        self.now = time.monotonic_ns()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.transport.abort()

    def connection_lost(self, problem) -> None:
        self.lost = True
        self.finish()

    def on_body(self, data: bytes) -> None:
        answer, now = self.answer, self.now
        if not answer.size:
            answer.first = now - self.sent
        answer.size += len(data)
        if self.tail:
            data = self.tail + data
        position = 0
        found = data.find(AT)
        while found >= 0 and found + _TIMED <= len(data):
            position = found + _TIMED
            answer.latencies.append(now - int(data[found + len(AT) : position]))
            found = data.find(AT, position)
            if self.received and now - self.received > answer.longest_gap:
                answer.longest_gap = now - self.received
            self.received = now
        self.tail = data[found:] if found >= 0 else data[max(position, len(data) - len(AT) + 1) :]

    def on_message_complete(self) -> None:
        self.answer.status = self.parser.get_status_code()
        self.answer.complete = self.answer.status == 200
        if not self.parser.should_keep_alive():
            self.lost = True
            self.transport.close()
        self.finish()
        self.parser = httptools.HttpResponseParser(self)

    def finish(self) -> None:
        if self.done is not None and not self.done.done():
            self.answer.total = time.monotonic_ns() - self.sent if self.answer.size else 0
            self.done.set_result(self.answer)


@dataclass(frozen=True, kw_only=True)
class Whole:
    """Complete answers received in the given time."""

    answers: int
    failed: int
    seconds: float
    latencies: list[int]


class Client:
    """Connections to one address."""

    def __init__(self, port: int, *, timeout: float = 60) -> None:
        self.port = port
        self.host = f"127.0.0.1:{port}"
        self.timeout = timeout

    async def connect(self, count: int) -> list[Connection]:
        loop = asyncio.get_running_loop()
        made = []
        for _ in range(count):
            _, connection = await loop.create_connection(Connection, "127.0.0.1", self.port)
            made.append(connection)
        return made

    async def warm(self, count: int) -> list[Connection]:
        """Open connections and send one request over each, so that connections behind the proxy are open too."""
        connections = await self.connect(count)
        message = request(Plan(pace=2_000), self.host)
        for start in range(0, count, 100):
            waiting = [one.ask(message) for one in connections[start : start + 100]]
            await asyncio.wait_for(asyncio.gather(*waiting), self.timeout)
        return connections

    async def whole(self, *, connections: int, seconds: float, most: int, plan: Plan) -> Whole:
        """Repeat requests over several connections until the number of answers or the time is reached."""
        warm = await self.warm(connections)
        message = request(plan, self.host)
        found: list[Answer] = []
        begun = time.monotonic()
        stop = begun + seconds

        async def again(connection: Connection) -> None:
            while len(found) < most and time.monotonic() < stop and not connection.lost:
                found.append(await connection.ask(message))

        await asyncio.wait_for(asyncio.gather(*map(again, warm)), seconds + self.timeout)
        took = time.monotonic() - begun
        close(warm)
        good = [answer.total for answer in found if answer.complete]
        return Whole(answers=len(good), failed=len(found) - len(good), seconds=took, latencies=good)

    async def streams(
        self, *, count: int, plan: Plan, spread: float, times: int = 1, limit: float | None = None
    ) -> list[Answer]:
        """Receive streams at the same time, begun within `spread` seconds; `times` in sequence over each connection.

        After `limit` seconds the connections are closed, and missing events count as lost.
        """
        warm = await self.warm(count)
        message = request(plan, self.host)

        async def one(connection: Connection, delay: float) -> list[Answer]:
            await asyncio.sleep(delay)
            return [await connection.ask(message) for _ in range(times)]

        tasks = [asyncio.create_task(one(connection, spread * index / count)) for index, connection in enumerate(warm)]
        _, late = await asyncio.wait(tasks, timeout=limit or self.timeout)
        if late:
            close(warm)
            await asyncio.wait(late, timeout=10)
        close(warm)
        return [answer for task in tasks if task.done() for answer in task.result()]


def close(connections: list[Connection]) -> None:
    for one in connections:
        one.transport.abort()
