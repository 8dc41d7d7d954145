"""`harmony-conformance run-all FILE`: suite, rates and load against every endpoint of a configuration file, and a page of all of them."""

from __future__ import annotations

import subprocess
import sys
from argparse import Namespace
from collections.abc import Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT
from threading import Event, Thread
from time import monotonic

from harmony_conformance.cli.comparison.side_by_side import (
    LOAD_FOLDER,
    RATES_FOLDER,
    EndpointFolder,
    read_endpoint_folder,
    side_by_side,
)
from harmony_conformance.cli.run.measured_figures import measured_figures
from harmony_conformance.cli.run.run_all_file import ConfiguredEndpoint, read_endpoints
from harmony_conformance.cli.run.run_folder import refuse_foreign_file, report_write_errors
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.load.load_file import LOAD_PAGE
from harmony_conformance.report.files import HTML_REPORT
from harmony_conformance.report.formats.terminal import visible
from harmony_conformance.report.pages.html import matrix_html
from harmony_conformance.runtime.private_files import create_private_folder, write_private
from harmony_conformance.sampling.rates_file import RATES

MATRIX = "matrix.html"
"""File name of the page with all endpoints."""
MATRIX_MARKS = (b"runs side by side (harmony-conformance)</title>", b"<title>1 run (harmony-conformance)</title>")
_MEANINGS = {"rates": {0: "done", 1: "below a minimum"}, "load": {0: "done", 1: "an objective is missed"}}
_LINKED = (
    ("report", HTML_REPORT),
    ("rates", f"{RATES_FOLDER}/{RATES}"),
    ("load", f"{LOAD_FOLDER}/{LOAD_PAGE}"),
)
"""Files of an endpoint that the page links, each with its name."""
_ANNOTATION = "::"
"""Begin of a command for GitHub. Below the name of an endpoint it would be none."""
_INTERVAL = 30.0
"""Seconds between two lines with the commands that run."""
_TESTED = frozenset({0, 1})
"""Exit codes of commands that could test an endpoint."""
_RUN = """import sys
from harmony_conformance.runtime.processes import end_with_parent_process
end_with_parent_process()
from harmony_conformance.cli.main import main
sys.exit(main())"""
"""The program of each run: `python -m harmony_conformance` that ends with this command."""


def execute(arguments: Namespace) -> int:
    """Run the suite against every endpoint, write the page and return the exit code."""
    endpoints = read_endpoints(arguments.file)
    if arguments.dry_run:
        return _dry_run(endpoints)
    refuse_foreign_file(arguments.out, MATRIX, MATRIX_MARKS)
    running = RunningProcesses()
    pool = ThreadPoolExecutor(arguments.jobs)
    try:
        with running.report_waits():
            futures = [pool.submit(running.run_commands, one, arguments.out / one.name) for one in endpoints]
            codes = [future.result() for future in futures]
            for one, own in zip(
                endpoints, codes, strict=True
            ):  # loads one by one: nothing else takes this client's time
                if one.load is not None and own[-1] in _TESTED:
                    own.append(running.run_command(one, one.load_command(arguments.out / one.name)))
    except KeyboardInterrupt:
        running.stop()
        pool.shutdown(cancel_futures=True)  # a run that is stopped ends at once
        _write_page(endpoints, running, arguments.out)
        raise KeyboardInterrupt(f"stopped; the runs so far are in {arguments.out}") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    _write_page(endpoints, running, arguments.out)
    worst = (Exit.INTERNAL_ERROR, Exit.DIVERGES, Exit.USAGE, Exit.CONFORMS)
    every = {code for one in codes for code in one}
    return next((code for code in worst if code in every), Exit.INTERNAL_ERROR)


def _dry_run(endpoints: Sequence[ConfiguredEndpoint]) -> int:
    """Print what would be sent to each endpoint. Exit code 2 if a command of one is invalid."""
    running = RunningProcesses()
    codes = [running.print_command(one, words) for one in endpoints for words in one.dry_commands()]
    return max(codes)


