"""The command line: a thin door. Parse, call one command, turn what it says into an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points, version
from typing import NoReturn

from harmony_conformance.cli import NAMES, load
from harmony_conformance.cli.command import Command
from harmony_conformance.errors import Exit, UsageError

_GROUP = "harmony_conformance.commands"
_STOPPED = 128 + 2  # as a shell says of a program that SIGINT ended
_CLOSED_PIPE = 128 + 13  # as a shell says of a program that SIGPIPE ended: what it found was not told to the end


class _Parser(ArgumentParser):
    """Refuses in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(Exit.USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    try:
        chosen = _parser(words[0] if words else "").parse_args(words)
    except KeyboardInterrupt:  # while modules are still being read
        print("harmony-conformance: stopped", file=sys.stderr)
        return _STOPPED
    command: Command = chosen.command
    try:
        return _told(command.run(chosen))
    except UsageError as problem:
        print(f"harmony-conformance {command.name}: {problem}", file=sys.stderr)
        return Exit.USAGE
    except KeyboardInterrupt as stopped:
        print(f"harmony-conformance {command.name}: {str(stopped) or 'stopped'}", file=sys.stderr)
        return _STOPPED
    except BrokenPipeError:
        _write_no_more()
        return _CLOSED_PIPE
    except Exception as error:  # noqa: BLE001 - the last resort: our own error, one line, exit code 3
        print(
            f"harmony-conformance {command.name}: an error of our own: {type(error).__name__}: {error}", file=sys.stderr
        )
        if os.environ.get("HARMONY_CONFORMANCE_DEBUG"):
            traceback.print_exc()
        else:
            print("set HARMONY_CONFORMANCE_DEBUG=1 to see where; please report it", file=sys.stderr)
        return Exit.OUR_ERROR


def _told(code: int) -> int:
    sys.stdout.flush()  # here, where a closed pipe is noticed
    return code


def _write_no_more() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(called: str) -> ArgumentParser:
    parser = _Parser(
        prog="harmony-conformance",
        description="Proves on any gpt-oss endpoint, and in any traffic log, that what went into the model and what came out of it is Harmony.",
        epilog="exit codes: 0 conforms, 1 does not conform, 2 usage or nothing could be checked, 3 our own error",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=version("harmony-conformance"))
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in _commands(called):
        own = subparsers.add_parser(command.name, help=command.help, description=command.help)
        command.configure(own)
        own.set_defaults(command=command)
    return parser


def _commands(called: str) -> Iterator[Command]:
    """The command that was called, where it is one of ours; else every one there is."""
    yield from map(load, [called] if called in NAMES else NAMES)
    if called not in NAMES:
        yield from _others()


def _others() -> Iterator[Command]:
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        loaded = _load(point)
        if loaded is not None:
            yield loaded


def _load(point: EntryPoint) -> Command | None:
    try:
        loaded: object = point.load()
    except ImportError as missing:
        return _missing(point.name, str(missing))
    return loaded if isinstance(loaded, Command) else None


def _missing(name: str, what: str) -> Command:
    """A command whose extra is not installed: it says so when it is called."""

    def no_options(_: ArgumentParser) -> None:
        """It is not known which it has."""

    def refuse(_: Namespace) -> int:
        raise UsageError(f"{what}: install it with pip install 'harmony-conformance[{name}]'")

    return Command(name=name, help=f"(needs the extra {name})", configure=no_options, run=refuse)


if __name__ == "__main__":
    sys.exit(main())
