"""The commands, one module each."""

from __future__ import annotations

from harmony_conformance.command import Command
from harmony_conformance.commands import audit, checks, golden, parse, render, report, run, selftest, serve

COMMANDS: tuple[Command, ...] = (
    run.COMMAND,
    serve.COMMAND,
    selftest.COMMAND,
    audit.COMMAND,
    render.COMMAND,
    parse.COMMAND,
    golden.COMMAND,
    checks.COMMAND,
    report.COMMAND,
)
