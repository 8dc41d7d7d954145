"""`harmony-conformance audit PATH ...`: judge the exchanges of a log of any size in one pass."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from harmony_conformance.audit.answer_source import hash_user
from harmony_conformance.audit.batches import ReadOptions, batches
from harmony_conformance.audit.explain_format import explain_format
from harmony_conformance.audit.folder.failures_table import prepare_table, write_table
from harmony_conformance.audit.folder.moved_files import follow, moved_files
from harmony_conformance.audit.folder.out_folder import ROW_FILES, open_folder, read_journal_options
from harmony_conformance.audit.folder.progress import (
    PROGRESS,
    AuditProgress,
    is_progress,
    read_progress,
    stamps,
    write_progress,
)
from harmony_conformance.audit.plans.plan import PlanName, choose_plan
from harmony_conformance.audit.processes.workers import AuditEngine, scan_all
from harmony_conformance.audit.readers.files.sources import (
    STDIN,
    empty_files,
    expand,
    is_url,
    mask_urls,
    same_files,
    special_files,
)
from harmony_conformance.audit.redaction import Excerpts
from harmony_conformance.audit.results.audit_page import audit_html
from harmony_conformance.audit.results.log_baseline import BaselineCounter, update_for_log
from harmony_conformance.audit.results.report import (
    Audit,
    AuditLine,
    compare_with_baseline,
    error_summary,
    exit_code,
    make_audit,
    unchecked_reason,
    unreadable_summary,
    with_baseline,
)
from harmony_conformance.audit.results.stored_audit import read_audit
from harmony_conformance.audit.results.terminal import print_audit
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.errors import UsageError
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text
from harmony_conformance.judge.check import Outcome
from harmony_conformance.plugins.registry import plugin_header, plugin_sources
from harmony_conformance.report.comparison.baseline import (
    LOG_MEMBERS,
    NO_ENTRIES,
    InvalidBaselineError,
    read_baseline,
)
from harmony_conformance.report.comparison.baseline_file import BaselineFile, BaselineUpdate, read_baseline_file
from harmony_conformance.report.formats.terminal import report_console
from harmony_conformance.runner.options import FAIL_ON
from harmony_conformance.runtime.build_version import build_version, package_version
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.processes import reduce_garbage_collection

_PIPED_WIDTH = 160
_LEAST_KEY = 16


class _Counters(NamedTuple):
    """The failures of a log, counted by the entries of `--baseline` and by those of the file of `--baseline-write`."""

    expected: BaselineCounter | None
    updating: BaselineCounter | None

    @property
    def each(self) -> tuple[BaselineCounter, ...]:
        """Those that there are."""
        return tuple(counter for counter in self if counter is not None)


def _is_output(path: str, out: Path | None) -> bool:
    """Return True for a file of the output folder, which may be in the folder of the log."""
    return (
        out is not None and not is_url(path) and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(out))
    )  # a circle of links raises nothing


def _refuse_log_folder(names: list[str], out: Path) -> None:
    """Refuse a folder or a glob whose files would all be those of the audit."""
    for name in names:
        if name != STDIN and (Path(name).is_dir() or not os.path.lexists(name)) and _is_output(name, out):
            raise UsageError(f"invalid --out: expected a folder that has no log, got {out}, which has {name}")


def _distinct(paths: list[str]) -> list[str]:
    """Return each file once, and print the names that are left out."""
    same, times = dict(same_files(paths)), Counter(paths)
    for path, count in times.items():
        if count > 1:
            print(f"{_shown(path)}: named {count} times, read once", file=sys.stderr)
    for path, read in same.items():
        print(f"{path}: the same file as {read}, read once", file=sys.stderr)
    return [path for path in times if path not in same]


def _shown(path: str) -> str:
    """Return a file as the results name it: a URL without credentials."""
    return mask_urls(path) if is_url(path) else path


def _read_key(variable: str | None) -> bytes:
    key = os.environ.get(variable, "").encode("utf-8", "surrogateescape") if variable else b""
    if variable and len(key) < _LEAST_KEY:
        raise UsageError(
            f"invalid --user-key-env {variable}: expected a key of at least {_LEAST_KEY} bytes, got {len(key)}"
        )
    return key


def execute(arguments: Namespace) -> int:
    """Scan the logs, write the files, print the report and return the exit code."""
    reading = ReadOptions(
        form=arguments.format,
        columns=dict(arguments.map),
        excerpts=Excerpts(arguments.excerpts),
        user_key=_read_key(arguments.user_key_env),
        plugins=plugin_sources(),
    )
    counted, rewritten = _read_baseline(arguments.baseline), _read_baseline_file(arguments.baseline_write)
    updating = BaselineCounter(rewritten.expected) if rewritten is not None else None
    found = list(expand(iter(arguments.paths)))
    if arguments.out is not None:
        _refuse_log_folder(arguments.paths, arguments.out)
    for path in special_files(arguments.paths):
        print(f"{path}: a pipe, a socket or a device in a folder, passed over: name it as a PATH", file=sys.stderr)
    paths = _distinct([path for path in found if path in arguments.paths or not _is_output(path, arguments.out)])
    if arguments.incremental and arguments.plan == PlanName.NEEDLES:
        raise UsageError("invalid --plan: expected structure with --incremental, got needles")
    plan = PlanName(arguments.plan)
    if arguments.incremental or (reading.plugins and plan is PlanName.AUTO):  # needles judge only a sample by a plug-in
        plan = PlanName.STRUCTURE
    reading = replace(reading, plan=choose_plan(plan, arguments.sample, paths))
    if arguments.explain_format:
        lines, code = explain_format(paths, reading)
        print("\n".join(lines))
        return code
    out: Path | None = arguments.out
    if arguments.resume and out is None:
        raise UsageError("invalid --resume: expected --out with the folder of the killed audit, got none")
    if arguments.incremental and (out is None or STDIN in paths):
        raise UsageError("invalid --incremental: expected files and --out with the folder of the last audit")
    if arguments.parquet and out is None:
        raise UsageError("invalid --parquet: expected --out with a folder for the table, got none")
    if not reading.plan.judges_all or reading.plan.note:
        print(reading.plan, file=sys.stderr)
    reduce_garbage_collection()
    scan = _scan if out is None else partial(_scan_into, out)
    audit = scan(paths, reading, arguments, _Counters(counted, updating))
    total = audit.tally
    reason = unchecked_reason(audit)
    if not total.exchanges and not total.errors:
        raise UsageError(f"nothing could be checked: {reason}")
    if arguments.out is not None:
        print(f"audit written to {arguments.out}", file=sys.stderr)
    print_audit(audit, report_console(piped_width=_PIPED_WIDTH), FAIL_ON[arguments.fail_on])
    update = _update_baseline(audit, rewritten, updating) if rewritten is not None and updating is not None else None
    for note in (*_notes(audit), *_baseline_notes(audit, arguments.baseline, update)):
        print(note, file=sys.stderr)
    return exit_code(audit, FAIL_ON[arguments.fail_on])


def _read_baseline(path: Path | None) -> BaselineCounter | None:
    if path is None:
        return None
    try:
        expected = read_baseline(path, LOG_MEMBERS)
    except InvalidBaselineError as problem:
        raise UsageError(f"--baseline {problem}") from None
    if not expected:
        print(f"baseline {path}: {NO_ENTRIES}", file=sys.stderr)
    return BaselineCounter(expected)


def _read_baseline_file(path: Path | None) -> BaselineFile | None:
    try:
        return read_baseline_file(path, LOG_MEMBERS) if path is not None else None
    except InvalidBaselineError as problem:
        raise UsageError(f"--baseline-write {problem}") from None


def _notes(audit: Audit) -> Iterator[str]:
    """Yield the lines about records that were not judged."""
    if audit.tally.unreadable:
        yield f"unreadable lines: {unreadable_summary(audit.tally)}"
    if audit.tally.errors:
        yield f"not judged because of internal errors: {error_summary(audit.tally)}"
    if reason := unchecked_reason(audit):
        yield f"nothing could be checked: {reason}"


def _update_baseline(audit: Audit, file: BaselineFile, counter: BaselineCounter) -> BaselineUpdate:
    """Write the baseline of `--baseline-write`.

    Raises:
        UsageError: The file cannot be written.
    """
    failed = {line.result.check: _first_message(line) for line in audit.lines if line.counts.get(Outcome.FAIL)}
    update = update_for_log(file, compare_with_baseline(audit, counter), failed)
    try:
        update.write()
    except OSError as problem:
        raise UsageError(f"--baseline-write {file.path}: {problem.strerror}") from None
    return update


def _baseline_notes(audit: Audit, path: Path | None, update: BaselineUpdate | None) -> Iterator[str]:
    """Yield the lines about baselines."""
    if audit.baseline is not None:
        yield f"baseline {path}: {audit.baseline}"
        yield from (f"  {note}" for note in audit.baseline.notes())
    if update is not None:
        yield f"baseline {update}{update.todo}"


def _first_message(line: AuditLine) -> str:
    messages = (finding.message for example in line.examples for finding in example.findings)
    return next(messages, line.result.check)


def _scan(paths: list[str], reading: ReadOptions, arguments: Namespace, counters: _Counters) -> Audit:
    total = Tally()
    empty = tuple(map(_shown, empty_files(paths)))
    ends = {path: size for path, (size, _) in stamps(paths).items()}
    remaining = batches(paths, reading.form, reading.plan, ends=ends)
    for scanned in scan_all(remaining, reading, workers=arguments.workers, engine=AuditEngine(arguments.engine)):
        total += scanned.tally
        for counter in counters.each:
            counter.add(scanned.failures.splitlines())
    files = tuple(map(_shown, paths))
    audit = make_audit(total, files, reading.excerpts, build_version(), reading.plan, empty_files=empty)
    return with_baseline(audit, counters.expected) if counters.expected is not None else audit


def _scan_into(out: Path, paths: list[str], reading: ReadOptions, arguments: Namespace, counters: _Counters) -> Audit:
    """Judge the logs and write the files of the folder. An audit that was killed continues where its journal ends."""
    columns: JsonObject = {**reading.columns}
    options: JsonObject = {
        "format": reading.form,
        "map": columns,
        "excerpts": reading.excerpts.value,
        "plan": reading.plan.name.value,
        "sample": reading.plan.sample,
        **({"users": hash_user("", reading.user_key)} if reading.user_key else {}),
        **plugin_header(),
    }
    empty = tuple(map(_shown, empty_files(paths)))
    if not arguments.incremental and is_progress(out):
        (out / PROGRESS).unlink()
    progress = read_progress(out, options) if arguments.incremental else AuditProgress(options=options)
    killed = read_journal_options(out) if arguments.resume else {}
    paths = _killed_paths([path for path in paths if not progress.is_unchanged(path)], killed)
    moved = moved_files(progress, stamps(paths), reading.form)
    for old, name in moved.items():
        print(f"{old}: now {name}, its {number_of(progress.records[old].count, 'record')} were judged", file=sys.stderr)
    progress = follow(progress, moved)
    every = tuple(dict.fromkeys((*progress.files, *map(_shown, paths))))
    seen = _seen(paths, killed)
    files = list[Json](map(_shown, paths))
    ends = {path: size for path, (size, _) in seen.items()}
    journal: JsonObject = {"version": package_version(), "files": files, **options, "ends": {**ends}}
    if progress.entry:
        journal["judged"] = progress.entry.tally.exchanges
    local = [path for name in paths if name != STDIN and (path := Path(name)).exists()]
    with open_folder(out, journal, local, resume=arguments.resume, base=progress.entry) as folder:
        prepare_table(out, is_wanted=arguments.parquet)
        before = folder.total.exchanges
        select = progress.new_records if arguments.incremental else None
        try:
            remaining = folder.skip_finished(batches(paths, reading.form, reading.plan, select=select, ends=ends))
            if folder.total.exchanges > before:
                print(f"resuming after {number_of(folder.total.exchanges - before, 'exchange')}", file=sys.stderr)
            engine = AuditEngine(arguments.engine)
            for scanned in scan_all(remaining, reading, workers=arguments.workers, engine=engine):
                folder.add(scanned)
        except KeyboardInterrupt:
            raise KeyboardInterrupt("stopped; the same command with --resume continues") from None
        made_by = build_version()
        audit = make_audit(folder.total, every, reading.excerpts, made_by, reading.plan, empty_files=empty)
        for counter in counters.each:
            with (out / ROW_FILES[0]).open("rb") as rows:
                counter.add(rows)
        audit = with_baseline(audit, counters.expected) if counters.expected is not None else audit
        if arguments.parquet:
            write_table(out, out / ROW_FILES[0])
        if unlisted := folder.unlisted:
            print(
                f"{number_of(unlisted, 'more unreadable line')} {'is' if unlisted == 1 else 'are'} counted, but not listed in {ROW_FILES[1]}",
                file=sys.stderr,
            )
        lines, judged = list(audit.jsonl()), folder.entry()
        folder.finish(lines, audit_html(read_audit(lines, str(out))))
        if arguments.incremental:  # last: a killed audit is then repeated from the progress of the one before
            write_progress(out, progress, judged, seen)
            print(f"{number_of(folder.total.exchanges - before, 'new exchange')}", file=sys.stderr)
    return audit


def _killed_paths(paths: list[str], killed: JsonObject) -> list[str]:
    """Return the files of the audit that was killed, if all of them are among the paths: a folder may have got others since."""
    files = set(map(text, items(killed.get("files"))))
    of_killed = [path for path in paths if _shown(path) in files]
    if not files or len(of_killed) != len(files) or of_killed == paths:
        return paths
    print(
        f"resuming without {number_of(len(paths) - len(of_killed), 'file')} that the killed audit did not have",
        file=sys.stderr,
    )
    return of_killed


def _seen(paths: list[str], killed: JsonObject) -> Mapping[str, tuple[int, int]]:
    """Return size and time of change of each file, with the size that the killed audit saw: what was added since is left out."""
    before = members(killed.get("ends"))
    found = stamps(paths)
    return {path: (integer(before.get(path, size)) or 0, changed) for path, (size, changed) in found.items()}
