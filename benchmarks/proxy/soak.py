"""Send traffic with faults through the standalone proxy for minutes: `soak.py [--minutes 30] [--streams N]`.

Exits with 1 if a byte was lost or memory grew. Every stream has its own numbers, so that both ends know each expected byte.
Bytes that the server sent before a fault must arrive too.
"""

import argparse
import asyncio
import gc
import json
import random
import re
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httptools
import uvloop
from answers import Plan, request
from contenders import CONTENDERS, Running
from faults import CLIENT_FAULTS, FAULTS, sent
from measure import OUT, machine, prepare, say
from processes import cost, memory, settle

SOAK_OUT = OUT.parent / "proxy_soak.json"
LOAD = 0.7
"""Of the streams that were held when the proxy was measured."""
FAULTY = 0.12
"""The share of exchanges in which something goes wrong."""
WHOLE = 0.15
"""The share of answers that are no streams."""
SILENCE = 30
"""Seconds without a byte after which an answer counts as lost."""
GROWTH = (1.05, 8.0)
"""The largest growth of memory, as a factor and in MiB, from the second quarter of the time to the last."""
JUDGE_SECONDS = 300
"""For what is still to be judged at the end."""
MOST_TOLD = 20
DROPPED = re.compile(r"(\d+) (?:not judged|lost)")
"""In what the proxy says at its end: exchanges that were not judged, because the queue was full or the judge ended."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """Properties of the streams: length, pace in microseconds between events, and the requests of slow clients."""

    events: tuple[int, int] = (50, 300)
    pace: int = 100_000
    slow: Plan = field(default_factory=lambda: Plan(events=2000, padding=3_880))
    slow_seconds: float = 2


TINY = Traffic(events=(4, 12), pace=5_000, slow=Plan(events=200, padding=3_880), slow_seconds=0.2)


@dataclass
class Tally:
    """Number of exchanges by kind, and the problems."""

    kinds: Counter[str] = field(default_factory=Counter)
    delivered: int = 0
    violations: list[str] = field(default_factory=list)

    def over(self, exchange: "Exchange") -> None:
        self.kinds[exchange.kind or "none"] += 1
        self.delivered += exchange.position
        if problem := exchange.problem():
            self.violations.append(f"{exchange.kind or 'no fault'}, number {exchange.plan.number}: {problem}")


class Exchange(asyncio.Protocol):
    """A request over its own connection, and whether the received bytes equal the sent ones."""

    def __init__(self, plan: Plan, kind: str, traffic: Traffic, host: str) -> None:
        self.plan, self.kind, self.traffic, self.host = plan, kind, traffic, host
        self.expected = sent(plan)
        self.turn = len(self.expected) // 2
        self.position = self.status = 0
        self.extra = b""
        self.wrong = ""
        self.complete = self.left = False
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport) -> None:
        self.transport = transport
        self.heard = time.monotonic()
        self.parser = httptools.HttpResponseParser(self)
        transport.write(request(self.plan, self.host))

    def data_received(self, data: bytes) -> None:
        self.heard = time.monotonic()
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as problem:
            self.wrong = self.wrong or f"no HTTP: {problem}"
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        if self.status != 200:
            return
        due = self.expected[self.position : self.position + len(data)]
        if data[: len(due)] != due:
            self.wrong = self.wrong or f"other bytes than were sent, somewhere after {self.position}"
        self.extra += data[len(due) :]
        before, self.position = self.position, self.position + len(due)
        if before < self.turn <= self.position:
            self.halfway()

    def halfway(self) -> None:
        if self.kind == "leaves":
            self.left = True
            self.transport.abort()
        elif self.kind == "slow":
            self.transport.pause_reading()
            asyncio.get_running_loop().call_later(self.traffic.slow_seconds, self.go_on)

    def go_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def on_message_complete(self) -> None:
        self.complete = True
        self.transport.close()

    def connection_lost(self, problem) -> None:
        if not self.done.done():
            self.done.set_result(None)

    def problem(self) -> str:
        """Return the problem with the received bytes, or an empty text."""
        fault = FAULTS.get(self.plan.fault)
        if self.wrong:
            return self.wrong
        if fault is not None and not fault.answered:
            return "" if self.status in (502, 504) else f"HTTP {self.status} where the server gave no answer"
        if self.left:
            return ""
        if self.status != 200:
            return f"HTTP {self.status} instead of what the server sent"
        if self.position < len(self.expected):
            return f"{len(self.expected) - self.position} of {len(self.expected)} bytes did not arrive"
        broken = fault is not None and not fault.complete
        if self.extra and not (broken and b'"error"' in self.extra):
            return f"{len(self.extra)} bytes more than were sent"
        if broken and self.complete and not self.extra:
            return "the end of a broken answer looks like a good one"
        return "" if broken or self.complete else "the answer has no end"


class Soak:
    """The clients: one for each simultaneous stream, each with one exchange after the other."""

    def __init__(self, port: int, traffic: Traffic, *, seed: int) -> None:
        self.port, self.traffic = port, traffic
        self.random = random.Random(seed)
        self.number = 1_000
        self.asked = 0
        self.tally = Tally()
        self.memory: list[tuple[float, float]] = []

    def next(self) -> tuple[Plan, str]:
        """Return the next exchange and its fault."""
        draw = self.random
        self.number += 1_000
        streamed = draw.random() >= WHOLE
        faults = [name for name, fault in FAULTS.items() if fault.streamed == streamed]
        kind = draw.choice([*faults, *(CLIENT_FAULTS if streamed else ())]) if draw.random() < FAULTY else ""
        fault = kind if kind in FAULTS else ""
        if kind == "slow":
            return Plan(
                events=self.traffic.slow.events, padding=self.traffic.slow.padding, number=self.number * 10
            ), kind
        events = draw.randint(*self.traffic.events) if streamed else 0
        return Plan(events=events, pace=self.traffic.pace if streamed else 0, number=self.number, fault=fault), kind

    async def client(self, stop: float) -> None:
        await asyncio.sleep(self.random.random() * self.traffic.pace * 50 / 1e6)
        while time.monotonic() < stop:
            plan, kind = self.next()
            self.asked += 1
            exchange = Exchange(plan, kind, self.traffic, f"127.0.0.1:{self.port}")
            try:
                await asyncio.get_running_loop().create_connection(lambda made=exchange: made, "127.0.0.1", self.port)
            except OSError as problem:
                self.tally.violations.append(f"no connection: {problem}")
                await asyncio.sleep(1)
                continue
            while not exchange.done.done():
                await asyncio.wait([exchange.done], timeout=SILENCE)
                if not exchange.done.done() and time.monotonic() - exchange.heard >= SILENCE:
                    exchange.wrong = f"nothing for {SILENCE} s"
                    exchange.transport.abort()
            self.tally.over(exchange)
            if not plan.events:
                await asyncio.sleep(self.traffic.pace * 2 / 1e6)

    async def run(self, streams: int, seconds: float, pid: int) -> None:
        begun = time.monotonic()
        clients = [asyncio.create_task(self.client(begun + seconds)) for _ in range(streams)]
        while any(not client.done() for client in clients):
            await asyncio.wait(clients, timeout=max(0.05, min(5.0, seconds / 40)))
            if time.monotonic() < begun + seconds:
                self.memory.append(memory(pid))
                if len(self.memory) % 12 == 0:
                    self.say(time.monotonic() - begun)
        for client in clients:
            client.result()

    def say(self, seconds: float) -> None:
        path, judge = self.memory[-1]
        done, wrong = self.tally.kinds.total(), len(self.tally.violations)
        say(f"{seconds:5.0f} s: {done} exchanges, {wrong} violations; MiB: path {path:.0f}, judge {judge:.0f}")


def grown(samples: list[float], seconds: float) -> tuple[float, float, bool]:
    """Return the maximum memory of the second and of the last quarter, and whether it grew. Less than a minute has no result."""
    quarter = max(1, len(samples) // 4)
    early, late = max(samples[quarter : 2 * quarter] or samples), max(samples[-quarter:])
    return early, late, seconds >= 60 and late > early * GROWTH[0] + GROWTH[1]


def accounted(log: Path, asked: int, said: str) -> dict[str, int]:
    """Return the log lines and the dropped exchanges, to compare with the requests; empty without a log."""
    if not log.exists():
        return {}
    dropped = sum(int(count) for count in DROPPED.findall(said))
    return {"asked": asked, "lines": len(log.read_bytes().splitlines()), "dropped": dropped}


def soak(through: str, streams: int, seconds: float, traffic: Traffic, *, seed: int) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        upstream = Running("direct", None, Path(folder))
        try:
            proxy = Running(through, upstream, Path(folder))
            try:
                load = Soak(proxy.port, traffic, seed=seed)
                uvloop.run(load.run(streams, seconds, proxy.pid))
                settle(proxy.pid, limit=JUDGE_SECONDS)
                used = cost(proxy.pid)
                with urllib.request.urlopen(f"http://127.0.0.1:{upstream.port}/counts") as answer:
                    served = json.loads(answer.read())
            finally:
                said = proxy.stop()
            counted = accounted(proxy.place.log, load.asked + 1, said)  # and the one that asked whether it was ready
        finally:
            upstream.stop()
    path, judge = (grown([sample[which] for sample in load.memory], seconds) for which in (0, 1))
    violations = list(load.tally.violations)
    violations += [
        f"memory of the {what} grew from {early:.0f} to {late:.0f} MiB"
        for what, (early, late, bad) in (("path", path), ("judge", judge))
        if bad
    ]
    if counted and counted["lines"] + counted["dropped"] != counted["asked"]:
        violations.append(
            f"{counted['asked']} exchanges, but {counted['lines']} lines and {counted['dropped']} dropped"
        )
    return {
        "streams": streams,
        "seconds": seconds,
        "kinds": dict(load.tally.kinds),
        "served": served,
        "bytes": load.tally.delivered,
        "accounting": counted,
        "memory": {"path": path[:2], "judge": judge[:2]},
        "cpu": asdict(used),
        "said": said.splitlines()[-5:],
        "violations": violations,
    }


def streams_of(results: Path) -> int:
    """Return 70 % of the measured maximum of streams."""
    if not results.exists():
        raise SystemExit(f"{results} is not there: make bench-proxy writes it; or say --streams")
    held = json.loads(results.read_text("utf-8"))["limits"].get("standalone", {}).get("streams", 0)
    if not held:
        raise SystemExit(f"{results} has no number of streams: expected --streams")
    return round(LOAD * held)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--minutes", type=float, default=30)
    arguments.add_argument("--streams", type=int, help="at a time; otherwise 70 %% of the measured limit")
    arguments.add_argument(
        "--through", choices=CONTENDERS, default="standalone", help="another proxy than ours, to compare"
    )
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument(
        "--tiny", action="store_true", help="short streams, for a test of this script: nothing is published"
    )
    arguments.add_argument("--out", type=Path, help="default: what the page is made of; with --tiny nothing is written")
    options = arguments.parse_args()
    out = options.out or (None if options.tiny else SOAK_OUT)
    prepare()
    gc.freeze()
    streams = options.streams or streams_of(OUT)
    say(f"{streams} streams at a time, {options.minutes:g} minutes")
    about = machine()
    found = soak(options.through, streams, options.minutes * 60, TINY if options.tiny else Traffic(), seed=options.seed)
    if out is not None:
        out.write_text(json.dumps({"machine": about, **found}, indent=1, sort_keys=True) + "\n", "utf-8")
    exchanges, violations = sum(found["kinds"].values()), found["violations"]
    for violation in violations[:MOST_TOLD]:
        print(f"violation: {violation}")
    verdict = (
        f"{len(violations)} violations"
        if violations
        else "every byte that arrived was delivered, memory is flat, every exchange is in the log"
    )
    print(f"{exchanges} exchanges, {found['bytes']:,} bytes, {streams} streams at a time: {verdict}")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
