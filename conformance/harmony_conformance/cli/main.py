"""Entry point of the command line: parse arguments, run one command, return its exit code."""

from __future__ import annotations

import errno
import os
import re
import sys
import traceback
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from importlib.metadata import entry_points
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from harmony_conformance.cli import COMMANDS
from harmony_conformance.cli.command import Command
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.runtime.build_version import build_version
from harmony_conformance.runtime.similar_names import suggestion
from harmony_conformance.runtime.terminal_text import escape_invisible, escaped_output
from harmony_conformance.runtime.termination import interrupted_by_termination

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

_GROUP = "harmony_conformance.commands"
_CLOSED_PIPE = 128 + 13  # exit code of shells after SIGPIPE: the output is incomplete

_FULL_DISK = frozenset({errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)})


_CHOICE = re.compile(r"invalid choice: '(?P<word>[^']*)' \(choose from (?P<choices>.*)\)")
_UNKNOWN = "unrecognized arguments"


class _Parser(ArgumentParser):
    """A parser of a command or subcommand. State: the words that it was given last."""

    _words: tuple[str, ...] = ()

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Print the help, the version or an error. argparse ignores that a help or a version cannot be written."""
        if file is sys.stdout:
            print(message, end="", flush=True)
        else:
            super()._print_message(message, file)

    def parse_known_args(  # type: ignore[override]  # of the overloads, this is what argparse calls
        self, args: Iterable[str] | None = None, namespace: Namespace | None = None
    ) -> tuple[Namespace, list[str]]:
        """Parse the words of this parser. Unknown ones are an error here, where the options that they could mean are known."""
        self._words = tuple(args or ())
        chosen, unknown = super().parse_known_args(self._words, namespace or Namespace())
        if unknown:
            self.error(f"{_UNKNOWN}: {' '.join(unknown)}")
        return chosen, []

    def error(self, message: str) -> NoReturn:
        """Print the error in one line, with the name that was perhaps meant, and exit."""
        choice = _CHOICE.search(message)
        meant = suggestion(choice["word"], re.findall(r"[^\s,']+", choice["choices"])) if choice is not None else ""
        if meant:
            message += meant
        elif unknown := self._unknown_options():
            shown = "" if message.startswith(_UNKNOWN) else f"; {_UNKNOWN}: {' '.join(unknown)}"
            similar = (suggestion(word, [*self._option_string_actions]) for word in unknown)
            message += shown + next(filter(None, similar), "")
        self.exit(Exit.USAGE, f"{self.prog}: {message} (see {self.prog} --help)\n")

    def _unknown_options(self) -> list[str]:
        """Return the words that look like options, but neither are options of this parser nor begin one."""
        options = takewhile(lambda word: word != "--", self._words)
        names = (word.partition("=")[0] for word in options if word.startswith("--"))
        return [name for name in names if not any(one.startswith(name) for one in self._option_string_actions)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code. What it prints cannot steer a terminal."""
    _open_closed_streams()
    with escaped_output(), interrupted_by_termination() as interruption:
        try:
            return _run(arguments)
        except KeyboardInterrupt:
            return interruption.exit_code


