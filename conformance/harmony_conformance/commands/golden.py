"""`harmony-conformance golden list`: the ids of the golden data, one a line."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from harmony_conformance.command import Command, Exit
from harmony_conformance.golden import ids


def configure(parser: ArgumentParser) -> None:
    """What to do with the data."""
    parser.add_argument("action", choices=["list"], help="list: one id a line")


def execute(arguments: Namespace) -> int:
    """Print the ids."""
    del arguments
    for name in ids():
        print(name)
    return Exit.CONFORMS


COMMAND = Command(name="golden", help="the golden data", configure=configure, run=execute)
