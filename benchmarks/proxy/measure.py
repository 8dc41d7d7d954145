"""Measure all proxies in turn before the same server, and write the results: `measure.py [--quick] [--out FILE]`.

Every contender is a separate process. Each round measures all of them in sequence, starting with another one, so that other load on the
machine affects all equally. CPU time is that of the contender, read after its deferred work. The CPU time of a judge process is separate.
Client and server run on the same machine.
"""

import argparse
import asyncio
import gc
import importlib.metadata
import json
import os
import platform
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import uvloop
from answers import Plan
from contenders import CONTENDERS, LITELLM, MITMPROXY, NotStartedError, Running, nginx_program
from load import Answer, Client
from pairs import APART, JUDGED_LATER, PAUSED, RUSH, SUSTAINED, in_turn
from processes import cost, judge_stopped, memory, settle

HERE = Path(__file__).parent
OUT = HERE.parent / "results" / "proxy.json"
MICRO = 1e6
EVENT = 1e3
"""Nanoseconds of a microsecond: the unit of latencies."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """Amount of work of a measurement.

    Attributes:
        seconds: time limit of requests for complete answers.
        answers: their largest number. Deferred judging must end before the next measurement.
        turns: number of alternations within a closely compared group (see pairs).
        idle: seconds without requests, to measure the own use of a process.
        streams: number of short streams in sequence over one connection.
        events: events of a stream among others.
        flat: events of a stream without a pace.
        apart: events of a stream that begins while others are under way.
        gigabytes: size of the long stream; 0 for none.
        holds: numbers of simultaneous streams, in rising order.
    """

    rounds: int
    turns: int
    seconds: float
    answers: int
    idle: float
    streams: int
    events: int
    flat: int
    apart: int
    gigabytes: float
    hold_seconds: float
    holds: tuple[int, ...]


FULL = Size(
    rounds=5, turns=12, seconds=0.5, answers=1000, idle=2, streams=20, events=60, flat=1500, apart=75, gigabytes=1, hold_seconds=4,
    holds=(100, 200, 300, 400, 500, 600, 700, 800, 1000, 1200, 1400),
)  # fmt: skip
QUICK = replace(
    FULL, rounds=1, turns=2, seconds=0.4, answers=500, idle=1, streams=6, events=20, flat=300, apart=40, gigabytes=0.1, hold_seconds=2,
    holds=(50, 300),
)  # fmt: skip
TINY = replace(
    QUICK, turns=1, seconds=0.02, answers=40, idle=0.1, streams=1, events=3, flat=8, apart=3, gigabytes=0, hold_seconds=0.3,
    holds=(2,),
)  # fmt: skip
SIZES = {"full": FULL, "quick": QUICK, "tiny": TINY}

HELD = {"nginx": 1000, "standalone": 400, "mitmdump": 100, "addon": 100}
"""Contenders whose limit is measured, and the first number of streams."""
LONG = ("standalone", "addon", "app+guard")
"""Through whom the long stream goes."""
HELD_PACE = 100_000
MOST_LATE = 10 * HELD_PACE * 1_000


@dataclass(frozen=True, kw_only=True)
class Found:
    """Result of one measurement: units of work and observed values; latencies in nanoseconds."""

    units: int
    failed: int
    seconds: float
    latencies: list[int]
    first: list[int]


Measure = Callable[[Client, Size], "asyncio.Future[Found]"]


def whole(connections: int, plan: Plan, times: int = 1) -> Measure:
    async def measure(client: Client, size: Size) -> Found:
        found = await client.whole(
            connections=connections, seconds=times * size.seconds, most=times * size.answers, plan=plan
        )
        return Found(
            units=found.answers, failed=found.failed, seconds=found.seconds, latencies=found.latencies, first=[]
        )

    return measure


def streams(
    count: int, plan: Callable[[Size], Plan], times: Callable[[Size], int] = lambda size: 1, spread: float = 0.02
) -> Measure:
    async def measure(client: Client, size: Size) -> Found:
        begun = asyncio.get_running_loop().time()
        answers = await client.streams(count=count, plan=plan(size), spread=spread, times=times(size))
        latencies = [latency for answer in answers for latency in answer.latencies]
        return Found(
            units=len(latencies),
            failed=count * times(size) - sum(answer.complete for answer in answers),
            seconds=asyncio.get_running_loop().time() - begun,
            latencies=latencies,
            first=[answer.first for answer in answers],
        )

    return measure


MEASURES: dict[str, Measure] = {
    "json, 1": whole(1, Plan()),
    "json, 32": whole(32, Plan()),
    JUDGED_LATER: whole(32, Plan(), times=4),
    SUSTAINED: whole(32, Plan(), times=8),
    "json, 32, 20 ms": whole(32, Plan(pace=20_000)),
    "stream, 1": streams(1, lambda size: Plan(events=6, pace=10_000), lambda size: size.streams),
    "stream, 32": streams(32, lambda size: Plan(events=size.events, pace=20_000)),
    "stream, 8, no pace": streams(8, lambda size: Plan(events=size.flat)),
    RUSH: streams(32, lambda size: Plan(events=5, pace=20_000)),
    APART: streams(32, lambda size: Plan(events=size.apart, pace=20_000), spread=0.67),
}
SPARED = {"litellm": {"stream, 8, no pace"}}
"""Measures that contenders skip, because they would take minutes."""
ASGI = ("app", "app+guard")
ASGI_ONLY = {"json, 32, 20 ms", JUDGED_LATER, SUSTAINED}
SLOW_ROUNDS = {"litellm": 2}


def figures(those: list[Running], name: str, size: Size, idle: dict[str, float]) -> dict[str, dict[str, float]]:
    """Measure contenders at the same time. Times are in microseconds per unit, which is a request or an event.

    `idle` is the CPU time of a second without requests.
    """
    before, begun = {one.name: cost(one.pid) for one in those}, time.monotonic()
    with ExitStack() as stopped:
        if name in PAUSED:
            for one in those:
                stopped.enter_context(judge_stopped(one.pid))
        measured = uvloop.run(_all([MEASURES[name](Client(one.port), size) for one in those]))
    told = {}
    for one, found in zip(those, measured, strict=True):
        settle(one.pid)
        used = cost(one.pid).since(before[one.name])
        told[one.name] = {"failed": found.failed}
        if found.units:
            told[one.name] |= {
                "path": (used.path - idle[one.name] * (time.monotonic() - begun)) / found.units * MICRO,
                "judge": used.judge / found.units * MICRO,
                "rate": found.units / found.seconds,
                "p50": percentile(found.latencies, 0.5) / EVENT,
                "p99": percentile(found.latencies, 0.99) / EVENT,
                "first": percentile(found.first, 0.5) / EVENT if found.first else 0.0,
            }
    return told


async def _all(measuring: list["asyncio.Future[Found]"]) -> list[Found]:
    return await asyncio.gather(*measuring)


def percentile(values: list[int], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def limit(running: Running, size: Size) -> dict[str, object]:
    """Return the largest number of streams without a lost event and without a wait of more than ten times the pace."""
    start = HELD[running.name] if max(size.holds) > HELD[running.name] else 0
    reached, why = 0, ""
    for count in (count for count in size.holds if count >= start):
        problems = [held(running, count, size)]
        if problems[0]:
            problems.append(held(running, count, size))  # once more: a neighbour may have been loud
        if problems[-1]:
            why = f"{count} streams: {problems[-1]}"
            break
        reached = count
    return {"streams": reached, "tried": max(size.holds), "why": why}


def held(running: Running, count: int, size: Size) -> str:
    """Return the problem with a number of streams, or an empty text."""
    plan = Plan(events=round(size.hold_seconds * MICRO / HELD_PACE), pace=HELD_PACE)
    client = Client(running.port, timeout=30)
    try:
        answers = uvloop.run(client.streams(count=count, plan=plan, spread=1, limit=3 * size.hold_seconds + 5))
    except (TimeoutError, OSError) as problem:
        return f"no connection: {type(problem).__name__}"
    finally:
        settle(running.pid, limit=10)
    lost = count - sum(answer.complete and len(answer.latencies) == plan.events for answer in answers)
    late = max((_latest(answer) for answer in answers), default=0)
    return f"{lost} not whole" if lost else f"an event {late / 1e9:.1f} s late" if late > MOST_LATE else ""


def _latest(answer: Answer) -> int:
    return max(answer.first, answer.longest_gap - HELD_PACE * 1_000, max(answer.latencies, default=0))


def long_stream(running: Running, size: Size) -> dict[str, object]:
    """Return MiB of memory for a long stream: before it, the maximum of its first quarter, and the maximum afterwards."""
    plan = Plan(events=round(size.gigabytes * 2**30 / 4096), padding=3_880)
    settle(running.pid)
    before = memory(running.pid)[0]
    samples, answer = uvloop.run(_watched(running, plan))
    quarter = max(1, len(samples) // 4)
    return {
        "bytes": answer.size,
        "complete": answer.complete,
        "before": before,
        "early": max(samples[:quarter]),
        "late": max(samples[quarter:] or samples),
    }


async def _watched(running: Running, plan: Plan) -> tuple[list[float], Answer]:
    samples: list[float] = []

    async def watch() -> None:
        while True:
            samples.append(memory(running.pid)[0])
            await asyncio.sleep(0.1)

    watching = asyncio.create_task(watch())
    answers = await Client(running.port).streams(count=1, plan=plan, spread=0, limit=300)
    watching.cancel()
    return samples, (answers or [Answer()])[0]


def measure(names: list[str], size: Size, folder: Path, skipped: dict[str, str]) -> dict[str, object]:
    found: dict[str, dict[str, dict[str, list[float]]]] = {name: {} for name in MEASURES}
    upstream = Running("direct", None, folder)
    running = {"direct": upstream}
    try:
        for name in names:
            if name != "direct":
                start(name, running, skipped, folder)
        names = [name for name in names if name in running]
        idle = idling(running, size.idle)
        for number in range(size.rounds):
            taking_part = [name for name in names if number < SLOW_ROUNDS.get(name, size.rounds)]
            first = number % len(taking_part)
            for name in taking_part[first:] + taking_part[:first]:
                settle(running[name].pid)
                say(f"round {number + 1} of {size.rounds}: {name}")
                for what in [what for what in MEASURES if what not in (APART, RUSH, SUSTAINED)]:
                    if what not in SPARED.get(name, ()) and (name in ASGI or what not in ASGI_ONLY):
                        add(found[what].setdefault(name, {}), figures([running[name]], what, size, idle)[name])
        turns = in_turn(
            names, size.turns, lambda what, those: figures([running[one] for one in those], what, size, idle), say
        )
        limits, memories = {}, {}
        for name in [name for name in LONG if name in names and size.gigabytes]:
            say(f"a long stream: {name}")
            memories[name] = long_stream(running[name], size)
        for name in [name for name in HELD if name in names]:
            say(f"how many streams: {name}")
            limits[name] = limit(running[name], size)
    finally:
        for one in reversed(running.values()):
            one.stop()
    measured = {what: {name: spreads(values) for name, values in by.items()} for what, by in found.items() if by}
    return {"measures": measured, "turns": turns, "limits": limits, "memory": memories}


def idling(running: dict[str, Running], seconds: float) -> dict[str, float]:
    """Return the CPU seconds that each contender uses in an idle second."""
    for one in running.values():
        settle(one.pid)
    before = {name: cost(one.pid) for name, one in running.items()}
    time.sleep(seconds)
    return {name: cost(one.pid).since(before[name]).path / seconds for name, one in running.items()}


def start(name: str, running: dict[str, Running], skipped: dict[str, str], folder: Path) -> None:
    say(f"starting {name}")
    try:
        running[name] = Running(name, running["direct"], folder)
    except NotStartedError as problem:
        say(f"skipped: {problem}")
        skipped[name] = "did not start"


def add(found: dict[str, list[float]], figures: dict[str, float]) -> None:
    for name, value in figures.items():
        found.setdefault(name, []).append(value)


def spreads(values: dict[str, list[float]]) -> dict[str, dict[str, object]]:
    return {
        name: {"median": round(statistics.median(rounds), 3), "rounds": [round(value, 3) for value in rounds]}
        for name, rounds in values.items()
    }


def machine() -> dict[str, object]:
    """Return the facts on which the figures depend, without names of the machine or its owner."""
    info = Path("/proc/cpuinfo").read_text("utf-8").split("\n") if Path("/proc/cpuinfo").exists() else []
    models = [line.partition(":")[2].strip() for line in info if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.system(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "loop": round(min(timeit.repeat(number=1_000_000, repeat=5)) * 1e3, 1),  # nanoseconds of a turn
        "load": [round(load, 2) for load in os.getloadavg()],
        "versions": versions(),
    }


def versions() -> dict[str, str]:
    found = {name: _version(name) for name in ("harmony-conformance", "aiohttp", "uvicorn", "uvloop")}
    if program := nginx_program():
        told = subprocess.run([program, "-v"], capture_output=True, check=False).stderr.decode()
        found["nginx"] = told.strip().rpartition("/")[2]
    for name, programs in (("litellm", LITELLM.parent), ("mitmproxy", MITMPROXY)):
        if (programs / name).exists():
            asked = f"import importlib.metadata as m; print(m.version('{name}'))"
            answer = subprocess.run([programs / "python", "-c", asked], capture_output=True, check=True)
            found[name] = answer.stdout.decode().strip()
    return {name: version for name, version in found.items() if version}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def prepare() -> None:
    """Allow many open files, because a stream needs four in two processes. On SIGTERM, end all started processes."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped"))


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    arguments.add_argument("--out", type=Path, default=OUT)
    arguments.add_argument("--size", choices=SIZES, default="full")
    arguments.add_argument(
        "--quick", dest="size", action="store_const", const="quick", help="about a minute, and rough"
    )
    arguments.add_argument("--rounds", type=int, help="instead of those of the size")
    arguments.add_argument("--only", nargs="+", choices=CONTENDERS, default=list(CONTENDERS), metavar="NAME")
    options = arguments.parse_args()
    size = SIZES[options.size]
    size = replace(size, rounds=options.rounds or size.rounds)
    about = machine()
    skipped = {name: why for name in options.only if (why := CONTENDERS[name].missing())}
    for name, why in skipped.items():
        say(f"skipped: {name}, {why}")
    prepare()
    gc.disable()
    with tempfile.TemporaryDirectory() as folder:
        found = measure([name for name in options.only if name not in skipped], size, Path(folder), skipped)
    labels = {name: one.label for name, one in CONTENDERS.items() if name in options.only}
    results = {
        "machine": about,
        "size": {"name": options.size, **asdict(size)},
        "labels": labels,
        "skipped": skipped,
        **found,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(results, indent=1, sort_keys=True, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
