"""`harmony-conformance golden run|compare`: judge a renderer or parser in any language, as a process that reads and writes lines of JSON."""

from __future__ import annotations

import os
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.errors import UsageError
from harmony_conformance.golden import data as golden
from harmony_conformance.golden.grading.answer import KINDS, select_vectors
from harmony_conformance.golden.grading.grade import GradeReport
from harmony_conformance.golden.grading.grade_comparison import compare_grades, comparison_json, comparison_text
from harmony_conformance.golden.grading.grade_formats import report_json, report_junit
from harmony_conformance.golden.grading.grade_text import flag_effects, report_text
from harmony_conformance.golden.grading.pipe_run import DEFAULT_TIMEOUT, run_command
from harmony_conformance.golden.vectors.implementations import KINDS as ALL_KINDS
from harmony_conformance.golden.vectors.vector_file import Vector, VectorFile, read_folder
from harmony_conformance.json_value import dumps

_COMMAND = (
    "program that answers each line of JSON on its standard input by one line (golden/README.md); run without a shell"
)


def configure_run(parser: ArgumentParser) -> None:
    """Add the options of `run`."""
    parser.add_argument("--command", dest="implementation", required=True, metavar="'CMD …'", help=_COMMAND)
    _add_options(parser, tuple(_FORMATS))
    parser.add_argument("--junit", metavar="FILE", type=Path, help="also write JUnit XML to this file")


def configure_compare(parser: ArgumentParser) -> None:
    """Add the options of `compare`."""
    parser.add_argument("--base", required=True, metavar="'CMD …'", help=_COMMAND)
    parser.add_argument("--head", required=True, metavar="'CMD …'", help="the same, after the change")
    _add_options(parser, ("text", "json"))


def run(arguments: Namespace) -> int:
    """Judge one implementation."""
    files, vectors = _read(arguments)
    report = run_command(arguments.implementation, vectors, timeout=arguments.timeout)
    print(_FORMATS[arguments.format](report, flag_effects(files)))
    if arguments.junit is not None:
        _write(arguments.junit, report_junit(report))
    _write_summary(report_text(report, flag_effects(files)))
    return report.exit_code


def compare(arguments: Namespace) -> int:
    """Judge two builds and compare them."""
    files, vectors = _read(arguments)
    base, head = (
        run_command(command, vectors, timeout=arguments.timeout) for command in (arguments.base, arguments.head)
    )
    compared = compare_grades(base, head)
    text = comparison_text(compared, flag_effects(files))
    print(text if arguments.format == "text" else dumps(comparison_json(compared)))
    _write_summary(text)
    return compared.exit_code


def _add_options(parser: ArgumentParser, formats: Sequence[str]) -> None:
    parser.add_argument(
        "--kind",
        action="append",
        choices=KINDS,
        dest="kinds",
        help=f"vectors to send; may be repeated (default: {', '.join(KINDS)})",
    )
    parser.add_argument(
        "--select", action="append", metavar="PATTERN", help="only the vectors with such an id; may be repeated"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=DEFAULT_TIMEOUT,
        metavar="SECONDS",
        help=f"time for one answer; the first one has at least a minute (default: {DEFAULT_TIMEOUT:g})",
    )
    parser.add_argument("--format", choices=formats, default="text", help="output format (default: text)")
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="copy of the golden data (default: that of this package)"
    )


def _seconds(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 24 * 3600:
        raise ArgumentTypeError(f"expected seconds above 0, got {word!r}")
    return seconds


def _read(arguments: Namespace) -> tuple[Sequence[VectorFile], Sequence[Vector]]:
    files = read_folder(golden.root() if arguments.data is None else arguments.data, ALL_KINDS)
    vectors = select_vectors(files, arguments.kinds or KINDS)
    if incomplete := next((vector.id for vector in vectors if vector.expected is None), None):
        raise UsageError(f"{incomplete}: the vector has no expected answer: harmony-conformance golden write DIR")
    patterns = arguments.select or ["*"]
    selected = [vector for vector in vectors if any(fnmatchcase(vector.id, pattern) for pattern in patterns)]
    if not selected:
        raise UsageError(f"invalid --select: expected a pattern of ids (golden list), got {', '.join(patterns)}")
    return files, selected


def _write(file: Path, content: str) -> None:
    try:
        file.write_text(content, encoding="utf-8", errors="backslashreplace")
    except OSError as problem:
        raise UsageError(f"{file}: cannot write: {problem.strerror}") from None


def _write_summary(text: str) -> None:
    """Add the text to the summary of a step of GitHub Actions, as an indented block, which no content can end."""
    if os.environ.get("GITHUB_ACTIONS") != "true" or not (summary := os.environ.get("GITHUB_STEP_SUMMARY")):
        return
    block = "".join(f"    {line}\n" for line in text.splitlines())
    try:
        with Path(summary).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"\n{block}\n")
    except OSError as problem:
        raise UsageError(f"{summary}: cannot write: {problem.strerror}") from None


def _json(report: GradeReport, _: Mapping[str, str]) -> str:
    return dumps(report_json(report))


def _junit(report: GradeReport, _: Mapping[str, str]) -> str:
    return report_junit(report)


_FORMATS: Mapping[str, Callable[[GradeReport, Mapping[str, str]], str]] = MappingProxyType(
    {"text": report_text, "json": _json, "junit": _junit}
)
