"""The suite as the client of a hostile server."""

from __future__ import annotations

import functools
import itertools
import json
import signal
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from attacked_processes import alive, children, finish, judged, run, start, until
from case import Case, expect
from payloads import BOMBS
from servers import EVENTS_HEAD, Answer, HostileServer, Received, answer_with, completion, event, hostile, models, whole

PART = "run"
FEW = ("--latency", "0", "--concurrency", "1", "--max-requests", "4", "--select", "streaming.*")


def attacked(folder: Path, answer: Answer, *options: str, codes: tuple[int, ...] = (1, 2), seconds: float = 55) -> str:
    """Run a few requests against a server; no fault may be our own."""
    with hostile(answer) as server:
        return judged(
            run(folder, "run", server.url, "--timeout", "5", *FEW, *options, "--out", "out", seconds=seconds), *codes
        )


def fixed(body: bytes, head: bytes = b"content-type: application/json\r\n", status: bytes = b"200 OK") -> Answer:
    """The same bytes for every request except the list of models."""

    def answer(request: Received) -> Iterator[bytes]:
        yield whole(body, head, status) if request.is_chat else models()

    return answer


def bomb(coding: str, folder: Path) -> str:
    body = BOMBS[coding]()
    outcome = attacked(
        folder, fixed(body, b"content-type: application/json\r\ncontent-encoding: %b\r\n" % coding.encode())
    )
    return f"{outcome}; {len(body):,} bytes sent"


def large_answer(folder: Path) -> str:
    return attacked(folder, fixed(b'{"choices": "' + b"x" * 50 * 2**20 + b'"}'))


def angle_brackets(folder: Path) -> str:
    return attacked(folder, fixed(json.dumps(completion("<" * 9 * 2**20)).encode()))


def deep_answer(folder: Path) -> str:
    return attacked(folder, fixed(b"[" * 200_000 + b"]" * 200_000))


def many_headers(folder: Path) -> str:
    return attacked(folder, fixed(b"{}", b"".join(b"x-%d: y\r\n" % number for number in range(100_000))))


def endless_stream(folder: Path) -> str:
    def answer(request: Received) -> Iterator[bytes]:
        if not request.is_chat:
            yield models()
            return
        yield b"HTTP/1.1 200 OK\r\n" + EVENTS_HEAD + b"connection: close\r\n\r\n"
        piece = event({"choices": [{"index": 0, "delta": {"content": "word " * 2000}}]})
        yield from itertools.repeat(piece)

    return attacked(folder, answer)


def redirects(folder: Path) -> str:
    with hostile(answer_with("stolen")) as other:

        def answer(request: Received) -> Iterator[bytes]:
            place = b"location: http://127.0.0.1:%d%b\r\n" % (other.port, request.path.encode())
            yield whole(b"", place, b"307 Temporary Redirect") if request.is_chat else models()

        outcome = attacked(folder, answer)
        expect(not other.received, "another host was asked")
        return f"{outcome}; the other host was not asked"


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
BROKEN = {
    "nothing": b"",
    "no HTTP": b"hello\r\n\r\n",
    "short body": HEAD + b"content-length: 50\r\n\r\n{}",
    "long body": HEAD + b"content-length: 2\r\n\r\n{}" + b"x" * 5000,
    "cut chunk": HEAD + b"transfer-encoding: chunked\r\n\r\nff\r\n{}",
    "negative chunk": HEAD + b"transfer-encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "two lengths": HEAD + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}x",
    "head without end": b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 50_000,
    "invalid UTF-8 and NUL": whole(b'{"choices": "\xff\xfe\0"}'),
    "500": whole(b"{}", status=b"500 Internal Server Error"),
}


def broken_answers(folder: Path) -> str:
    """Answers that are broken as HTTP, one after the other."""
    turns = itertools.cycle(BROKEN.values())

    def answer(request: Received) -> Iterator[bytes]:
        yield next(turns) if request.is_chat else models()

    with hostile(answer) as server:
        options = ("--timeout", "5", "--latency", "0", "--concurrency", "1", "--max-requests", "60", "--out", "out")
        ended = run(folder, "run", server.url, *options)
        return judged(ended, 1, 2) + f"; {len(server.received)} requests"


def goes_silent(good: int) -> Answer:
    """A server that answers `good` requests, then none."""
    counter, held = itertools.count(), Event()

    def answer(request: Received) -> Iterable[bytes]:
        if next(counter) < good:
            yield from answer_with("Hello.")(request)
        else:
            held.wait(120)

    return answer


def limited_by_option(folder: Path) -> str:
    with hostile(goes_silent(40)) as server:
        ended = run(
            folder,
            "run",
            server.url,
            "--timeout",
            "2",
            "--latency",
            "0",
            "--max-time",
            "10",
            "--out",
            "out",
            seconds=50,
        )
        return judged(ended, 1, 2) + f"; {len(server.received)} requests"


def limited_by_default(folder: Path) -> str:
    with hostile(goes_silent(40)) as server:
        ended = run(folder, "run", server.url, "--timeout", "1", "--latency", "0", "--out", "out", seconds=75)
        return judged(ended, 1, 2) + f"; {len(server.received)} requests"


def retry_after(folder: Path) -> str:
    body = json.dumps({"error": {"message": "later"}}).encode()
    with hostile(fixed(body, b"retry-after: 2\r\n", b"429 Too Many Requests")) as server:
        ended = run(folder, "run", server.url, "--latency", "0", "--max-time", "10", "--out", "out", seconds=50)
        return judged(ended, 1, 2) + f"; {len(server.received)} requests"


