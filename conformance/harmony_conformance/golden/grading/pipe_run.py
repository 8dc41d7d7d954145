"""A run of the vectors through a process: one request a line, one answer a line, and a grade for each vector.

    {"id": "parse/headers/call-recipient-first", "kind": "parse", …members of the vector's input}     to the process
    {"id": "parse/headers/call-recipient-first", "messages": […]}                                      from the process
    {"id": "parse/lenient/cut-in-header", "unsupported": true}                                         from the process

After a fault the process is started again, so that each fault costs one vector.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

from harmony_conformance.golden.grading.answer import vector_kind
from harmony_conformance.golden.grading.grade import GradeReport, VectorGrade, VectorOutcome, grade_answer
from harmony_conformance.golden.grading.pipe_process import (
    NoAnswerError,
    PipeProcess,
    SilentProcessError,
    UnreadableLineError,
    UnstartableCommandError,
)
from harmony_conformance.golden.vectors.vector_file import Vector

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds for one answer."""

START_SECONDS: Final = 60.0
"""Least time for the first answer: the process may be compiled, or load its vocabulary."""

_SILENT_FAULTS: Final = 3  # faults before the first answer that end the run
_COSTLY_FAULTS: Final = 5  # timeouts, and unreadable lines in a row, that end the run
_RESTARTS: Final = 200
_START_FACTOR: Final = 3.0  # a later start may take this much longer than the first one


def run_command(command: str, vectors: Sequence[Vector], *, timeout: float = DEFAULT_TIMEOUT) -> GradeReport:
    """Ask the process for every vector and grade its answers.

    Raises:
        UnstartableCommandError: The command cannot be started.
    """
    try:
        words = shlex.split(command)
    except ValueError as problem:
        raise UnstartableCommandError(f"invalid command {command!r}: {problem}") from None
    if not words:
        raise UnstartableCommandError("invalid command: expected a program and its arguments, got nothing")
    session = _PipeSession(words=words, timeout=timeout, rest=list(reversed(vectors)))
    while session.rest and not session.stop_reason:
        session.run_process()
    return session.report(command)


@dataclass(kw_only=True)
class _PipeSession:
    words: Sequence[str]
    timeout: float
    rest: list[Vector]
    grades: list[VectorGrade] = field(default_factory=list[VectorGrade])
    problems: list[str] = field(default_factory=list[str])
    stop_reason: str = ""
    start_seconds: float | None = None  # time of the first answer of all
    processes: int = 0
    timeouts: int = 0
    unreadable_in_a_row: int = 0

    def run_process(self) -> None:
        """Start the process and ask until its first fault or the last vector."""
        self.processes += 1
        with PipeProcess(self.words) as process:
            timeout = self._start_timeout()
            while self.rest:
                vector, started = self.rest.pop(), monotonic()
                try:
                    answer = process.ask({"id": vector.id, "kind": vector_kind(vector), **vector.input}, timeout)
                except NoAnswerError as fault:
                    self.timeouts += isinstance(fault, SilentProcessError)
                    self._add_fault(vector, VectorOutcome.FAILED, str(fault))
                    return
                except UnreadableLineError as fault:
                    self.unreadable_in_a_row += 1
                    self._add_fault(vector, VectorOutcome.UNREADABLE, str(fault))
                    return
                if self.start_seconds is None:
                    self.start_seconds = monotonic() - started
                self.unreadable_in_a_row = 0
                timeout = self.timeout
                self.grades.append(grade_answer(vector, answer))
            self.problems.extend(process.finish())

    def _start_timeout(self) -> float:
        """Return the time for the first answer of a process, which includes its start."""
        if self.start_seconds is None:
            return max(self.timeout, START_SECONDS)
        return self.timeout + _START_FACTOR * self.start_seconds

    def _add_fault(self, vector: Vector, outcome: VectorOutcome, problem: str) -> None:
        self.grades.append(VectorGrade(vector=vector, outcome=outcome, problem=problem))
        if self.start_seconds is None and self.processes >= _SILENT_FAULTS:
            self.stop_reason = f"stopped: no answer to {_SILENT_FAULTS} requests: {problem}"
        elif self.timeouts >= _COSTLY_FAULTS:
            self.stop_reason = f"stopped: no answer in time to {_COSTLY_FAULTS} requests, the last one {vector.id}"
        elif self.unreadable_in_a_row >= _COSTLY_FAULTS:
            self.stop_reason = f"stopped: {_COSTLY_FAULTS} unreadable lines in a row: {problem}"
        elif self.processes >= _RESTARTS:
            self.stop_reason = f"stopped: the process had to be started {_RESTARTS} times: {problem}"

    def report(self, name: str) -> GradeReport:
        """Return the grades. Without any answer nothing was judged."""
        left = [
            VectorGrade(vector=vector, outcome=VectorOutcome.NOT_RUN, problem=self.stop_reason)
            for vector in reversed(self.rest)
        ]
        asked = self.grades
        if self.start_seconds is None:
            asked = [
                VectorGrade(vector=one.vector, outcome=VectorOutcome.NOT_RUN, problem=one.problem) for one in asked
            ]
        stopped = [self.stop_reason] if self.stop_reason else []
        return GradeReport(name=name, grades=[*asked, *left], problems=[*stopped, *self.problems])
