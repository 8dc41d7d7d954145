"""Commands, one module each. Only the module of the called command is imported."""

from __future__ import annotations

from harmony_conformance.cli.command import Command, command_in

_HELP = {
    "run": "test an endpoint, or judge a recording",
    "run-all": "test every endpoint of a configuration file, side by side",
    "serve": "run the reference server, optionally with defects",
    "selftest": "test every check on every defect and on blind mutants",
    "audit": "judge the exchanges of a traffic log",
    "render": "render a conversation or an API request (JSON) as Harmony text or token ids",
    "parse": "parse Harmony text or token ids to messages as JSON",
    "golden": "check, write, list or copy the golden data, or judge a renderer or parser by it",
    "checks": "list every check with its requirement and clause",
    "rates": "send graded tasks many times: rates with intervals",
    "load": "measure latency under load, with objectives as a gate",
    "compare": "compare two runs, or the rates of two audits or periods",
    "explain": "explain a check, defect, cause, scenario, rate or client",
    "matrix": "several runs side by side",
    "report": "render the report of a finished run again",
    "reproduce": "run a cause of a report again: does it still happen?",
    "teleprompter": "build a checkpoint that replays scripted output",
    "help": "show a page of the documentation, or the options of a command",
    "completion": "print the script that completes commands and options in a shell",
}

_OPTIONS = {
    "suite": ("run", "run-all", "serve", "selftest"),
    "measurements": ("rates", "load", "compare", "matrix"),
    "harmony": ("render", "parse", "golden", "teleprompter"),
    "logs": ("audit",),
    "information": ("report", "reproduce", "explain", "checks", "help"),
}
"""Commands by the module of `options` with their options. `completion` has them in its own module."""


def _command(name: str, help_line: str) -> Command:
    word = name.replace("-", "_")
    place = next((place for place, names in _OPTIONS.items() if name in names), "")
    return command_in(
        f"{__name__}.{word}", name, help_line, f"{__name__}.options.{place}:configure_{word}" if place else ""
    )


COMMANDS: tuple[Command, ...] = tuple(_command(name, help_line) for name, help_line in _HELP.items())
