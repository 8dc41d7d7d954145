"""The commands, one module each, which is imported by its name: a start pays for the command that was called and no other."""

from __future__ import annotations

from importlib import import_module

from harmony_conformance.cli.command import Command

NAMES = ("run", "serve", "selftest", "audit", "render", "parse", "golden", "checks", "report")


def load(name: str) -> Command:
    """The command of a name."""
    loaded: object = getattr(import_module(f"{__name__}.{name}"), "COMMAND")  # noqa: B009 - pyright knows of no attribute
    assert isinstance(loaded, Command)
    return loaded
