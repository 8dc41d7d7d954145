"""Definition of a command. Other packages add commands by the entry-point group `harmony_conformance.commands`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import cast


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command: name, one line of help, function that adds its options, function that runs it."""

    name: str
    help: str
    configure: Callable[[ArgumentParser], None]
    run: Callable[[Namespace], int]


def command_in(module: str, name: str, help_line: str, options: str = "") -> Command:
    """Return a command of a module with `configure` and `execute`. The module is imported when the command runs.

    `options`: `MODULE:FUNCTION` of the function that adds the options, so that `--help` imports no more. Without it, this is `configure` of the module.
    """
    place, _, function = (options or f"{module}:configure").partition(":")

    def configure(parser: ArgumentParser) -> None:
        cast("Callable[[ArgumentParser], None]", vars(import_module(place))[function])(parser)

    def run(arguments: Namespace) -> int:
        return cast("Callable[[Namespace], int]", vars(import_module(module))["execute"])(arguments)

    return Command(name=name, help=help_line, configure=configure, run=run)
