"""The attacked parts as real processes: commands that end, and servers that listen."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from case import UnexpectedOutcomeError, expect

COMMAND = [sys.executable, "-m", "harmony_conformance"]
START_SECONDS = 30.0
STOP_SECONDS = 20.0
OWN_FAULT = re.compile(r"Traceback|error of our own|internal error|please report|unrecognized arguments", re.IGNORECASE)
"""The words of an error that no input may cause, or of an option that does not exist."""


@dataclass(frozen=True)
class Finished:
    """The end of a command: its exit code (negative: the signal), and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err

    def last_line(self) -> str:
        lines = [line for line in self.err.splitlines() if line.strip()]
        return lines[-1][:120] if lines else ""


@dataclass(frozen=True)
class Listener:
    """A listening process."""

    process: subprocess.Popen[bytes]
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def run(folder: Path, *arguments: str, seconds: float = 60, environment: Mapping[str, str] | None = None) -> Finished:
    """Run the command to its end."""
    process = start(folder, *arguments, environment=environment)
    return finish(process, seconds)


def start(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
    """Start the command."""
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_PROXY": "*", **(environment or {})},
    )


def finish(process: subprocess.Popen[bytes], seconds: float) -> Finished:
    """Wait for the end of a command."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise UnexpectedOutcomeError(f"not over after {seconds:.0f} s") from None
    return Finished(process.returncode, out.decode("utf-8", "surrogateescape"), err.decode("utf-8", "surrogateescape"))


def script(folder: Path, text: str, *, seconds: float = 60) -> Finished:
    """Run a Python program that uses the library."""
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    return finish(process, seconds)


@contextmanager
def listening(folder: Path, *arguments: str) -> Iterator[Listener]:
    """A command that listens on a free port and prints its URL first."""
    with (folder / f"{arguments[0]}.err").open("wb") as errors:
        process = subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONUNBUFFERED": "1", "NO_PROXY": "*"},
        )
        assert process.stdout
        line = process.stdout.readline().decode()
        found = re.search(r"http://[^:/]+:(\d+)", line)
        try:
            expect(
                found, f"did not start: {line} {(folder / f'{arguments[0]}.err').read_text('utf-8', 'replace')[-300:]}"
            )
            assert found
            yield Listener(process, int(found[1]))
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextmanager
def proxy(folder: Path, upstream: int, *options: str) -> Iterator[Listener]:
    """The standalone proxy before a server on loopback."""
    target = f"openai:http://127.0.0.1:{upstream}/v1"
    with listening(
        folder, "proxy", "--upstream", target, "--listen", "127.0.0.1:0", "--log", "log.jsonl", "--drain", "1", *options
    ) as listener:
        yield listener


@contextmanager
def serve(folder: Path) -> Iterator[Listener]:
    """The reference server."""
    with listening(folder, "serve", "--port", "0") as listener:
        yield listener


@dataclass(frozen=True)
class Reply:
    """An answer as a plain client reads it."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def post(url: str, body: bytes, *, headers: Mapping[str, str] | None = None, seconds: float = 30) -> Reply:
    """Send one request; an error status is an answer."""
    merged = {"Content-Type": "application/json", **(headers or {})}
    return request(urllib.request.Request(url, data=body, headers=merged, method="POST"), seconds)


def get(url: str, *, seconds: float = 30) -> Reply:
    return request(urllib.request.Request(url), seconds)


def request(asked: urllib.request.Request, seconds: float) -> Reply:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(asked, timeout=seconds) as answer:
            return Reply(answer.status, dict(answer.headers), answer.read())
    except urllib.error.HTTPError as error:
        return Reply(error.code, dict(error.headers), error.read())
    except urllib.error.URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else error from None


def raw(port: int, data: bytes, *, seconds: float = 3, finish: bool = True) -> bytes:
    """Send bytes and return all that comes back until the end, a silence or a reset."""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        received = b""
        try:
            connection.sendall(data)
            if finish:
                connection.settimeout(seconds)
            while more := connection.recv(65536):
                received += more
        except OSError:
            pass
        return received


def until(condition: Callable[[], object], seconds: float, outcome: str) -> None:
    """Wait for a condition; raise with the outcome if it does not come true."""
    stop = time.monotonic() + seconds
    while not condition():
        expect(time.monotonic() < stop, outcome)
        time.sleep(0.02)


def resident(process: int) -> float:
    """MiB of resident memory of a process now; 0 if it is gone."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text("ascii").split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def children(process: int) -> list[int]:
    """The processes that a process started, and theirs."""
    found = _children(process)
    return found + [grandchild for child in found for grandchild in _children(child)]


def _children(process: int) -> list[int]:
    numbers: list[int] = []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            numbers += [int(word) for word in task.read_text("ascii").split()]
        except OSError:
            continue
    return numbers


def alive(process: int) -> bool:
    """Return True if the process runs and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text("ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def judged(finished: Finished, *codes: int) -> str:
    """Check the end of a command: one of the exit codes, and no fault of our own."""
    outcome = f"exit {finished.code}"
    said = f"{outcome}: {finished.last_line()}"
    expect(finished.code in codes and not OWN_FAULT.search(finished.err), said)
    return outcome
