"""`harmony-conformance completion SHELL`: print the script that completes commands and options."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

import shtab

from harmony_conformance.errors import Exit

_WAYS = {
    "bash": "`completion bash > ~/.local/share/bash-completion/completions/harmony-conformance`",
    "zsh": "`completion zsh > ~/.zfunc/_harmony-conformance` with this folder in $fpath",
    "tcsh": "`completion tcsh > ~/.harmony-conformance.tcsh` with `source ~/.harmony-conformance.tcsh` in ~/.tcshrc",
}


def configure(parser: ArgumentParser) -> None:
    """Add the options of `completion`."""
    parser.add_argument("shell", metavar="SHELL", choices=[*_WAYS], help="bash, zsh or tcsh")
    parser.epilog = "Examples: " + "; ".join(_WAYS.values())


def execute(arguments: Namespace) -> int:
    """Print the script."""
    from harmony_conformance.cli.main import build_parser  # noqa: PLC0415 - main imports the commands

    print(shtab.complete(build_parser(None), arguments.shell))
    return Exit.CONFORMS
