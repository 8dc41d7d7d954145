"""Outcomes of plain exchanges by shell, models and features, in bounded memory.

Only outcomes without a finding are kept, so that each finding comes from a judged exchange. What is kept changes the speed alone: two exchanges
with one shell, the same models and the same features have the same outcomes. Their day and their provider may differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from harmony_conformance.audit.answer_names import NAME, plain
from harmony_conformance.audit.answer_source import FIRST_CREATED, day_of
from harmony_conformance.audit.rates.groups import DIMENSIONS
from harmony_conformance.audit.readers.records.http_pair import read_time
from harmony_conformance.audit.repeats.features import find_features
from harmony_conformance.audit.repeats.outline import Outline, find_outline
from harmony_conformance.audit.repeats.shells import Shell, read_shell
from harmony_conformance.audit.tallies import JudgedExchange, KnownExchange
from harmony_conformance.judge.check import Outcome

MOST_SHELLS = 1024
"""The most shells whose outlines are kept."""
LONGEST_SHELL = 32_768
"""The longest shell that is kept, in characters."""
MOST_SEEN = 65_536
"""The most shells that are remembered, by their hashes, after they were seen once."""
MOST_KNOWN = 64
"""The most outcomes that are kept for a shell."""
_DAY = 24 * 60 * 60
_DIGITS = 10
"""Number of digits of a time in seconds since 1970."""


@dataclass(frozen=True, eq=False)
class _Entry:
    """A shell that was seen twice: its outline, None if it is not plain, and the outcomes by features and models."""

    outline: Outline | None
    known: dict[tuple[str, ...], KnownExchange] = field(default_factory=dict[tuple[str, ...], KnownExchange])


class Sighting(NamedTuple):
    """A plain exchange: the entry of its shell, its key there, its day, its provider, and its outcomes if they are known."""

    entry: _Entry
    key: tuple[str, ...]
    day: str
    provider: str
    known: KnownExchange | None


class RepeatMemo:
    """State: the shells that were seen once, and entries of those that were seen again."""

    def __init__(self, most_shells: int = MOST_SHELLS) -> None:
        self._most_shells = most_shells
        self._seen: set[int] = set()
        self._entries: dict[str, _Entry] = {}

    def find(self, record: bytes) -> Sighting | None:
        """Return what is known of a record. None if it has to be judged, and cannot be kept."""
        shell = read_shell(record)
        if shell is None or len(shell.text) > LONGEST_SHELL:
            return None
        entry = self._entries.get(shell.text)
        if entry is None:
            entry = self._enter(shell)
        if entry is None or entry.outline is None:
            return None
        outline, leaves = entry.outline, shell.leaves
        features = find_features(outline, leaves)
        if features is None:
            return None
        key = (features, *[leaves[place] for place in outline.models])
        provider = outline.provider if isinstance(outline.provider, str) else leaves[outline.provider]
        return Sighting(entry, key, _day(outline, leaves), plain(NAME, provider), entry.known.get(key))

    def _enter(self, shell: Shell) -> _Entry | None:
        """Return a new entry for a shell that was seen before, else remember the shell: most logs have many shells that never come back."""
        name = hash(shell.text)
        if name not in self._seen:
            if len(self._seen) >= MOST_SEEN:
                self._seen.clear()
            self._seen.add(name)
            return None
        if len(self._entries) >= self._most_shells:
            del self._entries[next(iter(self._entries))]
        entry = self._entries[shell.text] = _Entry(find_outline(shell))
        return entry


def learn(sighting: Sighting | None, judged: JudgedExchange) -> None:
    """Keep the outcomes of a plain exchange if all checks that applied have passed."""
    if sighting is None:
        return
    is_passed = all(result.outcome is Outcome.PASS and not result.findings for result in judged.results)
    if is_passed and (judged.source["day"], judged.source["provider"]) == (sighting.day, sighting.provider):
        source = {name: value for name, value in judged.source.items() if name in DIMENSIONS}
        passes = tuple((result.check, result.evidence) for result in judged.results)
        known = KnownExchange(passes=_shared(passes), shared_results=judged.shared_results, source=source)
        if len(sighting.entry.known) >= MOST_KNOWN:
            sighting.entry.known.clear()
        sighting.entry.known[sighting.key] = known


_Passes = tuple[tuple[str, tuple[str, ...]], ...]


@lru_cache(maxsize=256)
def _shared(passes: _Passes) -> _Passes:
    """Return the same tuple for equal ones: most plain exchanges pass the same checks."""
    return passes


def _day(outline: Outline, leaves: Sequence[str]) -> str:
    """Return the day of an exchange, as `source_of` does."""
    if outline.started is not None:
        return _day_of(leaves[outline.started])
    created = "" if outline.created is None else leaves[outline.created]
    return _day_of(created) if int(created or 0) >= FIRST_CREATED else ""


def _day_of(time: str) -> str:
    is_in_seconds = len(time) == _DIGITS and time.isdecimal()
    return _day_of_seconds(int(time) // _DAY) if is_in_seconds else day_of(read_time(time) or "")


@lru_cache(maxsize=256)
def _day_of_seconds(days: int) -> str:
    """Return the day that is so many days after the first one of 1970."""
    return day_of(read_time(days * _DAY) or "")
