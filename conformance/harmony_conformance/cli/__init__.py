"""Commands, one module each. Only the module of the called command is imported."""

from __future__ import annotations

from importlib import import_module

from harmony_conformance.cli.command import Command

NAMES = (
    "run",
    "run-all",
    "serve",
    "selftest",
    "audit",
    "render",
    "parse",
    "golden",
    "checks",
    "rates",
    "load",
    "compare",
    "explain",
    "matrix",
    "report",
    "reproduce",
)


def load(name: str) -> Command:
    """Import the command of this name."""
    command: object = getattr(import_module(f"{__name__}.{name.replace('-', '_')}"), "COMMAND")  # noqa: B009 - pyright knows of no attribute
    assert isinstance(command, Command)
    return command
