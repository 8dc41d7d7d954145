"""Recorded runs as files: read as series, appended to line by line."""

from __future__ import annotations

from io import FileIO
from pathlib import Path

from harmony_conformance.apis.registry import APIS, CHAT_COMPLETIONS
from harmony_conformance.errors import UsageError
from harmony_conformance.evidence.exchange import Exchange, Series
from harmony_conformance.evidence.file_lines import Line, UnreadableLine, parse_line, read_lines
from harmony_conformance.evidence.recording import DISCOVERY, InvalidRecordError, read_exchange
from harmony_conformance.json_value import at


class BrokenRecordingError(UsageError, ValueError):
    """A recorded run that cannot be read; one line that says the file, the line and what is wrong there."""


def read_recorded(path: Path) -> list[Series]:
    """The series of a recorded run (`exchanges.jsonl`), by scenario, API and try, in the order in which they began. Discovery is left out.

    Raises:
        BrokenRecording: a line is no exchange, or the same step stands there twice.
    """
    grouped: dict[tuple[str, str, int], dict[str, Exchange]] = {}
    for line in read_lines(path):
        if isinstance(line, UnreadableLine):
            raise BrokenRecordingError(f"{path}, line {line.number}: {line}" if line.number else f"{path}: {line}")
        x = _recorded(path, line)
        if x is None:
            continue
        api = x.api if x.api in APIS else CHAT_COMPLETIONS.name
        steps = grouped.setdefault((x.scenario, api, x.attempt), {})
        if x.step in steps:
            raise BrokenRecordingError(
                f"{path}, line {line.number}: step {x.step!r} of scenario {x.scenario!r}, try {x.attempt}, stands there twice"
            )
        steps[x.step] = x
    return [Series(name=scenario, exchanges=steps) for (scenario, *_), steps in grouped.items()]


def _recorded(path: Path, line: Line) -> Exchange | None:
    """The exchange of a line, None where it belongs to discovery."""
    try:
        value = parse_line(line)
        if at(value, "kind") == DISCOVERY or at(value, "scenario") == DISCOVERY:
            return None
        if at(value, "kind") != "exchange":
            raise InvalidRecordError("no recorded exchange: its `kind` is not `exchange`")
        return read_exchange(value)
    except ValueError as problem:
        raise BrokenRecordingError(f"{path}, line {line.number}: {problem}") from None


def append_whole(file: FileIO, lines: bytes) -> None:
    """Lines at the end of a recording, all of them or, where there is no room, none: half a line could not be read again.

    Raises:
        OSError: they can not be written; what was recorded before is as it was.
    """
    begin = file.tell()
    left = memoryview(lines)
    try:
        while left:
            left = left[file.write(left) :]
    except OSError:
        file.truncate(begin)
        raise
