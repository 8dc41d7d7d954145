"""Exit codes, and the error for invalid use of a command."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the commands. If several apply, the highest is used."""

    CONFORMS = 0
    DIVERGES = 1
    USAGE = 2
    INTERNAL_ERROR = 3


class UsageError(Exception):
    """The command cannot run with these arguments or files. The message is one line with the remedy. Exit code 2."""
