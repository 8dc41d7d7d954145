"""A page for each command: its arguments and options in tables, made from the parsers of the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from harmony_conformance.cli.main import all_commands, build_parser
from harmony_conformance.pytest_plugin.plugin import pytest_addoption
from site_sources.markdown import anchor, code, prose, table, write_page

_PROGRAM = "harmony-conformance"
_DEFAULT = re.compile(r" ?\((?P<rest>[^()]*?)(?:[;,] )?default: (?P<default>[^()]*(?:\([^()]*\)[^()]*)?)\)")
_HEADS = ("Option", "Values", "Default", "Meaning")


def write_commands(folder: Path) -> None:
    """Write a page for each command, and an index."""
    parsers = subparsers(build_parser(None))
    commands = list(all_commands())
    rows = ((f"[`{command.name}`]({command.name}.md)", prose(command.help)) for command in commands)
    exits = (
        ("0", "conforms"),
        ("1", "does not conform"),
        ("2", "usage error, incomplete run, or nothing could be checked"),
        ("3", "internal error"),
    )
    write_page(
        folder / "index.md",
        (
            "# Commands\n",
            f"The commands of `{_PROGRAM}`. Each page has every argument and option, made from the parser of the command.\n",
            *table(("Command", "Purpose"), rows),
            "[All options](options.md) lists the options of all commands.\n",
            "The tests can also run [in pytest](pytest.md).\n",
            "## Exit codes\n",
            *table(("Code", "Meaning"), exits),
            "## Options of the program\n",
            *table(
                _HEADS[:1] + _HEADS[-1:],
                (
                    (code("--version"), "print the version"),
                    (code("-h, --help"), "print the help of the program or of a command"),
                ),
            ),
        ),
    )
    for command in commands:
        write_page(folder / f"{command.name}.md", (f"# {_PROGRAM} {command.name}\n", *_page(parsers[command.name])))
    write_page(folder / "pytest.md", ("# pytest\n", *_page(_pytest_parser())))
    write_page(folder / "options.md", _index_of_options(parsers))


class _PluginOptions:
    """The interface by which pytest takes the options of a plugin, as a parser of the standard library."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._parser = parser

    def getgroup(self, name: str, description: str) -> _PluginOptions:
        self._parser.description = f"{description}. Each check and scenario is an item of pytest."
        self._add = self._parser.add_argument_group(f"options of {name}").add_argument
        return self

    def addoption(self, *names: str, **settings: object) -> None:
        self._add(*names, **settings)


def _pytest_parser() -> argparse.ArgumentParser:
    """Return a parser with the options of the pytest plugin."""
    parser = argparse.ArgumentParser(prog="pytest --pyargs harmony_conformance.conformance_test", add_help=False)
    pytest_addoption(_PluginOptions(parser))
    return parser


def _index_of_options(parsers: Mapping[str, argparse.ArgumentParser]) -> Iterator[str]:
    """Yield a heading for each option, which a search finds by its name, and the commands that have the option."""
    found: dict[str, list[str]] = {}
    for command, parser in parsers.items():
        for shown, own, prefix in (
            (command, parser, ""),
            *((f"{command} {name}", own, f"{name}-") for name, own in subparsers(parser).items()),
        ):
            for action in own._actions:
                if action.option_strings and _is_shown(action):
                    option = action.option_strings[-1]
                    place = f"{command}.md#{prefix}{option.lstrip('-')}"
                    found.setdefault(option, []).append(f"- [`{shown}`]({place}): {_meaning(own, action)[0]}")
    yield "---\nhide:\n  - toc\n---\n"
    yield "# All options\n"
    yield "Every option of every command, in the order of the alphabet.\n"
    for option in sorted(found):
        yield f"## `{option}`\n"
        yield from found[option]
        yield ""


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands of a parser, by name."""
    found = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: own for action in found for name, own in action.choices.items()}


def _page(parser: argparse.ArgumentParser) -> Iterator[str]:
    about = _sentence(parser.description or "")
    yield f"{about[:1].upper()}{about[1:]}\n"
    yield from _usage(parser)
    yield from _epilog(parser.epilog or "")
    yield from _options(parser, "##", "")
    for action, own in subparsers(parser).items():
        helps = (one for one in parser._actions if isinstance(one, argparse._SubParsersAction))
        about = next(choice.help for one in helps for choice in one._choices_actions if choice.dest == action)
        yield f"## {own.prog.partition(' ')[2]}\n"
        yield f"{_sentence(about or '')}\n"
        yield from _usage(own)
        yield from _options(own, "###", f"{action}-")


def _sentence(text: str) -> str:
    """Return text as a sentence. Its first word keeps its case if it is a value that is explained, as in `json: …`."""
    shown = prose(text)
    is_value = text.partition(" ")[0].endswith((":", ","))
    return f"{shown[:1] if is_value else shown[:1].upper()}{shown[1:]}{'' if text.endswith(('.', '?')) else '.'}"


def _usage(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the usage without the options, which the tables have."""
    actions = [action for action in parser._actions if not isinstance(action, argparse._HelpAction)]
    words = [parser.prog, *(["[OPTIONS]"] if any(action.option_strings for action in actions) else [])]
    for action in actions:
        if not action.option_strings:
            form = {"?": "[{}]", "+": "{} …"}.get(str(action.nargs), "{}")
            words.append(form.format(action.metavar or action.dest.upper()))
    yield f"```text\n{' '.join(words)}\n```\n"


