"""Exit codes, and the error of a command that cannot be carried out as called."""

from __future__ import annotations

from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, the highest applicable counts."""

    CONFORMS = 0
    DIVERGES = 1
    USAGE = 2
    OUR_ERROR = 3


class UsageError(Exception):
    """The command cannot be carried out as it was called: one line that says what, where and what would be right. Exit code 2."""
