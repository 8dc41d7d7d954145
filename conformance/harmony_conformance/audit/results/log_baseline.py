"""A log compared with a baseline: failures that it expects by check, message and source of the answer, wherever they are in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from harmony_conformance.audit.rates.groups import Groups
from harmony_conformance.json_value import JsonObject, items, loads, members, text, value_at
from harmony_conformance.judge.check import Outcome, Severity
from harmony_conformance.report.comparison.baseline import Expected, write_check_entry
from harmony_conformance.report.comparison.baseline_file import BaselineFile, BaselineUpdate, update
from harmony_conformance.report.comparison.baseline_keys import SOURCES
from harmony_conformance.runtime.plural import number_of


class _FailureKind(NamedTuple):
    """Failures that the same entries cover. `covered` has the numbers of the entries for each of their messages."""

    check: str
    severity: str
    covered: frozenset[frozenset[int]]


class _FirstFailure(NamedTuple):
    """The place and the message of a failure."""

    place: str
    message: str


@dataclass(frozen=True, kw_only=True)
class LogBaseline:
    """A log compared with a baseline: the number of expected failures, the others by check, and the entries that explain none."""

    expected: int
    unexpected: Mapping[str, int]
    severities: Mapping[str, Severity]
    first: Mapping[str, _FirstFailure]
    stale: tuple[str, ...]

    def is_broken(self, fails_on: frozenset[Severity]) -> bool:
        """Return True if a failure of these severities is not expected, or an entry explains no failure."""
        return bool(self.stale) or any(self.severities[check] in fails_on for check in self.unexpected)

    def to_json(self) -> JsonObject:
        """Return the member of the header of `audit.jsonl`."""
        return {"expected": self.expected, "unexpected": {**self.unexpected}, "stale": list(self.stale)}

    def __str__(self) -> str:
        """Return the counts."""
        entries = "entry" if len(self.stale) == 1 else "entries"
        return (
            f"{number_of(self.expected, 'failure')} expected, {sum(self.unexpected.values())} not expected,"
            f" {len(self.stale)} stale {entries}"
        )

    def notes(self) -> Iterator[str]:
        """Yield a line for each check with a failure that is not expected, and for each stale entry."""
        for check, count in self.unexpected.items():
            first = self.first[check]
            yield f"not expected: {check}: {number_of(count, 'exchange')}, first at {first.place}: {first.message}"
        yield from (f"stale: {entry} explains no failure" for entry in self.stale)


class BaselineCounter:
    """Counts the rows of `failures.jsonl` by the entries of a baseline that cover them. State: a count for each set of entries."""

    def __init__(self, baseline: Sequence[Expected]) -> None:
        self._baseline = baseline
        self._counts: Counter[_FailureKind] = Counter()
        self._first: dict[_FailureKind, _FirstFailure] = {}

    def add(self, rows: Iterable[bytes]) -> None:
        """Count rows, each a line. A row of an internal error is left out."""
        for row in map(members, map(loads, rows)):
            if row.get("outcome") != Outcome.FAIL:
                continue
            messages = [
                text(value_at(finding, "message"))
                for finding in items(row.get("findings"))
                if value_at(finding, "verdict") == Outcome.FAIL
            ]
            by_message = {message: self._covering(row, message) for message in messages or [""]}
            kind = _FailureKind(text(row.get("check")), text(row.get("severity")), frozenset(by_message.values()))
            self._counts[kind] += 1
            uncovered = next((message for message, found in by_message.items() if not found), *messages[:1])
            self._first.setdefault(kind, _FirstFailure(text(row.get("exchange")), uncovered))

    def _covering(self, row: JsonObject, message: str) -> frozenset[int]:
        return frozenset(number for number, entry in enumerate(self._baseline) if _covers(entry, row, message))

    def compare(self, causes: Iterable[JsonObject], judged: frozenset[str], groups: Groups) -> LogBaseline:
        """Return the comparison.

        Args:
            causes: The causes of the log. An entry with a cause covers failures of the checks that the cause explains.
            judged: The checks that judged every exchange they apply to. An entry for others is not stale.
            groups: The sources of the exchanges. An entry for a source that the log does not have is not stale.
        """
        named = [(text(cause.get("id")), frozenset(map(text, items(cause.get("checks"))))) for cause in causes]
        expected = 0
        used: set[int] = set()
        unexpected: Counter[str] = Counter()
        severities: dict[str, Severity] = {}
        first: dict[str, _FirstFailure] = {}
        for kind, count in self._counts.items():
            active = [
                {number for number in numbers if self._explains(number, kind.check, named)} for numbers in kind.covered
            ]
            used.update(*active)
            if all(active):
                expected += count
            else:
                unexpected[kind.check] += count
                severities[kind.check] = Severity(kind.severity)
                first.setdefault(kind.check, self._first[kind])
        stale = (
            str(entry)
            for number, entry in enumerate(self._baseline)
            if number not in used and _could_fail(entry, judged, groups)
        )
        return LogBaseline(
            expected=expected, unexpected=unexpected, severities=severities, first=first, stale=tuple(stale)
        )

    def _explains(self, number: int, check: str, causes: Iterable[tuple[str, frozenset[str]]]) -> bool:
        """Return True for an entry without a cause, and for one whose cause explains failures of this check."""
        wanted = self._baseline[number].cause
        return not wanted or any(check in checks and fnmatchcase(cause, wanted) for cause, checks in causes)


def update_for_log(file: BaselineFile, compared: LogBaseline, sentences: Mapping[str, str]) -> BaselineUpdate:
    """Return the file that expects the failures of a log: entries of `file`, and one for each check with other failures.

    An entry that explains no failure is removed, unless nothing failed.

    Args:
        file: The earlier file.
        compared: The log compared with the entries of `file`.
        sentences: A sentence about a failure of each check that failed.
    """
    stale = frozenset(compared.stale if sentences else ())
    new = (write_check_entry(check, sentences[check]) for check in sorted(compared.unexpected))
    return update(file, new, is_stale=lambda entry: str(entry) in stale)


def _covers(entry: Expected, row: JsonObject, message: str) -> bool:
    """Return True if an entry fits a message of a row, whatever its cause."""
    return (
        _fits(entry.check, text(row.get("check")))
        and _fits(entry.message, message)
        and all(_fits(entry.source(name), text(row.get(name))) for name in SOURCES)
    )


def _fits(pattern: str, value: str) -> bool:
    return not pattern or fnmatchcase(value, pattern)


def _could_fail(entry: Expected, judged: frozenset[str], groups: Groups) -> bool:
    """Return True if the log has what the entry names: a check that judged something, and each source."""
    return any(_fits(entry.check, check) for check in judged) and all(
        any(_fits(entry.source(name), found) for found in groups.get(name, {})) for name in SOURCES
    )
