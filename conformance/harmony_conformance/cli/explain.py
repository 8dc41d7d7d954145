"""`harmony-conformance explain ID`: explain a check, a defect, a cause, a scenario, a rate or a client."""

from __future__ import annotations

import shlex
import sys
import textwrap
from argparse import Namespace

from harmony_conformance.causes.explanation import Section, UnknownIdError, explain
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import dumps
from harmony_conformance.runner.selection import load_scenarios
from harmony_conformance.sampling.rates import describe_rate

_WIDTH = 100


def execute(arguments: Namespace) -> int:
    """Print the explanation."""
    try:
        sections = explain(arguments.id, {one.name: one for one in load_scenarios()})
    except UnknownIdError as problem:
        if not describe_rate(arguments.id):
            raise UsageError(str(problem)) from None
        sections = ()
    sections += _rate(arguments.id)
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


def _rate(name: str) -> tuple[Section, ...]:
    """Return the explanation of a rate of the command `rates`, nothing for another name."""
    about = describe_rate(name)
    command = f"harmony-conformance rates URL --min {shlex.quote(f'{name}=0.9')}"
    return ((f"rate {name}", about), ("try it", (command,))) if about else ()


def _indented(paragraph: str) -> str:
    """Return a paragraph in lines of a terminal, on one line elsewhere. No URL is broken."""
    if "\n" in paragraph:
        return textwrap.indent(paragraph, "  ")
    if not sys.stdout.isatty():
        return f"  {paragraph}"
    lines = textwrap.wrap(paragraph, _WIDTH, break_on_hyphens=False, break_long_words=False)
    return textwrap.indent("\n".join(lines), "  ")
