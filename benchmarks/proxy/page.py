"""Write the page of the proxy's figures from results: `page.py RESULTS SOAK PAGE`."""

import json
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from pairs import APART, GROUPS, JUDGED_LATER, RUSH, SUSTAINED

ORDER = ("direct", "nginx", "unguarded", "standalone", "mitmdump", "addon", "litellm")
ASGI = ("app", "app+guard")
FLAT_MIB = 8
STREAMS_WANTED = 600


class Results:
    """Figures of a run."""

    def __init__(self, data: dict) -> None:
        self.data = data

    def rounds(self, measure: str, name: str, figure: str) -> list[float]:
        return self.data["measures"].get(measure, {}).get(name, {}).get(figure, {}).get("rounds", [])

    def median(self, measure: str, name: str, figure: str) -> float | None:
        found = self.rounds(measure, name, figure)
        return statistics.median(found) if found else None

    def over(self, measure: str, one: str, other: str, figure: str) -> float | None:
        """Return the median difference of two contenders over the rounds. Each round measured both on the same machine."""
        pairs = self._pairs(measure, one, other, figure)
        return statistics.median(mine - yours for mine, yours in pairs) if pairs else None

    def ratio(self, measure: str, one: str, other: str, figure: str) -> float | None:
        """Return the median ratio of two contenders over the rounds."""
        pairs = self._pairs(measure, one, other, figure)
        return statistics.median(mine / yours for mine, yours in pairs) if pairs else None

    def in_turn(self, measure: str, rounds: str, figure: str, value: Callable[..., float], *names: str) -> list[float]:
        """Apply `value` to the figures of contenders measured in turn, or else to the rounds of another measurement."""
        turns = self.data.get("turns", {}).get(measure, {})
        found = [turns.get(name, {}).get(figure, []) for name in names]
        if not all(found):
            found = [self.rounds(rounds, name, figure) for name in names]
        return [value(*figures) for figures in zip(*found, strict=False)]

    def _pairs(self, measure: str, one: str, other: str, figure: str) -> list[tuple[float, float]]:
        found = (self.rounds(measure, name, figure) for name in (one, other))
        return list(zip(*found, strict=False))


@dataclass(frozen=True, kw_only=True)
class Aim:
    """A wanted figure.

    Attributes:
        wanted: the limit; `most` is True for an upper limit.
        found: the measured figure, or several: the median counts; None if not measured.
    """

    what: str
    unit: str
    wanted: float
    found: Callable[[Results], float | list[float] | None]
    most: bool = True

    def row(self, results: Results) -> str:
        found = self.found(results)
        several = found if isinstance(found, list) else []
        found = (statistics.median(found) if found else None) if isinstance(found, list) else found
        sign = "≤" if self.most else "≥"
        if found is None:
            return f"| {self.what} | {sign} {self.wanted:g} {self.unit} | not measured | |"
        reached = found <= self.wanted if self.most else found >= self.wanted
        quartiles = statistics.quantiles(several, n=4, method="inclusive") if len(several) > 1 else []
        between = f" ({_shown(quartiles[0])} – {_shown(quartiles[2])})" if quartiles else ""
        told = f"{_shown(found)}{between} {self.unit}"
        return f"| {self.what} | {sign} {self.wanted:g} {self.unit} | {told} | {'yes' if reached else '**no**'} |"


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def _over(mine: float, yours: float) -> float:
    return mine - yours


def _itself(mine: float) -> float:
    return mine


def _times(mine: float, yours: float) -> float:
    return mine / yours


def _added(mine: float, yours: float, nothing: float) -> float:
    """Return the ratio of the latencies that two contenders add to a direct connection."""
    return (mine - nothing) / (yours - nothing)


def _held(results: Results) -> float | None:
    found = results.data["limits"].get("standalone")
    if found is None or (found["streams"] == found["tried"] < STREAMS_WANTED):
        return None  # more were not tried
    return found["streams"]


def _grown(name: str) -> Callable[[Results], float | None]:
    def found(results: Results) -> float | None:
        memory = results.data["memory"].get(name)
        return memory["late"] - memory["early"] if memory else None

    return found