def _open_closed_streams() -> None:
    """Replace the standard streams that the caller closed by an empty one. A later file would take their descriptors."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - until the process ends


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command and return its exit code.

    Raises:
        KeyboardInterrupt: The command was stopped, and reported it.
    """
    words = sys.argv[1:] if arguments is None else arguments
    program = "harmony-conformance"
    try:
        chosen = _parse(words)
        command: Command = chosen.command
        program = f"{program} {command.name}"
        with _plugins_of(chosen):
            code = command.run(chosen)
        sys.stdout.flush()  # raises BrokenPipeError here, not at exit
    except UsageError as problem:
        _print_error(program, escape_invisible(str(problem)))
        return Exit.USAGE
    except KeyboardInterrupt as stopped:
        _print_error(program, str(stopped) or "stopped")
        raise
    except BrokenPipeError:
        _discard_output()
        return _CLOSED_PIPE
    except Exception as error:  # noqa: BLE001 - last resort: internal error, one line, exit code 3
        if isinstance(error, OSError) and error.errno in _FULL_DISK:
            _discard_output()
            _print_error(program, f"the output cannot be written: {error.strerror}")
            return Exit.USAGE
        _print_error(program, f"internal error: {type(error).__name__}: {escape_invisible(str(error))}")
        with suppress(OSError):
            if os.environ.get("HARMONY_CONFORMANCE_DEBUG"):
                traceback.print_exc()
            else:
                print("set HARMONY_CONFORMANCE_DEBUG=1 for a traceback; please report this error", file=sys.stderr)
        return Exit.INTERNAL_ERROR
    return code


def _plugins_of(chosen: Namespace) -> AbstractContextManager[None]:
    """Return the context in which a command has the checks of its `--plugin` options."""
    names: list[str] = getattr(chosen, "plugin", [])
    if not names:
        return nullcontext()
    from harmony_conformance.plugins.loading import use_plugins  # noqa: PLC0415 - the package takes time to import

    return use_plugins(names)


def _parse(words: Sequence[str]) -> Namespace:
    """Parse the command line. A name that nothing has ends the program, with the one that was perhaps meant."""
    called = words[0] if words else ""
    parser = build_parser(called)
    names = [command.name for command in all_commands()]
    if called and not called.startswith("-") and called not in names:
        parser.error(f"invalid COMMAND: expected one of {', '.join(names)}, got {called!r}{suggestion(called, names)}")
    chosen = parser.parse_args(words)
    chosen.words = tuple(words)
    return chosen


def _print_error(program: str, message: str) -> None:
    with suppress(OSError):  # the exit code is the same without a line
        print(f"{program}: {message}", file=sys.stderr)


def _discard_output() -> None:
    """Discard buffered output. Otherwise Python fails to write it at exit, and returns another exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def build_parser(called: str | None) -> ArgumentParser:
    """Return the parser. Only the called command has its options, and its module is imported; None: every command."""
    parser = _Parser(
        prog="harmony-conformance",
        description="Verify that a gpt-oss endpoint, or a traffic log, follows the OpenAI Harmony format in prompts and outputs.",
        epilog="exit codes: 0 conforms, 1 does not conform, 2 usage error, incomplete run or nothing could be checked, 3 internal error",
        formatter_class=RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=build_version())
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in all_commands():
        own = subparsers.add_parser(command.name, help=command.help, description=command.help)
        chosen = _configured(command, own) if called in {command.name, None} else command
        own.set_defaults(command=chosen)
    return parser


def all_commands() -> Iterator[Command]:
    """Yield the commands of this package, then those of the entry points, by name."""
    yield from COMMANDS
    for point in sorted(entry_points(group=_GROUP), key=lambda point: point.name):
        try:
            command: object = point.load()
        except ImportError as missing:
            command = _not_installed(point.name, str(missing))
        if isinstance(command, Command):
            yield command


def _configured(command: Command, parser: ArgumentParser) -> Command:
    """Add the options of a command; return one that reports its missing extra if its modules cannot be imported."""
    try:
        command.configure(parser)
    except ImportError as missing:
        if command in COMMANDS:
            raise
        return _not_installed(command.name, str(missing))
    return command


def _not_installed(name: str, problem: str) -> Command:
    """Return a command that reports its missing extra when it is run."""

    def refuse(_: Namespace) -> int:
        from harmony_ref.extras import install_command  # noqa: PLC0415 - the package takes time to import

        raise UsageError(f"{problem}: {install_command(name)}")

    return Command(name=name, help=f"(needs the extra {name})", configure=lambda _: None, run=refuse)


if __name__ == "__main__":
    sys.exit(main())