def until_requests(server: HostileServer, process: subprocess.Popen[bytes], count: int) -> None:
    until(lambda: len(server.received) >= count or process.poll() is not None, 40, "no requests")
    expect(process.poll() is None, "ended before it could be killed")


def killed(folder: Path) -> str:
    """Kill a run, look at its recording, and resume it."""
    with hostile(answer_with("Hello.")) as server:
        options = ("--latency", "0", "--out", "out", "--concurrency", "2")
        process = start(folder, "run", server.url, *options)
        until_requests(server, process, 60)
        below = children(process.pid)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        until(lambda: not any(alive(child) for child in below), 10, "child processes left")
        lines = (folder / "out" / "exchanges.jsonl").read_bytes().splitlines(keepends=True)
        expect(lines, "nothing recorded")
        whole_lines = sum(line.endswith(b"\n") and json.loads(line) is not None for line in lines)
        replayed = run(folder, "run", "replay:out/exchanges.jsonl", "--out", "again")
        expect(replayed.code in (1, 2), f"replay of a killed run: exit {replayed.code}")
        resumed = run(folder, "run", server.url, *options, "--resume", seconds=100)
        outcome = f"{whole_lines} of {len(lines)} lines whole; resumed: {judged(resumed, 0, 1)}"
        expect((folder / "out" / "report.jsonl").is_file(), f"{outcome}, without a report")
        return outcome


def torn_replay(folder: Path) -> str:
    with hostile(answer_with("Hello.")) as server:
        run(folder, "run", server.url, *FEW, "--out", "out")
    path = folder / "out" / "exchanges.jsonl"
    data = path.read_bytes()
    path.write_bytes(data[:-50])
    return judged(run(folder, "run", "replay:out/exchanges.jsonl", "--out", "again"), 1, 2)


def two_into_one(folder: Path) -> str:
    with hostile(answer_with("Hello.")) as server:
        first = start(folder, "run", server.url, "--latency", "0", "--out", "out", "--max-requests", "300")
        until_requests(server, first, 10)
        second = run(folder, "run", server.url, *FEW, "--out", "out")
        finish(first, 50)
        outcome = judged(second, 2)
        expect(str(first.pid) in second.err, f"{outcome}; the first process is not named")
        return f"second: {outcome}, names the first process"


@contextmanager
def full_disk(folder: Path, size: str) -> Iterator[Path]:
    """A separate small file system where that is permitted; raises `OSError` otherwise."""
    place = folder / "disk"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(place)], check=False, capture_output=True
    )
    if done.returncode:
        raise OSError("mounting a small file system is not permitted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=False, capture_output=True)


def disk_full(folder: Path) -> str:
    with hostile(answer_with("Hello. " * 200)) as server, full_disk(folder, "1m") as disk:
        ended = run(folder, "run", server.url, "--latency", "0", "--out", str(disk / "out"), "--concurrency", "4")
        outcome = judged(ended, 2)
        data = (disk / "out" / "exchanges.jsonl").read_bytes()
        expect(b"\0" not in data, f"{outcome}; {data.count(0):,} NULs in the recording")
        replayed = run(folder, "run", f"replay:{disk}/out/exchanges.jsonl", "--out", "again")
        expect(
            replayed.code in (1, 2) and (folder / "again" / "report.jsonl").is_file(),
            f"replay: exit {replayed.code}: {replayed.last_line()}",
        )
        return f"{outcome}; {data.count(10)} lines replayed: exit {replayed.code}"


def read_only(folder: Path) -> str:
    (folder / "file").write_text("", "utf-8")
    with hostile(answer_with("Hello.")) as server:
        ended = run(folder, "run", server.url, *FEW, "--out", "file/out")
        return judged(ended, 2)


def case(name: str, report: str, expected: str, attack: object, **limits: float) -> Case:
    return Case(name=f"run.{name}", part=PART, report=report, expected=expected, attack=attack, **limits)  # type: ignore[arg-type]


REFUSED = "refused at 10 MiB; exit 1 or 2"
CASES = (
    *(
        case(f"bomb.{coding.replace(', ', '+')}", "F2", REFUSED, functools.partial(bomb, coding), seconds=90)
        for coding in BOMBS
    ),
    case("answer of 50 MB", "survived 1", REFUSED, large_answer),
    case("9 MB of <", "F10", "exit 1 or 2 within the limits", angle_brackets, memory=800),
    case("JSON 200,000 deep", "survived 1", "exit 1 or 2", deep_answer, memory=700),
    case("100,000 headers", "survived 3", "exit 1 or 2", many_headers),
    case(f"{len(BROKEN)} broken answers", "survived 3", "exit 1 or 2", broken_answers),
    case("endless stream", "survived 3", REFUSED, endless_stream, memory=500),
    case("redirect to another host", "survived 3", "not followed", redirects),
    case("silent server, --max-time 10", "F9", "over within the limit; exit 1 or 2", limited_by_option),
    case(
        "silent server, no option", "F9", "stops after repeated timeouts; exit 1 or 2", limited_by_default, seconds=90
    ),
    case("Retry-After for ever, --max-time 10", "F9", "over within the limit; exit 1 or 2", retry_after),
    case("kill -9, replay, resume", "F9", "lines whole, no children, resumed", killed, seconds=180),
    case("torn recording", "F9", "replay is incomplete: exit 1 or 2", torn_replay),
    case("two runs into one folder", "F10", "the second is refused", two_into_one, seconds=90),
    case("disk full", "F3", "no hole; the replay works", disk_full, seconds=100),
    case("folder cannot be made", "survived 3", "exit 2", read_only),
)
