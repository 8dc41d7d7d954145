"""`harmony-conformance checks`: every check, its requirement, its clause."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from harmony_conformance.command import Command, Exit
from harmony_conformance.docs import checks_json, checks_markdown


def configure(parser: ArgumentParser) -> None:
    """Which form."""
    parser.add_argument("--format", choices=["md", "json"], default="md")


def execute(arguments: Namespace) -> int:
    """Print the list of checks."""
    print(checks_markdown() if arguments.format == "md" else checks_json())
    return Exit.CONFORMS


COMMAND = Command(
    name="checks", help="every check, its requirement and the clause it cites", configure=configure, run=execute
)
