"""Exit codes, the error for invalid use of a command, and the place of an internal error."""

from __future__ import annotations

from enum import IntEnum
from traceback import walk_tb

_PACKAGES = frozenset({"harmony_conformance", "harmony_proxy", "harmony_ref"})


class Exit(IntEnum):
    """Exit codes of the commands. If several apply, the highest is used."""

    CONFORMS = 0
    DIVERGES = 1
    USAGE = 2
    INTERNAL_ERROR = 3


class UsageError(Exception):
    """The command cannot run with these arguments or files. The message is one line with the remedy. Exit code 2."""


def listen_error(host: str, port: int, problem: OSError) -> UsageError:
    """Return the error of an address that cannot be listened on. Python repeats the address in its own text, which is left out."""
    reason = (problem.strerror or str(problem)).partition(" (while attempting")[0]
    return UsageError(f"cannot listen on {f'[{host}]' if ':' in host else host}:{port}: {reason}")


def error_place(error: BaseException) -> str:
    """Return the type of an exception and the last line of this project in its traceback, without its message, which may quote traffic."""
    for frame, line in reversed(list(walk_tb(error.__traceback__))):
        parts = frame.f_code.co_filename.replace("\\", "/").split("/")
        if (package := next((name for name in reversed(parts[:-1]) if name in _PACKAGES), None)) is not None:
            start = len(parts) - 1 - parts[::-1].index(package)
            return f"{type(error).__name__} in {'/'.join(parts[start:])}, line {line}"
    return type(error).__name__
