"""Read recorded runs as series, and append lines to a recording.

A recording of a run begins with a line `run` (options, target, capabilities) and ends with a line `end`. A line `sent` follows the exchanges of each
finished series. The scenario of these lines is `discovery`, which readers of exchanges skip. Recordings of pytest contain exchanges alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from io import FileIO
from pathlib import Path
from typing import TypeAlias

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.exchange_json import DISCOVERY, InvalidRecordError, read_exchange
from harmony_conformance.evidence.file_lines import Line, LineEncodingError, UnreadableLine, parse_line, read_lines
from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, dumps, integer, members, text, value_at

SeriesKey: TypeAlias = tuple[str, str, int]
"""Scenario, API and attempt of a series."""


class RecordKind(StrEnum):
    """Kinds of the lines of a recording."""

    RUN = "run"
    EXCHANGE = "exchange"
    SENT = "sent"
    END = "end"


class BrokenRecordingError(UsageError, ValueError):
    """A recorded run that cannot be read. The message has the file, the line and the reason."""


@dataclass(frozen=True, kw_only=True)
class Recording:
    """A recorded run.

    Attributes:
        header: Members of the line `run`; empty for a recording without one.
        series: Series in recorded order, without discovery.
        finished: Keys of the series with a line `sent`, which are completely recorded.
        damage: Description of a torn last line and of lost records, in one line; empty without damage.
        has_end: True if the recording has the line `end`.
    """

    header: JsonObject = field(default_factory=dict[str, Json])
    series: tuple[Series, ...] = ()
    finished: frozenset[SeriesKey] = frozenset()
    damage: str = ""
    has_end: bool = False

    @property
    def missing_part(self) -> str:
        """The reason why the recording is incomplete, in one line; empty for a complete one and for one without a line `run`."""
        return self.damage or ("the recorded run did not end" if self.header and not self.has_end else "")


def read_recorded(path: Path) -> list[Series]:
    """Return the series of a complete recording, see `read_recording`.

    Raises:
        BrokenRecordingError: As for `read_recording`, or the recording is incomplete.
    """
    recording = read_recording(path)
    if recording.missing_part:
        raise BrokenRecordingError(f"{path}: {recording.missing_part}")
    return list(recording.series)


def read_recording(path: Path) -> Recording:
    """Return a recorded run (`exchanges.jsonl`) up to a torn last line. Null bytes before a record are skipped.

    Raises:
        BrokenRecordingError: A line before the last one, or the only line, is damaged; a line is not an exchange; a series has the same step twice.
    """
    reader = _Reader()
    torn: BrokenRecordingError | None = None
    for line in read_lines(path):
        if isinstance(line, UnreadableLine):
            torn = torn or BrokenRecordingError(
                f"{path}, line {line.number}: {line}" if line.number else f"{path}: {line}"
            )
            continue
        if torn is not None:
            raise torn
        try:
            reader.read(line)
        except ValueError as problem:
            torn = BrokenRecordingError(f"{path}, line {line.number}: {problem}")
            if not isinstance(problem, InvalidJsonError | LineEncodingError):
                raise torn from None
    if torn is not None and not reader.records:
        raise torn
    return reader.recording(f"torn record at the end ({str(torn).removeprefix(f'{path}, ')})" if torn else "")


class _Reader:
    """State: the content of the lines so far."""

    def __init__(self) -> None:
        self.records = 0
        self._header: JsonObject = {}
        self._series: dict[SeriesKey, dict[str, Exchange]] = {}
        self._finished: set[SeriesKey] = set()
        self._lost: list[str] = []
        self._has_end = False

    def recording(self, torn: str) -> Recording:
        return Recording(
            header=self._header,
            series=tuple(Series(name=key[0], exchanges=steps) for key, steps in self._series.items()),
            finished=frozenset(self._finished),
            damage="; ".join(filter(None, (*self._lost, torn))),
            has_end=self._has_end,
        )

    def read(self, line: Line) -> None:
        """Read a line.

        Raises:
            ValueError: The line is damaged or not an exchange.
        """
        record = line.data.lstrip(b"\0")
        nulls = len(line.data) - len(record)
        if nulls:
            self._lost.append(f"record lost at line {line.number} ({nulls} null bytes)")
        if not record.strip():
            return
        value = parse_line(Line(offset=line.offset + nulls, number=line.number, data=record))
        match value_at(value, "kind"):
            case RecordKind.RUN:
                self._header = members(value)
            case RecordKind.SENT:
                attempt = integer(value_at(value, "try")) or 0
                self._finished.add((text(value_at(value, "series")), text(value_at(value, "api")), attempt))
            case RecordKind.END:
                self._has_end = True
            case kind if DISCOVERY in (kind, value_at(value, "scenario")):
                pass
            case RecordKind.EXCHANGE:
                self._add(read_exchange(value))
            case _:
                raise InvalidRecordError("invalid exchange: expected `exchange` in the member `kind`")
        self.records += 1

    def _add(self, x: Exchange) -> None:
        steps = self._series.setdefault((x.scenario, _api_of_series(x), x.attempt), {})
        if x.step in steps:
            raise InvalidRecordError(f"duplicate step {x.step!r} of scenario {x.scenario!r}, try {x.attempt}")
        steps[x.step] = x


def _api_of_series(x: Exchange) -> str:
    """Return the API of the series of an exchange. Requests to auxiliary endpoints, such as metrics, name it in their id."""
    if x.api in APIS:
        return x.api
    named = x.id.removeprefix(f"{x.scenario}/").partition("/")[0]
    return named if named in APIS else CHAT_COMPLETIONS.name


def series_key(one: Series) -> SeriesKey | None:
    """Return the key of a series, None if it has no exchange."""
    first = next(iter(one.exchanges.values()), None)
    return (one.name, one.api, first.attempt) if first is not None else None


def run_line(header: JsonObject) -> bytes:
    """Return the first line of a recording."""
    return _note(RecordKind.RUN, header)


def sent_line(key: SeriesKey) -> bytes:
    """Return the line after the exchanges of a finished series."""
    return _note(RecordKind.SENT, {"series": key[0], "api": key[1], "try": key[2]})


def end_line() -> bytes:
    """Return the last line of a recording."""
    return _note(RecordKind.END, {})


def _note(kind: RecordKind, values: JsonObject) -> bytes:
    line: JsonObject = {"kind": kind.value, "scenario": DISCOVERY, **values}
    return (dumps(line) + "\n").encode("utf-8", "backslashreplace")


def append_atomically(file: FileIO, lines: bytes) -> None:
    """Append lines to a recording, all or none: a truncated line would make it unreadable.

    Raises:
        OSError: The lines cannot be written, for example on a full disk. File and position are then unchanged.
    """
    begin = file.tell()
    remaining = memoryview(lines)
    try:
        while remaining:
            remaining = remaining[file.write(remaining) :]
    except BaseException:
        file.seek(begin)
        file.truncate()
        raise
