"""Logs to exchanges. Two forms of line: our own `exchanges.jsonl`, and plain OpenAI-style lines with `request` and `response`.

`read_exchanges` reads a log of any size, one exchange at a time; a line that is none is told with its offset and the reason. `read_recorded` reads
a recorded run whole and strictly, grouped as it was sent.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harmony_conformance.audit.lines import Line, Problem, read_lines
from harmony_conformance.command import UsageError
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.json_value import Json, NotJson, at, loads
from harmony_conformance.recording import BadRecording, read_exchange

DISCOVERY = "discovery"


class BrokenRecording(UsageError, ValueError):
    """A recorded run that cannot be read; one line that says the file, the line and what is wrong there."""


def read_recorded(path: Path) -> list[Series]:
    """The series of a recorded run (`exchanges.jsonl`), by scenario and try, in the order in which they began. Discovery is left out.

    Raises:
        BrokenRecording: a line is no exchange, or the same step stands there twice.
    """
    grouped: dict[tuple[str, int], dict[str, Exchange]] = {}
    for line in read_lines(path):
        if isinstance(line, Problem):
            raise BrokenRecording(f"{path}, line {line.number}: {line}")
        x = _recorded(path, line)
        if x is None:
            continue
        steps = grouped.setdefault((x.scenario, x.attempt), {})
        if x.step in steps:
            raise BrokenRecording(
                f"{path}, line {line.number}: step {x.step!r} of scenario {x.scenario!r}, try {x.attempt}, stands there twice"
            )
        steps[x.step] = x
    return [Series(name=scenario, exchanges=steps) for (scenario, _), steps in grouped.items()]


def _recorded(path: Path, line: Line) -> Exchange | None:
    """The exchange of a line, None where it belongs to discovery."""
    try:
        value = parse_line(line)
        if at(value, "kind") == DISCOVERY or at(value, "scenario") == DISCOVERY:
            return None
        if at(value, "kind") != "exchange":
            raise BadRecording("no recorded exchange: its `kind` is not `exchange`")
        return read_exchange(value)
    except (NotJson, BadRecording, ValueError) as problem:
        raise BrokenRecording(f"{path}, line {line.number}: {problem}") from None


def parse_line(line: Line) -> Json:
    """The JSON value of a line.

    Raises:
        NotJson: it is none.
        BadRecording: it is no UTF-8.
    """
    try:
        document = line.data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise BadRecording(f"no UTF-8 at byte {problem.start}") from None
    return loads(document)


def read_exchanges(path: Path) -> Iterator[Exchange | Problem]:
    """The exchanges of a log, one at a time, and what could not be read between them."""
    raise NotImplementedError
