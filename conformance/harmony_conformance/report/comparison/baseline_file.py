"""The file of `--baseline-write`: entries of an earlier one that still match a failure stay as they are written."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from harmony_conformance.json_value import dumps, items, text, value_at
from harmony_conformance.report.comparison.baseline import (
    RUN_MEMBERS,
    Expected,
    apply_baseline,
    read_baseline,
    write_cause_entry,
)
from harmony_conformance.report.comparison.baseline_keys import ENTRY
from harmony_conformance.report.model import Report
from harmony_conformance.runtime.plural import number_of
from harmony_conformance.runtime.text_files import read_text_file, replace_text_file

_HEAD = "# Failures that are expected, each with its reason. A stale entry fails the run.\n"
_ENTRY_LINE = re.compile(r"\s*\[\[\s*expected\s*\]\]")


class WrittenEntry(NamedTuple):
    """An entry and its text, with the comment above it."""

    expected: Expected
    text: str


@dataclass(frozen=True, kw_only=True)
class BaselineFile:
    """A baseline as it is written, empty if there is no such file yet."""

    path: Path
    head: str = _HEAD
    entries: tuple[WrittenEntry, ...] = ()

    @property
    def expected(self) -> tuple[Expected, ...]:
        """The expectations of the entries."""
        return tuple(entry.expected for entry in self.entries)


@dataclass(frozen=True, kw_only=True)
class BaselineUpdate:
    """A baseline to be written: entries of the earlier file that are kept, those that are added, and those that are removed."""

    file: BaselineFile
    kept: tuple[WrittenEntry, ...]
    added: tuple[WrittenEntry, ...]
    removed: tuple[WrittenEntry, ...]

    def write(self) -> None:
        """Write the file. One that stays the same is left alone."""
        if self.added or self.removed or not self.file.path.exists():
            texts = (self.file.head, *(entry.text for entry in (*self.kept, *self.added)))
            replace_text_file(self.file.path, "\n\n".join(filter(None, (one.strip("\n") for one in texts))) + "\n")

    def __str__(self) -> str:
        """Return what was done on one line."""
        kept = number_of(len(self.kept), "entry", "entries")
        return f"{self.file.path}: {kept} kept, {_named(self.added, 'added')}, {_named(self.removed, 'removed')}"

    @property
    def todo(self) -> str:
        """Advice for the reader, empty if there is nothing to do."""
        return "; replace each TODO by a reason" if self.added else ""


def _named(entries: Sequence[WrittenEntry], done: str) -> str:
    names = "; ".join(str(entry.expected) for entry in entries)
    return f"{len(entries)} {done}" + (f" ({names})" if names else "")


def read_baseline_file(path: Path, members: Sequence[str] = RUN_MEMBERS) -> BaselineFile:
    """Read the file that `--baseline-write` will change. Its reasons may still begin with `TODO`.

    Raises:
        InvalidBaselineError: The file exists and is no baseline.
    """
    if not path.exists():
        return BaselineFile(path=path)
    expected = read_baseline(path, members, allows_placeholders=True)
    head, *texts = _split(read_text_file(path))
    if [_entries_of(one) for one in texts] != [[_members_of(entry)] for entry in expected]:  # for example an array
        head, texts = _HEAD, list(map(_written, expected))
    return BaselineFile(path=path, head=head, entries=tuple(map(WrittenEntry, expected, texts)))


def _split(content: str) -> list[str]:
    """Return the text before the first entry, and each entry with the comment lines directly above it."""
    parts = [""]
    comment = ""
    for line in StringIO(content):
        if line.lstrip().startswith("#"):
            comment += line
        elif _ENTRY_LINE.match(line):
            parts.append(comment + line)
            comment = ""
        else:
            parts[-1] += comment + line
            comment = ""
    return [*parts[:-1], parts[-1] + comment]


def _entries_of(part: str) -> list[object]:
    try:
        return list(tomllib.loads(part).get("expected", []))
    except tomllib.TOMLDecodeError:
        return []


def _members_of(entry: Expected) -> dict[str, str]:
    return {field.name: value for field in fields(entry) if (value := str(getattr(entry, field.name)))}


def _written(entry: Expected) -> str:
    return f"{ENTRY}\n" + "".join(f"{name} = {dumps(value)}\n" for name, value in _members_of(entry).items())


def update_for_run(file: BaselineFile, report: Report) -> BaselineUpdate:
    """Return the file that expects the failures of a run: entries of `file`, and one for each cause with other failures.

    An entry that explains no failure is removed, unless nothing failed, or the run ended early.
    """
    compared = apply_baseline(report, file.expected)
    has_ended_early = value_at(report.header, "incomplete") is not None
    stale = compared.stale if (compared.expected or compared.unexpected) and not has_ended_early else ()
    unexpected = frozenset(result.name for result in compared.unexpected)
    causes = (cause for cause in report.causes if not unexpected.isdisjoint(map(text, items(cause.get("failed")))))
    return update(file, map(write_cause_entry, causes), is_stale=stale.__contains__)


def update(file: BaselineFile, added: Iterable[str], *, is_stale: Callable[[Expected], bool]) -> BaselineUpdate:
    """Return the file without the stale entries, and with others, each given as its text."""
    new = (WrittenEntry(Expected(**tomllib.loads(one)["expected"][0]), one) for one in added)
    return BaselineUpdate(
        file=file,
        kept=tuple(entry for entry in file.entries if not is_stale(entry.expected)),
        added=tuple(new),
        removed=tuple(entry for entry in file.entries if is_stale(entry.expected)),
    )
