"""Files that were renamed or compressed since the last incremental audit, as by a rotation: found by their judged records."""

from __future__ import annotations

from collections.abc import Collection, Container, Mapping
from dataclasses import replace

from harmony_conformance.audit.folder.progress import AuditProgress, JudgedRecords, checksum_of
from harmony_conformance.audit.readers.files.container import InputFile
from harmony_conformance.audit.readers.files.formats import open_logs


def moved_files(progress: AuditProgress, paths: Collection[str], form: str) -> Mapping[str, str]:
    """Return the present names of files, or of tables of databases, by those of the last audit. Copies are no moved files.

    `paths`: the local files that are not as the last audit left them. They are read up to the first record that is not a known one.
    """
    known = {
        name: one
        for name, one in progress.records.items()
        if one.count and (file := _file_of(name, progress.files)) in progress.files and not progress.is_unchanged(file)
    }
    if not known:
        return {}
    has_new = any(path not in progress.files for path in paths)
    matches = {log.name: _matches(log, known, has_new=has_new) for log in open_logs(paths, form)}
    moved: dict[str, str] = {}
    free = known.keys() - {name for name, found in matches.items() if name in found}
    for name, found in matches.items():
        if name not in found and (old := next((one for one in found if one in free - moved.keys()), "")):
            moved[old] = name
    return moved


def _matches(log: InputFile, known: Mapping[str, JudgedRecords], *, has_new: bool) -> list[str]:
    """Return the names under which the first records of a file were judged, the one with the most records first."""
    found: list[str] = []
    possible, checksum = known, 0
    for count, record in enumerate(log.records, 1):
        checksum = checksum_of(record, checksum)
        if count == 1:
            possible = {name: one for name, one in known.items() if one.first == checksum}
            if not has_new and list(possible) == [
                log.name
            ]:  # it has grown: the audit itself verifies its other records
                return [log.name]
        found = [*(name for name, one in possible.items() if (one.count, one.checksum) == (count, checksum)), *found]
        if not any(one.count > count for one in possible.values()):
            break
    return found


def _file_of(name: str, files: Container[str]) -> str:
    """Return the file of a name, which may be that of a table."""
    return name if name in files else name.rpartition(":")[0]


def follow(progress: AuditProgress, moved: Mapping[str, str]) -> AuditProgress:
    """Return the progress with the present names. What was judged under a name that another file has now is not known any more."""
    stays = {name: one for name, one in progress.records.items() if name not in moved}
    left = {_file_of(name, progress.files) for name in moved}
    files = {name: stamp for name, stamp in progress.files.items() if name not in left}
    return replace(
        progress, files=files, records={**stays, **{name: progress.records[old] for old, name in moved.items()}}
    )
