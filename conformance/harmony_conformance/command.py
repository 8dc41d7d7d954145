"""A command of the command line. `cli.py` knows its own; others are found through the entry-point group `harmony_conformance.commands`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes, the highest applicable counts."""

    CONFORMS = 0
    DIVERGES = 1
    USAGE = 2
    OUR_ERROR = 3


class UsageError(Exception):
    """The command cannot be carried out as it was called: one line that says what, where and what would be right. Exit code 2."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """Name, one line of help, its options, and what it does."""

    name: str
    help: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]