def _epilog(text: str) -> Iterator[str]:
    """Yield the examples of an epilog as a block of commands, and its other sentences as a paragraph."""
    if not text.startswith("Examples: "):
        yield f"{prose(text)}\n" if text else ""
        return
    end = text.rfind(". ", 0, text.find(". ") + 2) if ". " in text else len(text)
    examples = [part.strip().rstrip(".") for part in text[:end].removeprefix("Examples: ").split("; ")]
    shown = [re.match(r"`(?P<command>[^`]+)`(?P<note>.*)", example) for example in examples]
    commands = [(match["command"].removeprefix(f"{_PROGRAM} "), match["note"].strip()) for match in shown if match]
    width = max(len(command) for command, _ in commands)
    rows = (
        f"{_PROGRAM} {command:{width}}  # {note}" if note else f"{_PROGRAM} {command}" for command, note in commands
    )
    yield "```sh"
    yield from rows
    yield "```\n"
    yield f"{prose(text[end:].strip('. '))}.\n" if text[end:].strip(". ") else ""


def _options(parser: argparse.ArgumentParser, heading: str, prefix: str) -> Iterator[str]:
    """Yield a table for each group of options."""
    for group in parser._action_groups:
        rows = [_row(parser, action, prefix) for action in group._group_actions if _is_shown(action)]
        if rows:
            title = {"positional arguments": "arguments"}.get(group.title or "", group.title or "")
            yield f"{heading} {title[:1].upper()}{title[1:]}\n"
            yield from table(("Argument", *_HEADS[1:]) if title == "arguments" else _HEADS, rows)


def _is_shown(action: argparse.Action) -> bool:
    is_hidden = action.help == argparse.SUPPRESS
    return not is_hidden and not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)


def _row(parser: argparse.ArgumentParser, action: argparse.Action, prefix: str) -> tuple[str, str, str, str]:
    metavar = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    shown = ", ".join(action.option_strings) or metavar
    name = action.option_strings[-1].lstrip("-") if action.option_strings else action.dest
    meaning, default = _meaning(parser, action)
    return anchor(f"{prefix}{name}", shown), _values(action, metavar), default, meaning


def _values(action: argparse.Action, metavar: str) -> str:
    if action.nargs == 0:
        return "no value"
    values = ", ".join(code(str(choice)) for choice in action.choices) if action.choices else code(metavar)
    repeated = action.nargs in ("+", "*") or isinstance(action, argparse._AppendAction | argparse._ExtendAction)
    return f"{values}; repeatable" if repeated else values


def _meaning(parser: argparse.ArgumentParser, action: argparse.Action) -> tuple[str, str]:
    """Return the meaning of an option and its default, which the text of the help names if the parser does not know it."""
    text = parser._get_formatter()._expand_help(action)
    text = re.sub(r"[;,]? ?(\(repeatable\)|may be repeated)", "", text)
    if (named := _DEFAULT.search(text)) is not None:
        rest = f" ({named['rest']})" if named["rest"] else ""
        default = named["default"]
        shown = code(default) if default == str(action.default).removesuffix(".0") else prose(default)
        return _sentence(f"{text[: named.start()]}{rest}{text[named.end() :]}"), shown
    if action.default not in (None, False, (), [], "", argparse.SUPPRESS):
        return _sentence(text), code(str(action.default).removesuffix(".0"))
    if action.required and action.nargs != "?":
        return _sentence(text), "required"
    return _sentence(text), "off" if action.nargs == 0 else "none"
