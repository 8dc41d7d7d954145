"""A process that answers each line of its standard input by one line of JSON. Everything it may do wrong is one exception."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, Queue, SimpleQueue
from threading import Thread
from typing import IO, Final, Self

from harmony_conformance.golden.data import GoldenError
from harmony_conformance.json_value import InvalidJsonError, JsonObject, loads
from harmony_conformance.runtime.terminal_text import escape_invisible

_LONGEST_LINE: Final = 2**24
_STDERR_KEPT: Final = 4096
_SHOWN: Final = 120  # characters of foreign output
_LINES_KEPT: Final = 16  # the reader waits, or a flood of lines would fill the memory
_END_SECONDS: Final = 5.0  # a process may take this long to end after its input
_DRAIN_SECONDS: Final = 0.2
_ERROR: Final = re.compile("panic|error|exception|fatal", re.IGNORECASE)


class UnstartableCommandError(GoldenError):
    """The command of an implementation cannot be started. The message has the reason."""


class NoAnswerError(Exception):
    """The process ended or was silent. The message has the reason in one line."""


class SilentProcessError(NoAnswerError):
    """The process did not answer in time."""


class UnreadableLineError(Exception):
    """The process wrote something else than the answer. The message has the reason in one line."""


class PipeProcess:
    """A running process. Requests are sent one at a time. At the end of the context it is ended, with its children."""

    def __init__(self, command: Sequence[str]) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: S603 - the user's own command, without a shell
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (OSError, ValueError) as problem:
            reason = problem.strerror if isinstance(problem, OSError) else str(problem)
            raise UnstartableCommandError(f"cannot start {command[0]}: {reason}") from None
        self._requests: SimpleQueue[bytes] = SimpleQueue()
        self._lines: Queue[bytes] = Queue(_LINES_KEPT)
        self._stderr = b""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._writer = Thread(target=self._write, args=(self._process.stdin,), daemon=True)
        self._readers = [
            Thread(target=self._read, args=(self._process.stdout,), daemon=True),
            Thread(target=self._read_stderr, args=(self._process.stderr,), daemon=True),
        ]
        for thread in (self._writer, *self._readers):
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()
        self._requests.put(b"")

    def ask(self, request: JsonObject, timeout: float) -> JsonObject:
        """Send a request and return the answer.

        Raises:
            NoAnswerError: The process ended.
            SilentProcessError: There was no line within `timeout` seconds.
            UnreadableLineError: The line is no JSON object, or has another id.
        """
        self._requests.put(json.dumps(request).encode() + b"\n")
        try:
            line = self._lines.get(timeout=timeout)
        except Empty:
            seconds = round(timeout, 1) or timeout  # without digits that each start changes
            raise SilentProcessError(
                f"no answer within {seconds:g} s; each answer must be one line, and flushed"
            ) from None
        if not line:
            raise NoAnswerError(f"the process {self._end()}{self._last_words()}")
        return _read_answer(line, request)

    def finish(self) -> Sequence[str]:
        """Close the input, wait for the end of the process, and return a sentence for each peculiarity."""
        self._requests.put(b"")
        try:
            line = self._lines.get(timeout=_END_SECONDS)
        except Empty:
            return ["the process did not end when its input ended"]
        if line:
            return [f"the process wrote more lines than answers: {_excerpt(line)}"]
        end = self._end()
        return (
            [] if end == "ended with exit code 0" else [f"after the last answer, the process {end}{self._last_words()}"]
        )

    def _end(self) -> str:
        try:
            code = self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output and did not end"
        if code >= 0:
            return f"ended with exit code {code}"
        names = {number.value: number.name for number in signal.Signals}
        return f"was ended by {names.get(-code, f'signal {-code}')}"

    def _last_words(self) -> str:
        """Return the last line of standard error that names an error, else the last one with letters."""
        self._readers[1].join(1)
        lines = [line.strip() for line in self._stderr.decode("utf-8", "replace").split("\n")]
        named = [index for index, line in enumerate(lines) if _ERROR.search(line)]
        lettered = [index for index, line in enumerate(lines) if any(map(str.isalpha, line))]
        if not lettered:
            return ""
        at = (named or lettered)[-1]
        words = (
            " ".join(lines[at : at + 2]) if lines[at].endswith(":") else lines[at]
        )  # Rust's message is the next line
        return f": {escape_invisible(words[:_SHOWN])}"

    def _kill(self) -> None:
        if sys.platform == "win32":
            self._process.kill()
        else:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)
        with suppress(Empty):  # the reader may wait for room
            while self._lines.get(timeout=_DRAIN_SECONDS):
                pass

    def _write(self, stdin: IO[bytes]) -> None:
        with suppress(OSError), stdin:
            while request := self._requests.get():
                stdin.write(request)
                stdin.flush()

    def _read(self, stdout: IO[bytes]) -> None:
        with suppress(OSError, ValueError), stdout:
            while line := stdout.readline(_LONGEST_LINE):
                self._lines.put(line)
        self._lines.put(b"")

    def _read_stderr(self, stderr: IO[bytes]) -> None:
        with suppress(OSError, ValueError), stderr:
            while part := os.read(stderr.fileno(), _STDERR_KEPT):
                self._stderr = (self._stderr + part)[-_STDERR_KEPT:]


def _read_answer(line: bytes, request: JsonObject) -> JsonObject:
    if len(line) >= _LONGEST_LINE and not line.endswith(b"\n"):
        raise UnreadableLineError(f"invalid answer: expected a line of at most {_LONGEST_LINE} bytes")
    try:
        answer = loads(line)
    except InvalidJsonError:
        raise UnreadableLineError(f"invalid answer: expected one line of JSON, got {_excerpt(line)}") from None
    if not isinstance(answer, dict) or "id" not in answer:
        raise UnreadableLineError(f"invalid answer: expected a JSON object with the id, got {_excerpt(line)}")
    if answer["id"] != request["id"]:
        raise UnreadableLineError(
            f"answer out of order: expected the id {request['id']}, got {str(answer['id'])[:_SHOWN]}"
        )
    return answer


def _excerpt(line: bytes) -> str:
    shown = line.decode("utf-8", "replace").strip()
    return repr(shown[:_SHOWN]) + ("…" if len(shown) > _SHOWN else "")
