"""Progress of a run on standard error: a bar on a terminal, else a line after 5 seconds and every 30 seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from harmony_conformance.engines.discovery import Capabilities
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.golden.scenario import Scenario, Step, expand
from harmony_conformance.report.formats.terminal import report_console
from harmony_conformance.runner.judge_run import Plan
from harmony_conformance.runner.run import Options
from harmony_conformance.runner.sender import sendable_scenarios
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.transport.messages import FailureKind

_FIRST, _INTERVAL = 5.0, 30.0
"""Seconds until the first line, and between two lines."""
_SILENCE = 5.0
"""Seconds without an answer that a line mentions."""


class RunProgress:
    """State: the number of requests of the run, and of those that are finished, lost or skipped."""

    def __init__(
        self, plan: Plan, tries: int, count_failures: Callable[[], int | None], timeout: float = Options.timeout
    ) -> None:
        """`count_failures`: returns the number of failed results so far, None if it is known only at the end. `timeout`: that of a request."""
        self.total = self.finished = 0
        self._plan, self._tries, self._count_failures = plan, tries, count_failures
        self._names = {scenario.name for scenario in plan.scenarios}
        self._lost = self._skipped = 0
        self._timeout = timeout
        self._started = self._last = monotonic()
        self.update: Callable[[], None] = lambda: None

    def begin(self, found: Capabilities) -> None:
        """Receive the capabilities, which determine the scenarios that are sent."""
        self.total = self._tries * sum(
            _is_sent(step, scenario, found)
            for scenario in sendable_scenarios(self._plan.scenarios, found.script_methods)
            for step in expand(scenario)
        )
        self._started = self._last = monotonic()
        self.update()

    def add(self, x: Exchange) -> None:
        """Receive a finished exchange."""
        self._last = monotonic()
        if x.scenario in self._names:
            self.finished += 1
            is_skipped = x.failure is not None and x.failure.kind is FailureKind.NOT_SENT
            self._skipped += is_skipped
            self._lost += x.failure is not None and x.response is None and not is_skipped
            self.update()

    @property
    def problems(self) -> str:
        """The failures so far, and the requests that the suite skipped, in words; empty without any."""
        failed = self._count_failures()
        counts = {"failed": failed or 0, "without an answer": self._lost, "not sent": self._skipped}
        return ", ".join(f"{count} {what}" for what, count in counts.items() if count)

    def describe(self) -> str:
        """Return the progress in one line."""
        parts = [f"{self.finished} of {number_of(self.total, 'request')}", self.problems]
        at = monotonic()
        if self.finished:
            left = (at - self._started) / self.finished * max(0, self.total - self.finished)
            parts.append(f"about {left:.0f} s left" if left < 100 else f"about {left / 60:.0f} min left")  # noqa: PLR2004
        if at - self._last >= _SILENCE:
            parts.append(f"no answer for {at - self._last:.0f} s (--timeout {self._timeout:g})")
        return ", ".join(filter(None, parts))


def _is_sent(step: Step, scenario: Scenario, found: Capabilities) -> bool:
    if step.wait_until_idle is not None:
        return found.engine.load_metric is not None
    return step.stream_chunk_size is None or found.script_methods[scenario.api].capabilities.can_choose_event_size


@contextmanager
def show_progress(
    plan: Plan, tries: int, count_failures: Callable[[], int | None], timeout: float
) -> Generator[RunProgress]:
    """Show the progress of a run while the context is active, and yield it."""
    progress = RunProgress(plan, tries, count_failures, timeout)
    console = report_console(piped_width=None, stderr=True)
    with _show_bar(progress, console) if console.is_terminal else _print_lines(progress):
        yield progress


@contextmanager
def _show_bar(progress: RunProgress, console: Console) -> Generator[None]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[problems]}", style="red"))
    with ProgressBar(*columns, *left, console=console, transient=True, expand=True) as bar:
        task = bar.add_task("waiting for the first answers", total=None, problems="")

        def update() -> None:
            what = "sending" if progress.total else None
            bar.update(
                task,
                description=what,
                completed=progress.finished,
                total=progress.total or None,
                problems=progress.problems,
            )

        progress.update = update
        yield


@contextmanager
def _print_lines(progress: RunProgress) -> Generator[None]:
    ended = Event()
    stream = sys.stderr

    def print_lines() -> None:
        seconds = min(_FIRST, _INTERVAL)
        while not ended.wait(seconds):
            seconds = _INTERVAL
            if progress.total:
                print(progress.describe(), file=stream, flush=True)

    thread = Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
