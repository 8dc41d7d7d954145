"""Progress of an incremental audit: what was judged of each file, so that the next audit judges only what is new."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

from harmony_conformance.audit.folder.journal import InvalidEntryError, JournalEntry, entry_json, read_entry
from harmony_conformance.audit.readers.files.container import InputFile, Records
from harmony_conformance.audit.readers.files.sources import is_url
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.file_lines import Line, UnreadableLine
from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    JsonObject,
    dumps,
    integer,
    items,
    loads,
    members,
    text,
)
from harmony_conformance.runtime.private_files import write_private

PROGRESS = "progress.json"
_SOURCE = "harmony-conformance audit"


@dataclass(kw_only=True)
class JudgedRecords:
    """The first records of a file that were judged: their number, and checksums of them and of the first one."""

    count: int = 0
    checksum: int = 0
    first: int = 0


def checksum_of(record: Line | UnreadableLine, before: int) -> int:
    """Return the checksum of records, given that of the records before the last one."""
    return crc32(record.data if isinstance(record, Line) else str(record).encode(), before)


@dataclass(frozen=True, kw_only=True)
class AuditProgress:
    """Records that earlier audits into a folder judged, and that this one judges. State: the judged records of each file.

    Attributes:
        options: The options that change results. An audit with others cannot be continued.
        entry: Tally and sizes of the folder's files.
        files: The names of the files of the log, with size and time of change.
        records: The judged records by file, and by table of a database.
    """

    options: JsonObject
    entry: JournalEntry | None = None
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])
    records: dict[str, JudgedRecords] = field(default_factory=dict[str, JudgedRecords])

    def is_unchanged(self, path: str) -> bool:
        """Return True for a file that was judged as it is now."""
        return path in self.files and _stamp(path) == self.files[path]

    def new_records(self, log: InputFile) -> InputFile:
        """Return a file without the records that were judged. A last line that is torn is left for the next audit.

        Raises:
            UsageError: The judged part of the file has changed.
        """
        return InputFile(name=log.name, format=log.format, mark=log.mark, records=self._new_records(log))

    def _new_records(self, log: InputFile) -> Records:
        known = self.records.setdefault(log.name, JudgedRecords())
        count = checksum = 0
        is_tested = not known.count
        for record in log.records:
            if log.format == "jsonl" and isinstance(record, Line) and _is_torn(log.name, record):
                return
            count, checksum = count + 1, checksum_of(record, checksum)
            if is_tested:
                known.count, known.checksum, known.first = count, checksum, known.first if count > 1 else checksum
                yield record
            elif count == known.count:
                if checksum != known.checksum:
                    break
                is_tested = True
        if not is_tested:
            raise UsageError(
                f"invalid --incremental: expected {log.name} with the {known.count} records of the last audit and perhaps more,"
                " got others: audit without --incremental, or into another folder"
            )


def _is_torn(name: str, line: Line) -> bool:
    """Return True for a line without end that is not JSON: it is still being written."""
    if line.data.endswith((b"}", b"]", b'"')) and _is_json(line.data):
        return False
    try:
        with Path(name).open("rb") as file:
            file.seek(line.offset + len(line.data))
            return file.read(1) not in (b"\n", b"\r")
    except OSError:
        return False


def _is_json(data: bytes) -> bool:
    try:
        loads(data)
    except ValueError:
        return False
    return True


def _stamp(path: str) -> tuple[int, int] | None:
    try:
        found = Path(path).stat()
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns


def stamps(paths: Iterable[str]) -> Mapping[str, tuple[int, int]]:
    """Return size and time of change of local files."""
    return {path: stamp for path in paths if not is_url(path) and Path(path).is_file() and (stamp := _stamp(path))}


def read_progress(folder: Path, options: JsonObject) -> AuditProgress:
    """Return the progress of the audits into a folder; an empty one before the first audit.

    Raises:
        UsageError: The file cannot be read, or was written with other options.
    """
    try:
        value = members(loads((folder / PROGRESS).read_bytes()))
        entry = read_entry(dumps(value.get("entry")).encode())
    except FileNotFoundError:
        return AuditProgress(options=options)
    except (InvalidJsonError, InvalidEntryError, OSError) as problem:
        raise UsageError(f"{folder / PROGRESS}: {problem}: audit without --incremental") from None
    if differing := sorted(name for name in options if members(value.get("options")).get(name) != options[name]):
        raise UsageError(
            f"invalid --incremental: expected the options of the last audit in {folder}, got other {', '.join(differing)}"
        )
    pairs = {name: [integer(one) or 0 for one in items(stamp)] for name, stamp in members(value.get("files")).items()}
    records = {name: [integer(one) or 0 for one in items(row)] for name, row in members(value.get("records")).items()}
    return AuditProgress(
        options=options,
        entry=entry,
        files={name: (size, changed) for name, (size, changed) in pairs.items()},
        records={
            name: JudgedRecords(count=count, checksum=checksum, first=first)
            for name, (count, checksum, first) in records.items()
        },
    )


def write_progress(
    folder: Path, progress: AuditProgress, entry: JournalEntry, files: Mapping[str, tuple[int, int]]
) -> None:
    """Write the progress after an audit."""
    stamps_json: JsonObject = {name: list[Json](stamp) for name, stamp in {**progress.files, **files}.items()}
    value: JsonObject = {
        "source": _SOURCE,
        "options": progress.options,
        "files": stamps_json,
        "records": {name: [one.count, one.checksum, one.first] for name, one in progress.records.items()},
        "entry": entry_json(entry),
    }
    part = folder / f".{PROGRESS}.part"
    write_private(part, dumps(value).encode("utf-8", "backslashreplace"))
    part.replace(folder / PROGRESS)


def is_progress(folder: Path) -> bool:
    """Return True if the folder has the progress of an audit."""
    try:
        return text(members(loads((folder / PROGRESS).read_bytes())).get("source")) == _SOURCE
    except (OSError, ValueError):
        return False