def _write_page(endpoints: Sequence[ConfiguredEndpoint], running: RunningProcesses, out: Path) -> None:
    """Write the page of all endpoints: those with a report side by side, and the others with the reason."""
    folders: dict[str, EndpointFolder] = {}
    untested: list[str] = []
    for one in endpoints:
        line = running.lines.get(one.name, "not finished when the command was stopped")
        if one.name not in running.reported:
            untested.append(f"{one.name}: {line}")
            continue
        try:
            folders[one.name if running.reported[one.name] in _TESTED else f"{one.name} (incomplete)"] = (
                read_endpoint_folder(out / one.name)
            )
        except UsageError as problem:
            untested.append(f"{one.name}: {problem}")
    links = [
        [(name, f"{one.path.name}/{path}") for name, path in _LINKED if (one.path / path).is_file()]
        for one in folders.values()
    ]
    page = matrix_html(side_by_side([*folders.values()], [*folders]), tuple(untested), links)
    with report_write_errors(out, has_scenarios=False):
        create_private_folder(out)
        write_private(out / MATRIX, page.encode("utf-8", "backslashreplace"))
    print(f"side by side: {visible(str(out / MATRIX))}", flush=True)


@dataclass
class RunningProcesses:
    """The runs of this command, each a process.

    State: those that run now with their beginnings, the line that each run printed, and the exit codes of the runs that wrote a report.
    Once the command is stopped, nothing is started or passed on.
    """

    processes: dict[subprocess.Popen[str], tuple[str, float]] = field(
        default_factory=dict["subprocess.Popen[str]", tuple[str, float]]
    )
    lines: dict[str, str] = field(default_factory=dict[str, str])
    reported: dict[str, int] = field(default_factory=dict[str, int])
    is_stopped: bool = False

    def run_commands(self, endpoint: ConfiguredEndpoint, out: Path) -> list[int]:
        """Call the commands of an endpoint one after the other, and return their exit codes. After a run that could not test it, the others are left out."""
        codes: list[int] = []
        for words in endpoint.commands(out):
            if self.is_stopped:
                break
            codes.append(self.run_command(endpoint, words))
            if codes[-1] not in _TESTED:
                break
        return codes

    def run_command(self, endpoint: ConfiguredEndpoint, words: Sequence[str]) -> int:
        """Call a command of an endpoint, print its result on one line and return its exit code."""
        code, printed, problem = self._call(endpoint, words)
        line = visible(((printed if words[0] == "run" else "") or problem or "nothing was printed").splitlines()[0])
        if words[0] == "run":
            self.lines[endpoint.name] = line
            if printed:
                self.reported[endpoint.name] = code
        shown = line if words[0] == "run" else f"{words[0]}: {_MEANINGS[words[0]].get(code, line)}"
        if words[0] != "run" and code in _TESTED and (figures := measured_figures(words[0], Path(words[-1]))):
            shown = f"{shown}; {visible(figures)}"
        print(f"{visible(endpoint.name)}: {shown}\n", end="", flush=True)
        return code

    def print_command(self, endpoint: ConfiguredEndpoint, words: Sequence[str]) -> int:
        """Call a command of an endpoint, print all its lines and return its exit code."""
        code, printed, problem = self._call(endpoint, words)
        for line in (printed or problem).splitlines():
            print(f"{visible(endpoint.name)}: {words[0]}: {visible(line)}")
        return code

    def _call(self, endpoint: ConfiguredEndpoint, words: Sequence[str]) -> tuple[int, str, str]:
        """Return the exit code of a command of this program, its output, and its error. What else it reports is printed at once."""
        own = f"harmony-conformance {words[0]}:"
        problems: list[str] = []
        others: list[str] = []

        def pass_on(lines: Iterable[str]) -> None:
            for line in lines:
                if line.startswith(own):
                    problems.append(line.strip())
                elif not self.is_stopped and not line.startswith(_ANNOTATION):
                    others.append(line.strip())
                    print(f"{visible(endpoint.name)}: {visible(line.strip())}\n", end="", file=sys.stderr, flush=True)

        with subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-c", _RUN, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            self.processes[process] = f"{endpoint.name} ({words[0]}", monotonic()
            if self.is_stopped:
                process.send_signal(SIGINT)
            reader = Thread(target=pass_on, args=(process.stderr,), daemon=True)
            reader.start()
            printed = process.stdout.read().strip()
            reader.join()
        del self.processes[process]
        return process.returncode, printed, next(iter((*problems, *others[-1:])), "")

    @contextmanager
    def report_waits(self) -> Generator[None]:
        """Print which commands are running, every half minute while the context is active."""
        ended = Event()

        def report() -> None:
            while not ended.wait(_INTERVAL):
                now = monotonic()
                running = (f"{visible(what)}, {now - begin:.0f} s)" for what, begin in [*self.processes.values()])
                print(f"running: {', '.join(running)}\n", end="", file=sys.stderr, flush=True)

        thread = Thread(target=report, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    def stop(self) -> None:
        """Interrupt the runs, so that they end and say what is recorded."""
        self.is_stopped = True
        for process in tuple(self.processes):
            process.send_signal(SIGINT)
