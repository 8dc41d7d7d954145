"""`harmony-conformance compare A B`: what changed between two runs, two folders of rates or two of loads."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from harmony_conformance.audit.results.audit_comparison import compare_audits
from harmony_conformance.audit.results.stored_audit import is_audit, read_part
from harmony_conformance.cli.comparison.compare_measurements import (
    compare_measurements,
    latency_lines,
    measurement_file,
)
from harmony_conformance.cli.report import read_run, recorded_exchanges
from harmony_conformance.errors import Exit, UsageError
from harmony_conformance.json_value import dumps
from harmony_conformance.report.comparison.latency_comparison import is_any_slower_by
from harmony_conformance.report.comparison.prompt_changes import prompt_changes
from harmony_conformance.report.comparison.run_comparison import Change, Comparison, compare
from harmony_conformance.report.formats.terminal import cut_words, visible
from harmony_conformance.report.model import Report
from harmony_conformance.report.pages.html import comparison_html
from harmony_conformance.runner.options import FAIL_ON
from harmony_conformance.runner.shared_run import EXCHANGES
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.terminal_text import print_document

_RESULTS_SHOWN = 20
_SHOWN_ONE_BY_ONE = (Change.NEW, Change.CHANGED, Change.ERROR)


def execute(arguments: Namespace) -> int:
    """Print the comparison. Exit code 1: new failures, or a check fails significantly more often in a log. 2: otherwise, if AFTER is incomplete."""
    audits = [is_audit(name) for name in (arguments.before, arguments.after)]
    if all(audits):
        return _compare_audits(arguments)
    if any(audits):
        raise UsageError(f"{arguments.before} and {arguments.after}: expected two runs or two audits, got one of each")
    paths = [Path(name) for name in (arguments.before, arguments.after)]
    files = [measurement_file(path) for path in paths]
    if any(files):
        before, after = (found or path for found, path in zip(files, paths, strict=True))
        return compare_measurements(before, after, arguments.format, arguments.slower_by)
    before_report, after_report = map(_read, paths)
    compared = compare(before_report, after_report, (arguments.before, arguments.after))
    if not compared.both_judged:
        raise UsageError(f"{arguments.before} and {arguments.after}: expected results that both judged, got none")
    if arguments.format == "html":
        earlier, later = map(recorded_exchanges, paths)
        print_document(comparison_html(compared, prompt_changes(compared, earlier, later)))
    else:
        print("\n".join(_FORMATS[arguments.format](compared)))
    if compared.with_change(Change.ERROR):
        return Exit.INTERNAL_ERROR
    if arguments.slower_by is not None and is_any_slower_by(arguments.slower_by, compared.latency):
        return Exit.DIVERGES
    if compared.has_regressed(FAIL_ON[arguments.fail_on]):
        return Exit.DIVERGES
    return Exit.USAGE if compared.incomplete else Exit.CONFORMS


def _compare_audits(arguments: Namespace) -> int:
    earlier, before = read_part(arguments.before)
    later, after = read_part(arguments.after)
    compared = compare_audits(before, after, {**earlier.severities, **later.severities})
    print(dumps(compared.to_json()) if arguments.format == "json" else "\n".join(map(visible, compared.lines())))
    return Exit.DIVERGES if compared.has_regressed(FAIL_ON[arguments.fail_on]) else Exit.CONFORMS


def _read(path: Path) -> Report:
    if not path.name.startswith(EXCHANGES):
        return read_run(path)
    from harmony_conformance.cli.main import main  # noqa: PLC0415 - main imports the commands

    with TemporaryDirectory() as folder:
        with redirect_stdout(StringIO()):
            code = main(["run", f"replay:{path}", "--quiet", "--out", folder])
        if code not in (Exit.CONFORMS, Exit.DIVERGES):
            raise UsageError(f"{path}: expected a recording that can be judged")
        return read_run(Path(folder))


def comparison_text(compared: Comparison, names: tuple[str, str] = ("before", "after")) -> Iterator[str]:
    """Yield the lines of a comparison. `names`: those of the earlier and the later run."""
    for name, title in zip(names, (compared.before, compared.after), strict=True):
        yield f"{name + ':':{2 + max(map(len, names))}}{visible(title)}"
    yield f"{_results_were(compared.both_judged)} judged by both"
    if compared.no_longer_judged:
        yield f"{_results_were(compared.no_longer_judged)} judged by `{names[0]}` alone"
    if compared.incomplete:
        yield f"incomplete: {names[1]}: {visible(compared.incomplete)}"
    yield ""
    yield f"causes: {_counts([cause.change for cause in compared.causes])}"
    if same := [cause.id for cause in compared.causes if cause.change is Change.SAME]:
        yield f"  {Change.SAME.value}: {', '.join(same)}"
    for cause in compared.causes:
        if cause.change is not Change.SAME:
            extent = f"{number_of(cause.before, 'result')} before, {cause.after} after"
            yield f"  {cause.change.value.upper()} {cause.severity.value.upper()} {cause.id}: {extent}"
            yield f"    {visible(cut_words(cause.sentence))}"
            if example := next((one for one in compared.with_change(Change.NEW) if one.name in cause.failed), None):
                yield f"    for example {example.name}: {visible(cut_words(example.message))}"
    yield ""
    yield f"results: {_counts([result.change for result in compared.results])}"
    explained = compared.explained()
    if number := sum(result.name in explained for result in compared.with_change(Change.NEW)):
        yield f"  {number} of the new failures explained by the causes above; --format json lists them"
    for change in _SHOWN_ONE_BY_ONE:
        results = [one for one in compared.with_change(change) if change is not Change.NEW or one.name not in explained]
        for result in results[:_RESULTS_SHOWN]:
            unjudged = "" if result.was_judged else " (not judged before)"
            yield f"  {change.value.upper()} {result.severity.value.upper()} {result.name}{unjudged}: {visible(cut_words(result.message))}"
        if len(results) > _RESULTS_SHOWN:
            yield f"  … and {len(results) - _RESULTS_SHOWN} more: --format json"
    if compared.latency:
        yield ""
        yield from latency_lines(compared.latency, note="; they fail nothing without --slower-by")


def _results_were(count: int) -> str:
    return f"{number_of(count, 'result')} {'was' if count == 1 else 'were'}"


def _counts(changes: list[Change]) -> str:
    counts = (f"{changes.count(change)} {change.value}" for change in Change if change in changes)
    return ", ".join(counts) or "none in either run"


def _json(compared: Comparison) -> Iterator[str]:
    yield dumps(compared.to_json())


_FORMATS: Mapping[str, Callable[[Comparison], Iterator[str]]] = MappingProxyType(
    {"text": comparison_text, "json": _json}
)
