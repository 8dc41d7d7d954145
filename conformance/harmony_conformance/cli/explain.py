"""`harmony-conformance explain ID`: explain a check, a defect, a cause or a scenario."""

from __future__ import annotations

import sys
import textwrap
from argparse import ArgumentParser, Namespace

from harmony_conformance.causes.explanation import UnknownIdError, explain
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import dumps
from harmony_conformance.runner.selection import load_scenarios

_WIDTH = 100


def configure(parser: ArgumentParser) -> None:
    """Add the options of `explain`."""
    parser.add_argument("id", metavar="ID", help="a check, defect, cause, scenario, or an entry of golden/defects.json")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")


def execute(arguments: Namespace) -> int:
    """Print the explanation."""
    try:
        sections = explain(arguments.id, {scenario.name: scenario for scenario in load_scenarios()})
    except UnknownIdError as problem:
        raise UsageError(str(problem)) from None
    shown = [(heading, [one for one in paragraphs if one]) for heading, paragraphs in sections]
    if arguments.format == "json":
        print(dumps({heading: [*paragraphs] for heading, paragraphs in shown}))
        return Exit.CONFORMS
    for heading, paragraphs in shown:
        if paragraphs:
            print(heading)
        for paragraph in paragraphs:
            print(_indented(paragraph))
    return Exit.CONFORMS


def _indented(paragraph: str) -> str:
    """Return a paragraph in lines of a terminal, on one line elsewhere. No URL is broken."""
    if not sys.stdout.isatty():
        return f"  {paragraph}"
    lines = textwrap.wrap(paragraph, _WIDTH, break_on_hyphens=False, break_long_words=False)
    return textwrap.indent("\n".join(lines), "  ")