AIMS = (
    Aim(what="HarmonyGuard, CPU of the path per small JSON request, over the bare app", unit="µs", wanted=10,
        found=lambda of: of.in_turn(JUDGED_LATER, JUDGED_LATER, "path", _over, "app+guard", "app")),
    Aim(what="Judge process, CPU per small exchange", unit="µs", wanted=500,
        found=lambda of: of.in_turn(JUDGED_LATER, JUDGED_LATER, "judge", _itself, "app+guard")),
    Aim(what="HarmonyGuard, CPU of the path per event of 32 paced streams", unit="µs", wanted=13,
        found=lambda of: of.over("stream, 32", "app+guard", "app", "path")),
    Aim(what="… per event as fast as possible", unit="µs", wanted=13,
        found=lambda of: of.over("stream, 8, no pace", "app+guard", "app", "path")),
    Aim(what="… requests/s of the bare app, answers that take 20 ms", unit="×", wanted=0.97, most=False,
        found=lambda of: of.in_turn("json, 32, 20 ms", "json, 32, 20 ms", "rate", _times, "app+guard", "app")),
    Aim(what="… requests/s of the bare app, all cores busy with nothing else", unit="×", wanted=0.97, most=False,
        found=lambda of: of.in_turn(SUSTAINED, "json, 32", "rate", _times, "app+guard", "app")),
    Aim(what="Standalone, 1 stream: what it adds to the time to the first byte, over the same without the guard", unit="×", wanted=1.15,
        found=lambda of: of.in_turn("stream, 1", "stream, 1", "first", _added, "standalone", "unguarded", "direct")),
    Aim(what="… what it adds to each event", unit="×", wanted=1.15,
        found=lambda of: of.in_turn("stream, 1", "stream, 1", "p50", _added, "standalone", "unguarded", "direct")),
    Aim(what="… 32 streams: time to the first byte", unit="×", wanted=1.15,
        found=lambda of: of.in_turn(RUSH, "stream, 32", "first", _added, "standalone", "unguarded", "direct")),
    Aim(what="… 32 streams, begun one after the other: each event", unit="×", wanted=1.15,
        found=lambda of: of.in_turn(APART, APART, "p50", _added, "standalone", "unguarded", "direct")),
    Aim(what="Standalone, CPU per event: how many times less than bare mitmdump", unit="×", wanted=2, most=False,
        found=lambda of: of.ratio("stream, 32", "mitmdump", "standalone", "path")),
    Aim(what="… per JSON request", unit="×", wanted=6, most=False,
        found=lambda of: of.ratio("json, 32", "mitmdump", "standalone", "path")),
    Aim(what="… streams of 10 events/s at a time, none losing an event or waiting more than 1 s", unit="", wanted=STREAMS_WANTED, most=False, found=_held),
    Aim(what="… growth of its memory over a long stream, after the first quarter", unit="MiB", wanted=FLAT_MIB, found=_grown("standalone")),
    Aim(what="mitmproxy addon, CPU per event of 32 paced streams, over bare `stream=True`", unit="×", wanted=1.1,
        found=lambda of: of.ratio("stream, 32", "addon", "mitmdump", "path")),
    Aim(what="… time of each event, streams begun one after the other", unit="×", wanted=1.1,
        found=lambda of: of.in_turn(APART, APART, "p50", _times, "addon", "mitmdump")),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Column:
    title: str
    measure: str
    figure: str
    per: float = 1
    digits: int = 0


REQUESTS = (
    Column(title="path, µs/request", measure="json, 32", figure="path"),
    Column(title="judge, µs/request", measure="json, 32", figure="judge"),
    Column(title="requests/s, 32 at a time", measure="json, 32", figure="rate"),
    Column(title="p50 of one at a time, µs", measure="json, 1", figure="p50"),
    Column(title="p99, µs", measure="json, 1", figure="p99"),
)
STREAMS = (
    Column(title="path, µs/event", measure="stream, 32", figure="path", digits=1),
    Column(title="judge, µs/event", measure="stream, 32", figure="judge", digits=1),
    Column(title="1 stream: first byte, ms", measure="stream, 1", figure="first", per=1000, digits=2),
    Column(title="event p50, µs", measure="stream, 1", figure="p50"),
    Column(title="32 streams: first byte, ms", measure="stream, 32", figure="first", per=1000, digits=2),
    Column(title="event p50, µs", measure="stream, 32", figure="p50"),
    Column(title="event p99, µs", measure="stream, 32", figure="p99"),
    Column(title="no pace: path, µs/event", measure="stream, 8, no pace", figure="path", digits=1),
    Column(title="events/s", measure="stream, 8, no pace", figure="rate"),
)


def table(results: Results, names: Iterable[str], columns: tuple[Column, ...]) -> str:
    titles = " | ".join(column.title for column in columns)
    lines = [f"| | {titles} |", "| --- |" + " ---: |" * len(columns)]
    for name in names:
        label = results.data["labels"].get(name)
        if label is None:
            continue
        if name in results.data["skipped"]:
            lines.append(f"| {label} | {results.data['skipped'][name]} |" + " |" * (len(columns) - 1))
            continue
        lines.append(f"| {label} | " + " | ".join(_cell(results, name, column) for column in columns) + " |")
    return "\n".join(lines)


def _cell(results: Results, name: str, column: Column) -> str:
    found = results.rounds(column.measure, name, column.figure)
    if not found:
        return "–"
    if len(found) == 1:
        return f"{found[0] / column.per:,.{column.digits}f}"
    low, middle, high = (value / column.per for value in (min(found), statistics.median(found), max(found)))
    return f"{middle:,.{column.digits}f} ({low:,.{column.digits}f} – {high:,.{column.digits}f})"


def limits(results: Results) -> str:
    lines = ["| | streams | what ended the search |", "| --- | ---: | --- |"]
    for name in [name for name in ORDER if name in results.data["limits"]]:
        found = results.data["limits"][name]
        why = found["why"] or "no more were tested"
        lines.append(f"| {results.data['labels'][name]} | {found['streams']:,} | {why} |")
    return "\n".join(lines)


def memory(results: Results) -> str:
    lines = [
        "| | stream, MiB | memory before, MiB | most in the first quarter | most afterwards |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name, found in results.data["memory"].items():
        label = results.data["labels"][name] + ("" if found["complete"] else " (did not end well)")
        figures = (found["bytes"] / 2**20, found["before"], found["early"], found["late"])
        lines.append(f"| {label} | " + " | ".join(f"{figure:,.0f}" for figure in figures) + " |")
    return "\n".join(lines)


def failures(results: Results) -> str:
    found = [
        f"{results.data['labels'][name]}, {measure}: {int(sum(figures['failed']['rounds']))}"
        for measure, by in results.data["measures"].items()
        for name, figures in by.items()
        if sum(figures["failed"]["rounds"])
    ]
    return "Answers that failed: " + "; ".join(found) + "." if found else "No answer failed in any measurement."


def soak(path: Path) -> str:
    if not path.exists():
        return "Not run yet: `make bench-soak`."
    found = json.loads(path.read_text("utf-8"))
    kinds = ", ".join(f"{count:,} {name}" for name, count in sorted(found["kinds"].items()) if name != "none")
    counted, kept = found["accounting"], found["memory"]
    verdict = f"**{len(found['violations'])} violations**" if found["violations"] else "no violation"
    return (
        f"{found['seconds'] / 60:g} minutes, {found['streams']} streams at a time, {sum(found['kinds'].values()):,} exchanges, "
        f"{found['bytes'] / 1e6:,.0f} MB delivered and compared byte by byte: {verdict}.\n\n"
        f"- Faults: {kinds}.\n"
        f"- Memory, most in the second quarter and in the last: path {kept['path'][0]:.0f} and {kept['path'][1]:.0f} MiB, "
        f"judge {kept['judge'][0]:.0f} and {kept['judge'][1]:.0f} MiB.\n"
        f"- {counted['asked']:,} exchanges sent, {counted['lines']:,} lines in the log, {counted['dropped']:,} dropped."
    )


PAGE = """# Costs of the proxy

<!-- Made by `make bench-proxy` (benchmarks/proxy/page.py) from benchmarks/results/proxy.json; the soak by `make bench-soak`. -->

Measured on {machine}.

- Each of {rounds} rounds measures every contender, one after the other, beginning with a different one each time. Client and server run on the same machine, so read
  ratios and CPU time first.
- Figures are medians of the rounds, with the lowest and the highest in parentheses. Differences and ratios are computed per round, before their median.
- CPU time is user and system time of the process and its children, less their idle use in the same time.
- *Path* is the cost of an exchange on its way. *Judge* is the process that judges answers afterwards, from a bounded queue, with the remaining capacity of the
  machine. Its cost is reported separately and never part of the path.
- Figures with a range in the first table are medians and quartiles of alternating measurements, {turns} times. Small requests: {requests_often} times. The first
  byte of 32 streams: {rush_often} times. The quartiles show the noise of the measurement.
- One stream, and streams begun one after the other, run through the proxy with and without the guard at the same time. Their events alternate.

## Goals

| figure | wanted | measured | reached |
| --- | --- | ---: | --- |
{aims}

The first two are measured separately. The judge process is stopped until all answers have arrived, then it has the machine: {judged} exchanges/s on one core.
While it runs, it competes with the path for caches and memory. The path then takes {busy} µs more than the bare app, and the judge process is throttled.
It is also stopped during the measurement of the first byte of 32 streams. These end before it could detect the new traffic.

With all cores busy, an app that only answers loses requests/s. A path of 10 µs is {share} of its {bare} µs per request, and the judge process takes a quarter
of a core as well. This figure uses eight times as many requests as the others, half a second and more, because the throttle reacts only after 50 ms.
An answer of a model takes thousands of times as long.

## Small answers

A chat completion of about 380 bytes, connections kept alive.

{requests}

## Streams

Events of about 215 bytes, each with its send time; latency is measured from there to the client. One stream: 10 ms between events. 32 streams at a time: 20 ms,
all begun within 20 ms, over warm connections. No pace: 8 streams at full speed.

{streams}

## In the server's own process

A minimal ASGI app under uvicorn with uvloop and httptools, without and with `HarmonyGuard` (observing).

{asgi_requests}

{asgi_streams}

## Number of streams

10 events/s each. The figure is the largest tested number with which every event of every stream arrived, none more than 1 s late. Client and server ran on the
same {cores} cores.

{limits}

## Memory

{memory}

## A soak with faults

{soak}

## Method

`make bench-proxy`; `QUICK=1` takes about a minute and is rough. {failures} Client and server are asyncio protocols on uvloop with httptools (`benchmarks/proxy/`).
The row "nothing between" shows their cost. Configuration of nginx: one worker, no buffering, a pool of connections. mitmdump runs with `stream=True` and
nothing else, over HTTP/1.1.{mitmproxy}
"""
OLDEST_MITMPROXY = (12, 2, 2)


def described(machine: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in sorted(machine["versions"].items()))
    load = "/".join(f"{value:g}" for value in machine["load"])
    python = machine["python"] + (f" ({machine['loop']:g} ns a turn of an empty loop)" if "loop" in machine else "")
    return f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, {python}, load {load} at the start; {versions}"


def of_mitmproxy(version: str) -> str:
    """Return a sentence if the measured mitmproxy is older than those that the addon supports."""
    if not version or tuple(map(int, version.split(".")[:3])) >= OLDEST_MITMPROXY:
        return ""
    oldest = ".".join(map(str, OLDEST_MITMPROXY))
    return f" The rows of mitmproxy are of version {version}; the oldest that the addon supports is {oldest}."


def page(results: Results, soaked: Path) -> str:
    bare = results.median("json, 32", "app", "path") or 0
    judging = results.in_turn(JUDGED_LATER, JUDGED_LATER, "judge", _itself, "app+guard")
    busy = results.in_turn(SUSTAINED, "json, 32", "path", _over, "app+guard", "app")
    return PAGE.format(
        machine=described(results.data["machine"]),
        mitmproxy=of_mitmproxy(results.data["machine"]["versions"].get("mitmproxy", "")),
        cores=results.data["machine"]["cores"],
        rounds=results.data["size"]["rounds"],
        turns=(turns := results.data["size"].get("turns", results.data["size"]["rounds"])),
        requests_often=turns * next(group.often for group in GROUPS if group.what == JUDGED_LATER),
        rush_often=turns * next(group.often for group in GROUPS if group.what == RUSH),
        aims="\n".join(aim.row(results) for aim in AIMS),
        judged=f"{1e6 / statistics.median(judging):,.0f}" if judging else "–",
        busy=_shown(statistics.median(busy)) if busy else "–",
        share=f"{10 / bare:.0%}" if bare else "a good part",
        bare=f"{bare:.0f}",
        requests=table(results, ORDER, REQUESTS),
        streams=table(results, ORDER, STREAMS),
        asgi_requests=table(
            results,
            ASGI,
            (*REQUESTS, Column(title="requests/s, answers of 20 ms", measure="json, 32, 20 ms", figure="rate")),
        ),
        asgi_streams=table(results, ASGI, STREAMS),
        limits=limits(results),
        memory=memory(results),
        failures=failures(results),
        soak=soak(soaked),
    )


if __name__ == "__main__":
    source, soaked, target = map(Path, sys.argv[1:])
    target.write_text(page(Results(json.loads(source.read_text("utf-8"))), soaked), "utf-8")
