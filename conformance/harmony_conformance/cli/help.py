"""`harmony-conformance help [TOPIC]`: show a page of the documentation, or the options of a command."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from importlib.resources.abc import Traversable
from pathlib import Path

from rich.markdown import Markdown

from harmony_conformance.cli import COMMANDS
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.report.formats.terminal import report_console
from harmony_conformance.runtime.package_data import package_data

_PAGE = ".md"
_HEADING = "# "


def execute(arguments: Namespace) -> int:
    """Print the page: formatted for a terminal, as Markdown otherwise."""
    from harmony_conformance.cli.main import build_parser  # noqa: PLC0415 - main imports the commands

    pages = _pages()
    topic: str | None = arguments.topic
    if topic is None:
        width = max(map(len, pages), default=0)
        print("pages, shown by `harmony-conformance help TOPIC`:")
        for name, page in pages.items():
            print(f"  {name:{width}}  {_title(page)}")
        print(
            "`harmony-conformance COMMAND --help` has the options of a command, `explain ID` a check, family, defect, cause, scenario, rate or client."
        )
    elif topic in pages:
        console = report_console()
        markdown = pages[topic].read_text(encoding="utf-8")
        console.print(Markdown(markdown)) if console.is_terminal else print(markdown, end="")
    elif topic in {command.name for command in COMMANDS}:
        build_parser(topic).parse_args([topic, "--help"])  # exits
    else:
        raise UsageError(f"invalid TOPIC: expected a command or one of {', '.join(pages)}, got {topic!r}")
    return Exit.CONFORMS


def _pages() -> Mapping[str, Path | Traversable]:
    folder = package_data("docs")
    if folder is None:
        return {}
    pages = {entry.name.removesuffix(_PAGE): entry for entry in folder.iterdir() if entry.name.endswith(_PAGE)}
    pages.pop("README", None)  # the index
    return dict(sorted(pages.items()))


def _title(page: Path | Traversable) -> str:
    lines = page.read_text(encoding="utf-8").split("\n")
    return next((line.removeprefix(_HEADING) for line in lines if line.startswith(_HEADING)), "")
