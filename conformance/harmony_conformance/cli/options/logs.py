"""Options of `audit`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path

from harmony_conformance.runner.arguments import FAIL_ON_WORDS, add_plugin_option, folder_path, whole_number

LOG_FORMATS = (
    "auto",
    *("parquet", "arrow", "sqlite", "duckdb", "otlp-binary", "mitmproxy", "sse", "vllm-log", "json", "csv", "jsonl"),
    *(
        "proxy",
        "exchanges",
        "har",
        "batch",
        "litellm",
        "openai",
        "vllm-record",
        "helicone",
        "openrouter",
        "otel",
        "langfuse",
    ),
    *("answers", "messages", "text"),
)
"""Values of `--format`: files, then records."""
COLUMN_NAMES = ("request", "response", "status", "path", "messages", "input", "output", "model", "started")
"""Names of `--map`."""
EXCERPTS = ("redacted", "full", "none")
"""Values of `--excerpts`."""
PLANS = ("auto", "needles", "structure")
"""Values of `--plan`."""
ENGINES = ("local", "ray")
"""Values of `--engine`."""


def configure_audit(parser: ArgumentParser) -> None:
    """Add the options of `audit`."""
    parser.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="file, folder, glob, URL (s3://, gs://, hf://), or - for standard input",
    )
    add = parser.add_argument_group("format of the log").add_argument
    add(
        "--format",
        choices=LOG_FORMATS,
        default=LOG_FORMATS[0],
        metavar="NAME",
        help="format of the files or of their records, if it is not to be detected: %(choices)s (default: %(default)s)",
    )
    add(
        "--map",
        action="append",
        type=_column,
        default=[],
        metavar="NAME=PATH",
        help="read the member or column PATH as NAME: request=input.body; NAME is one of " + ", ".join(COLUMN_NAMES),
    )
    add(
        "--explain-format",
        action="store_true",
        help="show the detected format, the first exchange and the checks that could judge it, and judge nothing",
    )
    add = parser.add_argument_group("output").add_argument
    add(
        "--out",
        type=folder_path,
        metavar="DIR",
        help="folder for audit.jsonl, report.html, failures.jsonl and unreadable.jsonl",
    )
    add("--parquet", action="store_true", help="also write failures.parquet into --out (needs the extra logs)")
    add("--resume", action="store_true", help="continue the audit that was killed while it wrote to --out")
    add(
        "--incremental",
        action="store_true",
        help="judge only files and records that are new since the last --incremental audit into --out, and add them to its results",
    )
    add(
        "--excerpts",
        choices=EXCERPTS,
        default=EXCERPTS[0],
        help="quotations of the traffic (default: redacted: letters and digits masked)",
    )
    add(
        "--user-key-env",
        metavar="VAR",
        help="environment variable with a key; failures then have a keyed hash of the user (HMAC-SHA256), by which they can be joined",
    )
    add = parser.add_argument_group("gate").add_argument
    add("--fail-on", choices=FAIL_ON_WORDS, default="must", help="lowest severity for exit code 1 (default: must)")
    add(
        "--baseline",
        type=Path,
        metavar="FILE",
        help="TOML file of expected failures: exit code 1 for other failures, and for entries that explain none",
    )
    add(
        "--baseline-write",
        type=Path,
        metavar="FILE",
        help="write a baseline that expects the checks that failed; entries of FILE that still match are kept",
    )
    add_plugin_option(parser.add_argument_group("checks").add_argument)
    add = parser.add_argument_group("extent and speed").add_argument
    add(
        "--plan",
        choices=PLANS,
        default=PLANS[0],
        help="needles: only leaks of markers and channel words, in every record, and all checks on a sample;"
        " structure: all checks; auto: needles above 2 GiB of files (default)",
    )
    add(
        "--sample",
        type=_share,
        metavar="SHARE",
        help="share of the records that all checks judge, from 0 to 1 (default: 1, or for needles 0 and the first record of each file)",
    )
    add(
        "--workers",
        type=whole_number(1),
        default=os.cpu_count() or 1,
        metavar="N",
        help="number of processes; a small log needs one (default: the number of CPUs)",
    )
    add(
        "--engine",
        choices=ENGINES,
        default=ENGINES[0],
        help="local: processes of this machine (default); ray: tasks of the cluster at RAY_ADDRESS, else of a new one (needs the extra ray)",
    )


def _column(value: str) -> tuple[str, str]:
    name, _, path = value.partition("=")
    if name not in COLUMN_NAMES or not path:
        raise ArgumentTypeError(f"expected NAME=PATH with one of the names {', '.join(COLUMN_NAMES)}, got {value!r}")
    return name, path


def _share(value: str) -> float:
    try:
        share = float(value)
    except ValueError:
        share = -1
    if not 0 <= share <= 1:
        raise ArgumentTypeError(f"expected a share from 0 to 1, got {value!r}")
    return share
