"""The folder of an audit: `failures.jsonl`, `unreadable.jsonl`, at the end `audit.jsonl` and `report.html`; until then `journal.jsonl`."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from io import FileIO
from operator import gt
from pathlib import Path

from harmony_conformance.audit.batches import Batch, BatchResult
from harmony_conformance.audit.folder.folder_marks import AUDIT, JOURNAL, MARKS, PAGE, is_of_audit
from harmony_conformance.audit.folder.journal import (
    InvalidEntryError,
    JournalEntry,
    entry_line,
    read_entry,
    without_late_examples,
)
from harmony_conformance.audit.tallies import Tally
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.folder_lock import lock_folder
from harmony_conformance.evidence.recording_file import append_atomically
from harmony_conformance.json_value import JsonObject, dumps, loads, members
from harmony_conformance.runtime.private_files import create_private_folder, unlinked_opener

ROW_FILES = ("failures.jsonl", "unreadable.jsonl")
_BLOCK = 65536
UNREADABLE_LIMIT = 64 * 1024 * 1024
"""The largest `unreadable.jsonl` in bytes. A few compressed kilobytes can have millions of lines that are no exchange; all are counted."""


class ResumeError(UsageError):
    """An audit that cannot be resumed. The message is one line with the reason."""


@contextmanager
def open_folder(
    folder: Path, options: JsonObject, inputs: Iterable[Path], *, resume: bool, base: JournalEntry | None = None
) -> Generator[AuditFolder]:
    """Create and lock the folder, and open its files. `options` are those that change the results.

    `base` is the end of the earlier audit that an incremental one continues.

    Raises:
        UsageError: The folder cannot be written, or another audit uses it.
        UsageError: A file of the audit would replace one of `inputs`, a link, or a file that no audit wrote.
        ResumeError: The journal is of an audit with other options.
    """
    try:
        _refuse_inputs(folder, inputs)
        create_private_folder(folder)
        with lock_folder(folder), ExitStack() as stack:
            _refuse_foreign_files(folder)
            finished, journal_size = _read_journal(folder, options) if resume else ([], 0)
            for name in (AUDIT, PAGE):
                (folder / name).unlink(missing_ok=True)
            journal, *rows = (
                stack.enter_context(FileIO(os.fspath(folder / name), "a+", opener=unlinked_opener))
                for name in (JOURNAL, *ROW_FILES)
            )
            _cut(journal, journal_size)
            if not journal_size:
                append_atomically(journal, (dumps(options) + "\n").encode("utf-8", "backslashreplace"))
            before = finished[-1].sizes if finished else base.sizes if base else (0, 0)
            if any(map(gt, before, (file.seek(0, os.SEEK_END) for file in rows))):
                raise UsageError(
                    f"--out {folder}: a file of the last audit is shorter than it was: audit without --incremental"
                )
            for file, size in zip(rows, before, strict=True):
                _cut(file, size)
            yield AuditFolder(folder, finished, journal, rows, base.tally if base else Tally())
    except OSError as problem:
        raise UsageError(f"--out {folder}: {problem.strerror or problem}") from None


def read_journal_options(folder: Path) -> JsonObject:
    """Return the options in the journal of a killed audit; empty without a journal."""
    try:
        with (folder / JOURNAL).open("rb") as file:
            return members(loads(file.readline()))
    except (OSError, ValueError):
        return {}


class AuditFolder:
    """The open files of an audit. State: the tally of everything written."""

    def __init__(
        self, folder: Path, finished: list[JournalEntry], journal: FileIO, rows: list[FileIO], total: Tally
    ) -> None:
        self.total = total
        self._folder = folder
        self._journal = journal
        self._rows = rows
        self._finished = finished

    def skip_finished(self, parts: Iterator[Batch]) -> Iterator[Batch]:
        """Return the batches that are not judged yet, and add the tallies of the others to the total.

        Raises:
            ResumeError: The log has changed since these batches were judged.
        """
        for entry in self._finished:
            batch = next(parts, None)
            if batch is None or batch.digest != entry.digest:
                place = entry.digest if batch is None else batch.digest
                raise ResumeError(f"invalid --resume: the log has changed at {place}: audit it without --resume")
            self.total += entry.tally
        return parts

    def add(self, result: BatchResult) -> None:
        """Append the lines of a batch, then its entry to the journal."""
        failures, unreadable = self._rows
        append_atomically(failures, result.failures)
        append_atomically(unreadable, _first_rows(result.unreadable, UNREADABLE_LIMIT - unreadable.tell()))
        self.total += result.tally
        sizes = tuple(file.tell() for file in self._rows)
        tally = without_late_examples(result, self.total)
        append_atomically(self._journal, entry_line(JournalEntry(digest=result.digest, tally=tally, sizes=sizes)))

    def entry(self) -> JournalEntry:
        """Return the tally and the sizes of everything written."""
        return JournalEntry(digest="", tally=self.total, sizes=tuple(file.tell() for file in self._rows))

    @property
    def unlisted(self) -> int:
        """Number of unreadable lines that are not in `unreadable.jsonl`."""
        with (self._folder / ROW_FILES[1]).open("rb") as file:
            return self.total.unreadable - sum(block.count(b"\n") for block in iter(partial(file.read, _BLOCK), b""))

    def finish(self, lines: Iterable[str], page: str) -> None:
        """Write `report.html` and `audit.jsonl`, and delete the journal."""
        for name, content in ((PAGE, page), (AUDIT, "".join(line + "\n" for line in lines))):
            with FileIO(os.fspath(self._folder / name), "w", opener=unlinked_opener) as file:
                append_atomically(file, content.encode("utf-8", "backslashreplace"))
        (self._folder / JOURNAL).unlink()


def _refuse_inputs(folder: Path, inputs: Iterable[Path]) -> None:
    outputs = [path for name in MARKS if (path := folder / name).exists()]
    for path in inputs:
        if any(path.samefile(output) for output in outputs):
            raise UsageError(f"--out {folder}: the audit would overwrite its input {path}: use another folder")


def _refuse_foreign_files(folder: Path) -> None:
    """Refuse links, and files in a folder where no file begins like that of an audit. The others may be torn, but for the page."""
    present = [path for name in MARKS if os.path.lexists(path := folder / name)]
    for path in present:
        if path.is_symlink() or not path.is_file():
            raise UsageError(
                f"--out {folder}: {path.name} is no regular file and is not overwritten: use another folder"
            )
    filled = [path for path in present if path.stat().st_size]
    of_others = [path.name for path in filled if not is_of_audit(path)]
    if of_others and (len(of_others) == len(filled) or PAGE in of_others):
        foreign = PAGE if PAGE in of_others else of_others[0]
        raise UsageError(
            f"--out {folder}: {foreign} was not written by an audit and is not overwritten: use another folder"
        )


def _first_rows(rows: bytes, room: int) -> bytes:
    """Return the first rows that have room."""
    return rows if len(rows) <= room else rows[: rows.rfind(b"\n", 0, max(room, 0)) + 1]


def _cut(file: FileIO, size: int) -> None:
    file.truncate(size)
    file.seek(size)


def _read_journal(folder: Path, options: JsonObject) -> tuple[list[JournalEntry], int]:
    """Return the batches that a killed audit finished, those whose lines are in all files, and the size of their journal."""
    try:
        written = (folder / JOURNAL).read_bytes()
        first, *lines = written[: written.rfind(b"\n") + 1].splitlines(keepends=True)
        recorded = members(loads(first))
    except (FileNotFoundError, ValueError):  # nothing was finished
        return [], 0
    if differing := sorted(name for name in options if recorded.get(name) != options[name]):
        names = ", ".join(differing)
        raise ResumeError(f"invalid --resume: expected the options of the audit in {folder}, got other {names}")
    present = [path.stat().st_size if (path := folder / name).exists() else 0 for name in ROW_FILES]
    finished: list[JournalEntry] = []
    journal_size = len(first)
    for line in lines:
        try:
            entry = read_entry(line)
        except InvalidEntryError:  # cut by the end of the process
            break
        if len(entry.sizes) != len(present) or any(map(gt, entry.sizes, present)):  # lost with the machine
            break
        finished.append(entry)
        journal_size += len(line)
    return finished, journal_size
