"""`harmony-conformance run-all FILE`: suite, rates and load against every endpoint of a configuration file, and a page of all of them."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT
from typing import cast

from harmony_conformance.cli.run_folder import refuse_foreign_file, report_write_errors
from harmony_conformance.cli.side_by_side import LOAD_FOLDER, RATES_FOLDER, read_endpoint_folder, side_by_side
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.report.html import matrix_html
from harmony_conformance.report.terminal import visible
from harmony_conformance.runner.options import folder_path, whole_number
from harmony_conformance.runtime.file_keys import FileKey, names_of
from harmony_conformance.runtime.private_files import write_private

MATRIX = "matrix.html"
"""File name of the page with all endpoints."""
MATRIX_MARKS = (b"runs side by side (harmony-conformance)</title>",)
_MEANINGS = {"rates": {0: "done", 1: "below a minimum"}, "load": {0: "done", 1: "an objective is missed"}}
_TESTED = frozenset({0, 1})
"""Exit codes of commands that could test an endpoint."""
DEFAULT_FILE = Path("harmony-conformance.toml")
_RUN = """import sys
from harmony_conformance.runtime.processes import end_with_parent_process
end_with_parent_process()
from harmony_conformance.cli.main import main
sys.exit(main())"""
"""The program of each run: `python -m harmony_conformance` that ends with this command."""

ENTRY = "[[endpoint]]"
_LIST = "list of texts"
_EXAMPLES = {
    "connection": ('["--model", "gpt-oss-20b", "--api-key-env", "A_KEY"]', "`run`, `rates` and `load`"),
    "options": ('["--max-time", "20m"]', "`run`"),
    "rates": ('["--set", "tools", "--tries", "10"]', "`rates`, which is called only with this key"),
    "load": ('["--rate", "2", "--slo", "ttft_p95=1s"]', "`load`, which is called only with this key"),
}
_LISTS = tuple(_EXAMPLES)
"""Members with options of the command line."""
KEYS = (
    *(
        FileKey(
            name=name,
            kind=_LIST,
            meaning=f"Options of {of} for every endpoint.",
            example=f"{name} = {example}",
        )
        for name, (example, of) in _EXAMPLES.items()
    ),
    FileKey(
        table=ENTRY,
        name="name",
        kind="text",
        meaning="Name in the matrix, and folder of the run. It must occur once.",
        example='name = "provider-a"',
        required=True,
    ),
    FileKey(
        table=ENTRY,
        name="target",
        kind="text",
        meaning="The endpoint, as in `run TARGET`: a URL, or `ENGINE:URL`.",
        example='target = "https://a.example/v1"',
        required=True,
    ),
    *(
        FileKey(
            table=ENTRY,
            name=name,
            kind=_LIST,
            meaning=f"Further options of {of}, after those of the top of the file.",
            example=f"{name} = {example}",
        )
        for name, (example, of) in _EXAMPLES.items()
    ),
)
"""Keys of the configuration file."""


@dataclass(frozen=True, kw_only=True)
class ConfiguredEndpoint:
    """An endpoint of the file: its name, its target, and the further options of each command.

    Attributes:
        rates: Options of `rates`, None if it is not called.
        load: Options of `load`, None if it is not called.
    """

    name: str
    target: str
    options: tuple[str, ...] = ()
    rates: tuple[str, ...] | None = None
    load: tuple[str, ...] | None = None

    def commands(self, out: Path) -> Iterator[tuple[str, ...]]:
        """Yield the commands in their order, without that of the load."""
        yield "run", self.target, *self.options, "--quiet", "--out", str(out)
        if self.rates is not None:
            yield "rates", self.target, *self.rates, "--format", "json", "--out", str(out / RATES_FOLDER)

    def load_command(self, out: Path) -> tuple[str, ...]:
        """Return the command of the load."""
        return "load", self.target, *(self.load or ()), "--format", "json", "--out", str(out / LOAD_FOLDER)


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
        "--out", metavar="DIR", type=folder_path, default=Path("runs/all"), help="output folder (default: runs/all)"
    )
    parser.add_argument("--jobs", metavar="N", type=whole_number(1), default=2, help="endpoints at a time (default: 2)")
    parser.epilog = (
        "The file has a table [[endpoint]] for each: name, target, and options as a list of texts, for example"
        ' name = "a", target = "https://a.example/v1", options = ["--model", "gpt-oss-20b", "--api-key-env", "A_KEY"].'
        " Above the first table the same for all: options = [...]. With rates = [...] or load = [...],"
        " the command of that name is called too, with these options."
        " connection = [...], such as the model and the key, are options of all three."
        " Exit code: 3 if one had an internal error, else 1 if one does not conform, else 2 if one could not be tested, else 0."
    )


def execute(arguments: Namespace) -> int:
    """Run the suite against every endpoint, write the page and return the exit code."""
    endpoints = read_endpoints(arguments.file)
    refuse_foreign_file(arguments.out, MATRIX, MATRIX_MARKS)
    running = RunningProcesses()
    with ThreadPoolExecutor(arguments.jobs) as pool:
        futures = [pool.submit(running.run_commands, one, arguments.out / one.name) for one in endpoints]
        try:
            codes = [future.result() for future in futures]
            for one, own in zip(
                endpoints, codes, strict=True
            ):  # loads one by one: nothing else takes this client's time
                if one.load is not None and own[-1] in _TESTED:
                    own.append(running.run_command(one, one.load_command(arguments.out / one.name)))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            running.stop()
            raise KeyboardInterrupt(f"stopped; the runs so far are in {arguments.out}") from None
    tested = [one.name for one, code in zip(endpoints, codes, strict=True) if code[0] in _TESTED]
    untested = tuple(f"{one.name}: {running.lines[one.name]}" for one in endpoints if one.name not in tested)
    if tested:
        folders = [read_endpoint_folder(arguments.out / name) for name in tested]
        page = matrix_html(side_by_side(folders, tested), untested)
        with report_write_errors(arguments.out, has_scenarios=False):
            write_private(arguments.out / MATRIX, page.encode("utf-8", "backslashreplace"))
        print(f"side by side: {visible(str(arguments.out / MATRIX))}")
    worst = (Exit.INTERNAL_ERROR, Exit.DIVERGES, Exit.USAGE, Exit.CONFORMS)
    every = {code for one in codes for code in one}
    return next((code for code in worst if code in every), Exit.INTERNAL_ERROR)


@dataclass
class RunningProcesses:
    """The runs of this command, each a process. State: those that run now, and the line that each printed."""

    processes: set[subprocess.Popen[str]] = field(default_factory=set["subprocess.Popen[str]"])
    lines: dict[str, str] = field(default_factory=dict[str, str])

    def run_commands(self, endpoint: ConfiguredEndpoint, out: Path) -> list[int]:
        """Call the commands of an endpoint one after the other, and return their exit codes. After a run that could not test it, the others are left out."""
        codes: list[int] = []
        for words in endpoint.commands(out):
            codes.append(self.run_command(endpoint, words))
            if codes[-1] not in _TESTED:
                break
        return codes

    def run_command(self, endpoint: ConfiguredEndpoint, words: Sequence[str]) -> int:
        """Call a command of an endpoint, print its result on one line and return its exit code."""
        code, line = self._call(words)
        if words[0] == "run":
            self.lines[endpoint.name] = line
        shown = line if words[0] == "run" else f"{words[0]}: {_MEANINGS[words[0]].get(code, line)}"
        print(f"{visible(endpoint.name)}: {shown}", flush=True)
        return code

    def _call(self, words: Sequence[str]) -> tuple[int, str]:
        """Return the exit code of a command of this program, and the first line that it printed."""
        with subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-c", _RUN, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            self.processes.add(process)
            printed, problem = (text.strip() for text in process.communicate())
            self.processes.discard(process)
        shown = (printed if words[0] == "run" else "") or problem or "nothing was printed"
        return process.returncode, visible(shown.splitlines()[0])

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
    if unknown := sorted(document.keys() - {"endpoint", *names_of(KEYS)}):
        raise UsageError(f"{path}: expected tables [[endpoint]] and options, got {unknown[0]!r}")
    listed = document.get("endpoint")
    entries = cast("list[object]", listed) if isinstance(listed, list) else []
    if not entries:
        raise UsageError(f"{path}: expected a table [[endpoint]], got none")
    common = _lists(document, path)
    read = tuple(_endpoint(entry, common, f"{path}: endpoint {n}") for n, entry in enumerate(entries, 1))
    names = [one.name for one in read]
    if doubled := next((name for name in names if names.count(name) > 1), None):
        raise UsageError(f"{path}: expected a name for each endpoint, got {doubled!r} twice")
    return read


def _endpoint(entry: object, common: Mapping[str, tuple[str, ...]], place: object) -> ConfiguredEndpoint:
    members: Mapping[str, object] = cast("dict[str, object]", entry) if isinstance(entry, dict) else {}
    if unknown := sorted(members.keys() - {*names_of(KEYS, ENTRY)}):
        raise UsageError(f"{place}: expected name, target and options, got {unknown[0]!r}")
    name, target = members.get("name"), members.get("target")
    if not isinstance(target, str) or not target:
        raise UsageError(f"{place}: expected a target, got {target!r}")
    if not isinstance(name, str) or not name.isprintable() or Path(name).name != name or name[:1] in (".", ""):
        raise UsageError(f"{place}: expected a name that can be a folder's, got {name!r}")
    own = _lists(members, place)
    connection = (*common.get("connection", ()), *own.get("connection", ()))
    rates, load = (
        (*connection, *common.get(command, ()), *own.get(command, ())) if command in {*common, *own} else None
        for command in ("rates", "load")
    )
    options = (*connection, *common.get("options", ()), *own.get("options", ()))
    return ConfiguredEndpoint(name=name, target=target, options=options, rates=rates, load=load)


def _lists(members: Mapping[str, object], place: object) -> dict[str, tuple[str, ...]]:
    """Return the lists of options of a table, by name."""
    return {name: _options(members[name], place) for name in _LISTS if name in members}


def _options(value: object, place: object) -> tuple[str, ...]:
    listed = cast("list[object]", value) if isinstance(value, list) else [None]
    if not all(isinstance(one, str) for one in listed):
        raise UsageError(f'{place}: expected options as a list of texts like ["--model", "m"], got {value!r}')
    return tuple(str(one) for one in listed)
