"""Files of a run folder: `report.jsonl`, `junit.xml`, `report.md`, `report.html`."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from harmony_conformance.evidence.file_lines import UnreadableLine, read_lines
from harmony_conformance.json_value import InvalidJsonError, loads, value_at
from harmony_conformance.judge.check import Severity
from harmony_conformance.report.formats.junit import junit
from harmony_conformance.report.formats.markdown import markdown
from harmony_conformance.report.model import InvalidReportError, Report, read_report
from harmony_conformance.report.pages.exchange_view import ExchangeView
from harmony_conformance.report.pages.html import html
from harmony_conformance.runtime.private_files import write_private
from harmony_conformance.runtime.processes import cores, forked, may_fork

Renderer = Callable[[Report, frozenset[Severity]], str]
RENDERERS: Mapping[str, Renderer] = MappingProxyType({"html": html, "md": markdown, "junit": junit})
HTML_REPORT = "report.html"
"""File name of the report for a browser."""
_NAMES = {"html": HTML_REPORT, "md": "report.md", "junit": "junit.xml"}
_MIN_FOR_SECOND_PROCESS = 5_000
"""Minimum number of results for a second process. Rendering the files of 45,000 results takes two seconds."""

_QUOTED = 30  # characters of another file

REPORT = "report.jsonl"
"""The complete report; all other files are rendered from it."""


def report_in(folder: Path) -> Path | None:
    """Return the report in the folder of a run, which may be compressed."""
    return next(filter(Path.is_file, (folder / f"{REPORT}{suffix}" for suffix in ("", ".gz", ".xz"))), None)


def read_report_file(path: Path) -> Report:
    """Read the report of a run: its folder, or its `report.jsonl`, plain or compressed.

    Raises:
        InvalidReportError: It cannot be read, or is no complete report. The message has the file.
    """
    file = path if path.is_file() else report_in(path) or path / REPORT
    lines: list[str] = []
    for line in read_lines(file):
        if isinstance(line, UnreadableLine):
            raise InvalidReportError(f"{file}: {f'line {line.number}: ' if line.number else ''}{line}")
        try:
            lines.append(line.data.decode())
        except UnicodeDecodeError as problem:
            raise InvalidReportError(f"{file}: line {line.number}: invalid UTF-8 at byte {problem.start}") from None
    if other := _other_file(lines[0] if lines else ""):
        raise InvalidReportError(f"{file}: invalid report: expected the folder of a run or its {REPORT}, got {other}")
    try:
        return read_report("\n".join(lines))
    except ValueError as problem:
        raise InvalidReportError(f"{file}: {problem}") from None


def _other_file(first_line: str) -> str:
    """Return what a file is that is no report; empty for a report, also for a truncated one."""
    if not first_line.strip():
        return "an empty file"
    if not first_line.startswith("{"):
        return f"a file that begins with {first_line[:_QUOTED]!r}"
    try:
        return "JSON without the member `kind`" if value_at(loads(first_line), "kind") is None else ""
    except InvalidJsonError:
        return ""


def write_files(
    report: Report, out: Path, fails_on: frozenset[Severity], exchanges: Mapping[str, ExchangeView] | None = None
) -> None:
    """Write all files to `out`. For a long report, a second process renders them while this one writes `report.jsonl`.

    `exchanges`: those that the page shows, by id.

    A file that cannot be rendered or written hides no other: the error is raised after the others are written.
    """
    is_long = len(report.results) >= _MIN_FOR_SECOND_PROCESS and cores() > 1
    process = forked(_render_in_second_process, report, out, fails_on, exchanges) if is_long and may_fork() else None
    lines = "".join(line + "\n" for line in report.lines())
    write_private(out / REPORT, lines.encode("utf-8", "backslashreplace"))
    if process is not None:
        process.join()
    errors: list[Exception] = []
    if process is None or process.exitcode != 0:  # after a failure, try again here, where the error is reported
        errors = _render(report, out, fails_on, exchanges)
    if errors:
        raise errors[0]


def _render(
    report: Report, out: Path, fails_on: frozenset[Severity], exchanges: Mapping[str, ExchangeView] | None
) -> list[Exception]:
    """Write each form, and return the errors of those that could not be written."""
    errors: list[Exception] = []
    for form, render in RENDERERS.items():
        try:
            page = html(report, fails_on, exchanges) if form == "html" and exchanges else render(report, fails_on)
            write_private(out / _NAMES[form], page.encode("utf-8", "backslashreplace"))
        except Exception as error:  # noqa: BLE001 - raised by the caller, after the other forms
            errors.append(error)
    return errors


def _render_in_second_process(
    report: Report, out: Path, fails_on: frozenset[Severity], exchanges: Mapping[str, ExchangeView] | None
) -> None:
    gc.disable()  # a collection would touch, and so copy, all memory shared with the parent
    if _render(report, out, fails_on, exchanges):
        sys.exit(1)
