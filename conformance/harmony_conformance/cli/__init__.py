"""Commands, one module each. Only the module of the called command is imported."""

from __future__ import annotations

from harmony_conformance.cli.command import Command, command_in

_COMMANDS = (
    ("run", "run", "suite", "test an endpoint, or judge a recording"),
    ("run-all", "run", "suite", "test every endpoint of a configuration file, side by side"),
    ("serve", "", "suite", "run the reference server, optionally with defects"),
    ("selftest", "", "suite", "test every check on every defect and on blind mutants"),
    ("audit", "", "logs", "judge the exchanges of a traffic log"),
    ("render", "harmony", "harmony", "render a conversation or an API request (JSON) as Harmony text or token ids"),
    ("parse", "harmony", "harmony", "parse Harmony text or token ids to messages as JSON"),
    ("golden", "harmony", "harmony", "check, write, list or copy the golden data, or judge a renderer or parser by it"),
    ("checks", "", "information", "list every check with its requirement and clause"),
    ("rates", "measurements", "measurements", "send graded tasks many times: rates with intervals"),
    ("load", "measurements", "measurements", "measure latency under load, with objectives as a gate"),
    ("compare", "comparison", "measurements", "compare two runs, or the rates of two audits or periods"),
    ("explain", "", "information", "explain a check, defect, cause, scenario, rate or client"),
    ("matrix", "comparison", "measurements", "several runs side by side"),
    ("report", "", "information", "render the report of a finished run again"),
    ("reproduce", "run", "information", "run a cause of a report again: does it still happen?"),
    ("teleprompter", "harmony", "harmony", "build a checkpoint that replays scripted output"),
    ("help", "", "information", "show a page of the documentation, or the options of a command"),
    ("completion", "", "", "print the script that completes commands and options in a shell"),
)
"""Name, package with its module, module of `options` with its options, and help. `completion` has its options in its own module."""


def _command(name: str, package: str, options: str, help_line: str) -> Command:
    word = name.replace("-", "_")
    module = ".".join(filter(None, (__name__, package, word)))
    return command_in(module, name, help_line, f"{__name__}.options.{options}:configure_{word}" if options else "")


COMMANDS: tuple[Command, ...] = tuple(_command(*row) for row in _COMMANDS)
