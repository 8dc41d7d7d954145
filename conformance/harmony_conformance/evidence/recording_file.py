"""Read recorded runs as series, and append exchanges to a recording."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.exchange_json import DISCOVERY, InvalidRecordError, read_exchange
from harmony_conformance.evidence.file_lines import Line, UnreadableLine, parse_line, read_lines
from harmony_conformance.json_value import value_at


class BrokenRecordingError(UsageError, ValueError):
    """A recorded run that cannot be read. The message has the file, the line and the reason."""


def read_recorded(path: Path) -> list[Series]:
    """Return the series of a recorded run (`exchanges.jsonl`), one per scenario, API and attempt, in recorded order, without discovery.

    Raises:
        BrokenRecordingError: A line is not an exchange, or a series has the same step twice.
    """
    grouped: dict[tuple[str, str, int], dict[str, Exchange]] = {}
    for line in read_lines(path):
        if isinstance(line, UnreadableLine):
            raise BrokenRecordingError(f"{path}, line {line.number}: {line}" if line.number else f"{path}: {line}")
        x = _read_line(path, line)
        if x is None:
            continue
        api = x.api if x.api in APIS else CHAT_COMPLETIONS.name
        steps = grouped.setdefault((x.scenario, api, x.attempt), {})
        if x.step in steps:
            raise BrokenRecordingError(
                f"{path}, line {line.number}: duplicate step {x.step!r} of scenario {x.scenario!r}, try {x.attempt}"
            )
        steps[x.step] = x
    return [Series(name=scenario, exchanges=steps) for (scenario, *_), steps in grouped.items()]


def _read_line(path: Path, line: Line) -> Exchange | None:
    """Return the exchange of a line, or None for one of discovery."""
    try:
        value = parse_line(line)
        if value_at(value, "kind") == DISCOVERY or value_at(value, "scenario") == DISCOVERY:
            return None
        if value_at(value, "kind") != "exchange":
            raise InvalidRecordError("invalid exchange: expected `exchange` in the member `kind`")
        return read_exchange(value)
    except ValueError as problem:
        raise BrokenRecordingError(f"{path}, line {line.number}: {problem}") from None


def append_atomically(file: FileIO, lines: bytes) -> None:
    """Append lines to a recording, all or none: a truncated line would make it unreadable.

    Raises:
        OSError: The lines cannot be written, for example on a full disk. The file is then unchanged.
    """
    begin = file.tell()
    remaining = memoryview(lines)
    try:
        while remaining:
            remaining = remaining[file.write(remaining) :]
    except OSError:
        file.truncate(begin)
        raise
