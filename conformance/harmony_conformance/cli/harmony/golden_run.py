"""`harmony-conformance golden run|compare`: judge a renderer or parser in any language, as a process that reads and writes lines of JSON."""

from __future__ import annotations

import os
from argparse import Namespace
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
from harmony_conformance.golden.grading.pipe_run import run_command
from harmony_conformance.golden.vectors.implementations import KINDS as ALL_KINDS
from harmony_conformance.golden.vectors.vector_file import Vector, VectorFile, read_folder
from harmony_conformance.json_value import dumps


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
