"""`harmony-conformance run-all FILE`: the suite against every endpoint of a configuration file, and a page of all of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT
from typing import cast

from harmony_conformance.cli.report import read_run
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.report.html import matrix_html
from harmony_conformance.report.matrix import make_matrix
from harmony_conformance.report.terminal import visible
from harmony_conformance.runner.options import whole_number
from harmony_conformance.runtime.private_files import write_private

MATRIX = "matrix.html"
"""File name of the page with all endpoints."""
DEFAULT_FILE = Path("harmony-conformance.toml")
_RUN = """import sys
from harmony_conformance.runtime.processes import end_with_parent_process
end_with_parent_process()
from harmony_conformance.cli.main import main
sys.exit(main())"""
"""The program of each run: `python -m harmony_conformance` that ends with this command."""


@dataclass(frozen=True, kw_only=True)
class ConfiguredEndpoint:
    """An endpoint of the file: its name, its target, and further options of `run`."""

    name: str
    target: str
    options: tuple[str, ...] = ()


def configure(parser: ArgumentParser) -> None:
    """Add the options of `run-all`."""
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        default=DEFAULT_FILE,
        help=f"configuration (default: {DEFAULT_FILE})",
    )
    parser.add_argument(
        "--out", metavar="DIR", type=Path, default=Path("runs/all"), help="output folder (default: runs/all)"
    )
    parser.add_argument("--jobs", metavar="N", type=whole_number(1), default=2, help="endpoints at a time (default: 2)")
    parser.epilog = (
        "The file has a table [[endpoint]] for each: name, target, and options as a list of texts, for example"
        ' name = "a", target = "https://a.example/v1", options = ["--model", "gpt-oss-20b", "--api-key-env", "A_KEY"].'
        " Options for all endpoints: options = [...] above the first table."
        " Exit code: 3 if one had an internal error, else 1 if one does not conform, else 2 if one could not be tested, else 0."
    )


def execute(arguments: Namespace) -> int:
    """Run the suite against every endpoint, write the page and return the exit code."""
    endpoints = read_endpoints(arguments.file)
    running = RunningProcesses()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        futures = [pool.submit(running.run, endpoint, arguments.out / endpoint.name) for endpoint in endpoints]
        try:
            codes = [future.result() for future in futures]
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()
            raise KeyboardInterrupt(f"stopped; the runs so far are in {arguments.out}") from None
    tested = [one.name for one, code in zip(endpoints, codes, strict=True) if code in {0, 1}]
    untested = tuple(f"{one.name}: {running.lines[one.name]}" for one in endpoints if one.name not in tested)
    if tested:
        page = matrix_html(make_matrix([read_run(arguments.out / name) for name in tested], tested), untested)
        write_private(arguments.out / MATRIX, page.encode("utf-8", "backslashreplace"))
        print(f"side by side: {visible(str(arguments.out / MATRIX))}")
    worst = (Exit.INTERNAL_ERROR, Exit.DIVERGES, Exit.USAGE, Exit.CONFORMS)
    return next((code for code in worst if code in codes), Exit.INTERNAL_ERROR)


@dataclass
class RunningProcesses:
    """The runs of this command, each a process. State: those that run now, and the line that each printed."""

    processes: set[subprocess.Popen[str]] = field(default_factory=set["subprocess.Popen[str]"])
    lines: dict[str, str] = field(default_factory=dict[str, str])

    def run(self, endpoint: ConfiguredEndpoint, out: Path) -> int:
        """Run the suite, print its line and return its exit code."""
        words = ("run", endpoint.target, *endpoint.options, "--quiet", "--out", str(out))
        with subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-c", _RUN, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            self.processes.add(process)
            printed, problem = (text.strip() for text in process.communicate())
            self.processes.discard(process)
        self.lines[endpoint.name] = visible((printed or problem or "nothing was printed").splitlines()[0])
        print(f"{visible(endpoint.name)}: {self.lines[endpoint.name]}", flush=True)
        return process.returncode

    def stop(self) -> None:
        """Interrupt the runs, so that they end and say what is recorded."""
        for process in tuple(self.processes):
            process.send_signal(SIGINT)


def read_endpoints(path: Path) -> tuple[ConfiguredEndpoint, ...]:
    """Read the configuration file.

    Raises:
        UsageError: It cannot be read, or an entry is invalid.
    """
    try:
        document: Mapping[str, object] = tomllib.loads(path.read_text("utf-8"))
    except OSError as problem:
        raise UsageError(f"{path}: {problem.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise UsageError(f"{path}: invalid TOML: {problem}") from None
    if unknown := sorted(document.keys() - {"endpoint", "options"}):
        raise UsageError(f"{path}: expected tables [[endpoint]] and options, got {unknown[0]!r}")
    listed = document.get("endpoint")
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    if not entries:
        raise UsageError(f"{path}: expected a table [[endpoint]], got none")
    common = _options(document.get("options", []), path)
    read = tuple(_endpoint(entry, common, f"{path}: endpoint {n}") for n, entry in enumerate(entries, 1))
    names = [one.name for one in read]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{path}: expected a name for each endpoint, got {doubled!r} twice")
    return read


def _endpoint(entry: object, common: Sequence[str], place: object) -> ConfiguredEndpoint:
    members: Mapping[str, object] = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    if unknown := sorted(members.keys() - {"name", "target", "options"}):
        raise UsageError(f"{place}: expected name, target and options, got {unknown[0]!r}")
    name, target = members.get("name"), members.get("target")
    if not isinstance(target, str) or not target:
        raise UsageError(f"{place}: expected a target, got {target!r}")
    if not isinstance(name, str) or not name or Path(name).name != name or name.startswith("."):
        raise UsageError(f"{place}: expected a name that can be a folder's, got {name!r}")
    return ConfiguredEndpoint(name=name, target=target, options=(*common, *_options(members.get("options", []), place)))


def _options(value: object, place: object) -> tuple[str, ...]:
    listed = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(one, str) for one in listed):
        raise UsageError(f'{place}: expected options as a list of texts like ["--model", "m"], got {value!r}')
    return tuple(str(one) for one in listed)
