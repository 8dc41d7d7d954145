"""Measure how the cost of a run grows: with its scenarios, and with a server that takes 50 ms for an answer.

    .venv/bin/python benchmarks/run_scaling.py [--slow-only] [--out FILE]

1. CPU seconds of all processes for a quarter, half and all of the scenarios, over every API against the embedded server.
2. The time on the clock of runs against the reference server behind a delay, with 1, 2 and 8 requests at the same time. The server notes when it has
   which request, from its first byte to the last byte of the answer. The share of the slots that it has is its share of the time, and the rest is the
   suite's. Discovery, which sends one request after the other, is measured apart; and so is aiohttp, which only sends and drops the answers.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from time import time

from run_cost import measure

DELAY = 0.05
BARE_REQUESTS = 60
PARTS = (4, 2, 1)


def scenario_names() -> list[str]:
    """Return the names of the scenarios of `run --api all`."""
    from harmony_conformance.apis.registry import APIS
    from harmony_conformance.runner.selection import select_plan

    return sorted({scenario.name for scenario in select_plan(tuple(APIS), (), ()).scenarios})


def linear() -> dict[str, object]:
    """Run every fourth, every second and every scenario."""
    names = scenario_names()
    runs = []
    for part in PARTS:
        chosen = names[::part]
        selected = [word for name in chosen for word in ("--select", name)]
        found = measure(["--api", "all", *selected])
        runs.append({"scenarios": len(chosen), **{name: found[name] for name in ("exchanges", "cpu")}})
        print(runs[-1], flush=True)
    marginal = [
        (later["cpu"] - earlier["cpu"]) / (later["exchanges"] - earlier["exchanges"])
        for earlier, later in pairwise(runs)
    ]
    return {"runs": runs, "marginal_cpu_per_exchange": [round(one, 5) for one in marginal]}


class Delayed:
    """An ASGI application behind a delay, which also returns when the server had each request."""

    def __init__(self, app, delay: float) -> None:
        self._app, self._delay = app, delay
        self.spans: list[tuple[float, float]] = []

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "http" and scope["path"] == "/spans":
            body = json.dumps(self.spans).encode()
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": body})
            return
        await asyncio.sleep(self._delay)
        await self._app(scope, receive, send)


def timed_protocol(spans: list[tuple[float, float]]) -> type:
    """Return uvicorn's protocol, which notes when the first byte of each request arrives and when the last byte of its answer is written."""
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    class Timed(HttpToolsProtocol):
        begin: float | None = None

        def data_received(self, data: bytes) -> None:
            self.begin = self.begin or time()
            super().data_received(data)

        def on_response_complete(self) -> None:
            spans.append((self.begin or time(), time()))
            self.begin = None
            super().on_response_complete()

    return Timed


def serve_delayed(delay: float) -> None:
    """Serve on a free port, and print the URL."""
    import socket

    import uvicorn

    from harmony_conformance.reference_server.server.app import create_app

    listening = socket.create_server(("127.0.0.1", 0), backlog=256)
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
    app = Delayed(create_app(), delay)
    protocol = timed_protocol(app.spans)
    config = uvicorn.Config(
        app, http=protocol, log_level="critical", access_log=False, lifespan="off", server_header=False
    )
    uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def delayed_server(delay: float):
    command = [sys.executable, __file__, "--serve", str(delay)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def concurrent_scenarios() -> list[str]:
    """Return the names of the scenarios that a run sends at the same time. The others wait for each other by design."""
    from harmony_conformance.evidence.levels import REFUSABLE_VALIDITIES
    from harmony_conformance.runner.selection import load_scenarios

    return [
        scenario.name
        for scenario in load_scenarios()
        if not (scenario.exclusive or scenario.over_websocket)
        and not any(step.validity in REFUSABLE_VALIDITIES for step in scenario.steps)
    ]


def beside_slow_server(api: str, concurrency: int, every: int) -> dict[str, object]:
    """Return the share of the slots in which the server had a request, from the first request of a scenario to the last answer."""
    import httpx

    selected = [word for name in concurrent_scenarios()[::every] for word in ("--select", name)]
    with delayed_server(DELAY) as url, TemporaryDirectory() as out:
        options = ["--api", api, "--latency", "0", "--quiet", "--concurrency", str(concurrency), "--out", out]
        command = [sys.executable, "-m", "harmony_conformance", "run", url, *options, *selected]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        spans = httpx.get(f"{url}/spans", timeout=60).json()
        with (Path(out) / "exchanges.jsonl").open("rb") as file:
            starts = [line["started"] for line in map(json.loads, file) if line.get("started") and "request" in line]
    first = min(datetime.fromisoformat(text).timestamp() for text in starts)
    discovery = [(begin, end) for begin, end in spans if end < first]
    sent = [(begin, end) for begin, end in spans if end >= first]
    return {
        "api": api,
        "delay": DELAY,
        "concurrency": concurrency,
        "discovery": {"requests": len(discovery), "share": share(discovery, 1)},
        "requests": len(sent),
        "seconds": round(max(end for _, end in sent) - min(begin for begin, _ in sent), 2),
        "share": share(sent, concurrency),
    }


def bare_client(concurrency: int) -> float:
    """Return the share of a slow server whose clients are loops of aiohttp that drop the answers: the limit for a suite."""
    import aiohttp
    import httpx

    asked = {"model": "gpt-oss-20b", "messages": [{"role": "user", "content": "Hello"}]}

    async def send_all(url: str) -> None:
        async with aiohttp.ClientSession() as session:

            async def repeat() -> None:
                for _ in range(BARE_REQUESTS):
                    async with session.post(f"{url}/v1/chat/completions", json=asked) as answer:
                        await answer.read()

            await asyncio.gather(*(repeat() for _ in range(concurrency)))

    with delayed_server(DELAY) as url:
        asyncio.run(send_all(url))
        return share(httpx.get(f"{url}/spans", timeout=60).json(), concurrency)


def share(spans: list[tuple[float, float]], slots: int) -> float:
    """Return the share of the slots that have a request, between the first and the last moment of all."""
    wall = max(end for _, end in spans) - min(begin for begin, _ in spans)
    return round(sum(end - begin for begin, end in spans) / wall / slots, 4)


def main() -> int:
    """Measure, print and write."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--api", default="chat", help="API of the run against the slow server (default: chat)")
    parser.add_argument("--slow-only", action="store_true", help="measure only against the slow server")
    parser.add_argument("--serve", type=float, metavar="DELAY", help="serve with this delay, for the benchmark itself")
    arguments = parser.parse_args()
    if arguments.serve is not None:
        serve_delayed(arguments.serve)
        return 0
    figures: dict[str, object] = {"load": os.getloadavg(), "slow server": []}
    for concurrency, every in ((1, 4), (2, 2), (8, 1)):
        measured = beside_slow_server(arguments.api, concurrency, every)
        figures["slow server"].append({**measured, "bare client": bare_client(concurrency)})
        print(figures["slow server"][-1], flush=True)
    if not arguments.slow_only:
        figures["scenarios"] = linear()
    print(json.dumps(figures))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
