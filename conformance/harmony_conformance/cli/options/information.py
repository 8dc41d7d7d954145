"""Options of the commands that show something: `report`, `reproduce`, `explain`, `checks`, `help`."""

from __future__ import annotations

import shlex
from argparse import ArgumentParser
from pathlib import Path

from harmony_conformance.runner.arguments import add_plugin_option

REPORT_FORMATS = ("html", "md", "junit", "junit-all", "sarif", "ctrf", "github", "badge-json", "badge-svg")
"""Values of `report --format`."""
CHECKS_FORMATS = ("md", "json", "accounting", "evidence")
"""Values of `checks --format`."""


def configure_report(parser: ArgumentParser) -> None:
    """Add the options of `report`."""
    parser.add_argument("run_dir", metavar="RUN_DIR", type=Path, help="folder of a run, or its report.jsonl")
    parser.add_argument("--format", choices=REPORT_FORMATS, default="html", help="output format (default: html)")
    add_plugin_option(parser.add_argument)


def configure_reproduce(parser: ArgumentParser) -> None:
    """Add the options of `reproduce`."""
    parser.add_argument("run_dir", metavar="RUN", type=Path, help="folder of a run")
    parser.add_argument(
        "id",
        metavar="ID",
        nargs="?",
        default="",
        help="a cause of its report, a failed check, or CHECK@SCENARIO (default: the example of every cause)",
    )
    parser.add_argument("--against", metavar="TARGET", help="another target than that of the run")
    parser.add_argument("--all", action="store_true", help="every failed result, not the example alone")
    add_plugin_option(parser.add_argument)
    parser.add_argument(
        "--run-options",
        metavar="TEXT",
        type=shlex.split,
        default=[],
        help="further options of `run`, for example --run-options='--api-key-env KEY'",
    )


def configure_explain(parser: ArgumentParser) -> None:
    """Add the options of `explain`."""
    parser.add_argument(
        "id",
        metavar="ID",
        help="a check, family of checks, defect, cause, scenario, rate, client, or an entry of golden/defects.json",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="output format (default: text)")
    add_plugin_option(parser.add_argument)


def configure_checks(parser: ArgumentParser) -> None:
    """Add the options of `checks`."""
    parser.add_argument(
        "--format",
        choices=CHECKS_FORMATS,
        default="md",
        help="md, json: the checks; accounting: token cost of each mistake; evidence: evidence for each prompt defect",
    )
    add_plugin_option(parser.add_argument)


def configure_help(parser: ArgumentParser) -> None:
    """Add the options of `help`."""
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="a page or a command (default: list the pages)")
