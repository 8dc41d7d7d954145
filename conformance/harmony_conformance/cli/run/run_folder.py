"""Folder of a run: creation, protection of foreign files, errors while writing."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.audit.folder.folder_marks import find_audit_file
from harmony_conformance.engines.target import Target
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.folder_lock import FolderInUseError, lock_folder
from harmony_conformance.load.load_file import LOAD, LOAD_PAGE
from harmony_conformance.report.files import REPORT
from harmony_conformance.runner.shared_run import EXCHANGES
from harmony_conformance.runtime.private_files import create_private_folder
from harmony_conformance.sampling.rates_file import RATES

_BEGIN = 65536
PART = ".exchanges.part"
"""The recording of a run until it replaces an earlier one."""
COMPARISON = "comparison.html"
"""The page with what differs between two endpoints, in the folder of `run --against`."""
_TITLE = b"(harmony-conformance)</title>"
_MARKS: Mapping[str, tuple[bytes, ...]] = MappingProxyType(
    {
        REPORT: (b'{"kind":"header",',),
        EXCHANGES: (b'{"kind":"exchange",', b'{"kind":"run",'),
        "junit.xml": (b"harmony-conformance", b"harmony_conformance"),
        "report.md": (b"harmony\\-conformance",),
        "report.html": (_TITLE,),
        COMPARISON: (_TITLE,),
        RATES: (b'{"$schema":"rates.schema.json",',),
        LOAD: (b'{"$schema":"load.schema.json",',),
        LOAD_PAGE: (_TITLE,),
    }
)
"""The files of `run`, `rates` and `load`, with text in the first `_BEGIN` bytes that identifies them."""


@contextmanager
def open_run_folder(out: Path | None, target: Target) -> Generator[Path]:
    """Create the folder of a run if necessary, lock it and yield it. An empty folder is removed at the end.

    Args:
        out: The folder, None for a new one below `runs/`.
        target: The target, which names a new folder.

    Raises:
        UsageError: The folder is in use by another run, is not writable, or has a file of the same name that no run wrote.
    """
    folder = out if out is not None else _create_new_folder(target)
    _create_folder(folder)
    with ExitStack() as stack:
        stack.callback(remove_empty, folder)
        try:
            stack.enter_context(lock_folder(folder))
        except FolderInUseError as problem:
            raise UsageError(f"--out {problem}") from None
        except OSError as problem:
            raise UsageError(f"--out {folder}: cannot be locked: {problem.strerror}") from None
        _refuse_foreign_files(folder)
        yield folder


def _create_folder(out: Path) -> None:
    try:
        create_private_folder(out)
        if not os.access(out, os.W_OK | os.X_OK):
            raise UsageError(f"--out {out}: not writable")
    except OSError as problem:
        raise UsageError(f"--out {out}: {problem.strerror}") from None


def _refuse_foreign_files(out: Path) -> None:
    try:
        of_audit = find_audit_file(out)
    except OSError as problem:
        raise UsageError(f"--out {out}: {problem.strerror}") from None
    if of_audit:
        raise UsageError(f"--out {out}: {of_audit} was written by an audit and is not overwritten: use another folder")
    for name in (*_MARKS, PART):
        refuse_foreign_file(out, name, _MARKS.get(name))


def refuse_foreign_file(out: Path, name: str, marks: Sequence[bytes] | None) -> None:
    """Check that a file of a folder may be overwritten. `marks`: texts near its beginning that identify one of this program, None for any.

    Raises:
        UsageError: It is a link, or was not written by this program.
    """
    path = out / name
    try:
        if path.is_symlink():
            raise UsageError(f"--out {out}: {name} is a link and is not overwritten: use another folder")
        if marks is not None and path.exists() and not _has_mark(path, marks):
            raise UsageError(f"--out {out}: {name} was not written by a run and is not overwritten: use another folder")
    except OSError as problem:
        raise UsageError(f"--out {out}: {problem.strerror}") from None


def _has_mark(path: Path, marks: Sequence[bytes]) -> bool:
    """Return True for a file that begins with one of the marks, or that is empty."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(_BEGIN)
    return not begin or any(mark in begin for mark in marks)


def announce_replacement(out: Path) -> None:
    """Print a line if the folder has an earlier run."""
    if any((out / name).exists() for name in _MARKS):
        print(f"replaces the run in {out}", file=sys.stderr)


def remove_run(out: Path, keep: str) -> None:
    """Delete the files of an earlier run except `keep`, so that no report of it remains next to exchanges of another run."""
    for name in _MARKS.keys() - {keep}:
        (out / name).unlink(missing_ok=True)


def remove_empty(out: Path) -> None:
    """Remove the folder if it is empty."""
    with suppress(OSError):  # not empty
        out.rmdir()


def _create_new_folder(target: Target) -> Path:
    """Create a folder below `runs/`, named after the time and the engine, and return it."""
    while True:
        folder = _new_name(target)
        _create_folder(folder.parent)
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:  # created by another run in between
            continue
        except OSError as problem:
            raise UsageError(f"--out {folder}: {problem.strerror}") from None
        return folder


def _new_name(target: Target) -> Path:
    """Return a path below `runs/` that does not exist yet."""
    name = f"{datetime.now(UTC).strftime('%Y%m%d-%H%M%S')}-{target.engine.name}"
    existing = {path.name for path in Path("runs").glob(f"{name}*")}
    candidates = (name, *(f"{name}-{index}" for index in range(2, len(existing) + 3)))
    return Path("runs") / next(candidate for candidate in candidates if candidate not in existing)


@contextmanager
def report_write_errors(out: Path, *, has_scenarios: bool = True) -> Generator[None]:
    """Turn an `OSError`, for example of a full disk, into a one-line error that names the recorded exchanges.

    `has_scenarios`: False for a recording of `rates` or `load`, which `run replay:` cannot judge.

    Raises:
        UsageError: A file cannot be written.
    """
    try:
        yield
    except OSError as problem:
        recorded = f"; {describe_recording(out, has_scenarios=has_scenarios)}" if (out / EXCHANGES).exists() else ""
        raise UsageError(f"--out {out}: {problem.strerror or problem}{recorded}") from None


def describe_recording(out: Path, *, has_scenarios: bool) -> str:
    """Return the path of the recorded exchanges and the command that judges them."""
    path = f"{out / EXCHANGES}"
    words = ("run", f"replay:{path}") if has_scenarios else ("audit", path)
    return f"exchanges recorded in {out}; to judge them: {shlex.join(('harmony-conformance', *words))}"
