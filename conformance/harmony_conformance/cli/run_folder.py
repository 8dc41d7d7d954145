"""The folder of a run: where it is kept, what may be overwritten there, and what is left where it can not be written."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.engines.target import Target
from harmony_conformance.errors import UsageError
from harmony_conformance.report.files import REPORT
from harmony_conformance.runner.shared_run import EXCHANGES

_BEGIN = 65536
_MARKS: Mapping[str, tuple[bytes, ...]] = MappingProxyType(
    {
        REPORT: (b'{"kind":"header",',),
        EXCHANGES: (b'{"kind":"exchange",',),
        "junit.xml": (b"harmony-conformance", b"harmony_conformance"),
        "report.md": (b"harmony\\-conformance",),
        "report.html": (b"(harmony-conformance)</title>",),
    }
)
"""The files of a run, and what stands near the beginning of each, by which it is known as one."""


def folder(out: Path) -> Path:
    """The folder, made where there is none; refused before anything is sent where nothing can be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not os.access(out, os.W_OK | os.X_OK):
            raise UsageError(f"--out {out}: not writable")
        foreign = next((name for name in _MARKS if (out / name).exists() and not _is_ours(out / name)), None)
        if foreign is not None:
            raise UsageError(
                f"--out {out}: its {foreign} is no file of a run and is not overwritten: name another folder"
            )
    except OSError as problem:
        raise UsageError(f"--out {out}: {problem.strerror}") from None
    return out


def _is_ours(path: Path) -> bool:
    """Whether a run wrote a file; an empty one loses nothing."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(_BEGIN)
    return not begin or any(mark in begin for mark in _MARKS[path.name])


def tell_replaced(out: Path) -> None:
    """Say so where an earlier run is kept there."""
    if any((out / name).exists() for name in _MARKS):
        print(f"replaces the run kept in {out}", file=sys.stderr)


def replace_run(out: Path) -> None:
    """Take an earlier run's files away: none of them may stand beside another run's exchanges."""
    tell_replaced(out)
    for name in _MARKS:
        (out / name).unlink(missing_ok=True)


def remove_empty(out: Path) -> None:
    """Take the folder away where nothing was put into it."""
    with suppress(OSError):  # it held something before
        out.rmdir()


def new_folder(target: Target) -> Path:
    """A folder below `runs/`, named after the time and the engine, that is not there yet."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = f"{stamp}-{target.engine.name}"
    taken = {path.name for path in Path("runs").glob(f"{name}*")}
    return Path("runs") / next(
        candidate
        for candidate in (name, *(f"{name}-{index}" for index in range(2, len(taken) + 3)))
        if candidate not in taken
    )


@contextmanager
def written(out: Path) -> Generator[None]:
    """What can not be written, as on a disk that is full, is told in one line, with what is kept all the same.

    Raises:
        UsageError: it can not be written.
    """
    try:
        yield
    except OSError as problem:
        recorded = f"; {kept(out)}" if (out / EXCHANGES).exists() else ""
        raise UsageError(f"--out {out}: {problem.strerror or problem}{recorded}") from None


def kept(out: Path) -> str:
    """Where the exchanges are that a run left behind, and how they are judged."""
    again = f"harmony-conformance run {shlex.quote(f'replay:{out / EXCHANGES}')}"
    return f"what was recorded is kept in {out}, judge it: {again}"
