"""Logs to exchanges. Two forms of line: our own `exchanges.jsonl`, and plain OpenAI-style lines with `request` and `response`.

`read_line` reads one line of a log of any size; where it is no exchange, its offset and the reason are told. `read_recorded` reads a recorded run whole
and strictly, grouped as it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from harmony_conformance.apis import APIS, CHAT_COMPLETIONS
from harmony_conformance.audit.lines import Line, Problem, read_lines
from harmony_conformance.audit.openai_lines import read_openai_line
from harmony_conformance.command import UsageError
from harmony_conformance.exchange import Exchange, Series
from harmony_conformance.json_value import ENVELOPED, Json, NotJson, at, loads, members
from harmony_conformance.recording import BadRecording, read_exchange

DISCOVERY = "discovery"
_NO_EXCHANGE = "no exchange: "
_WRONG_VALUE = "no exchange: a member has a value that cannot be read"


class Form(StrEnum):
    """The forms of a line that can be asked for."""

    AUTO = "auto"
    EXCHANGES = "exchanges"
    OPENAI = "openai"


class NotUtf8(ValueError):  # noqa: N818 - it names what the line is
    """A line that is no UTF-8 text; says at which byte of it."""

    def __init__(self, byte: int) -> None:
        super().__init__(f"not UTF-8 text at byte {byte}")
        self.byte = byte


class BrokenRecording(UsageError, ValueError):  # noqa: N818 - it names what the file is
    """A recorded run that cannot be read; one line that says the file, the line and what is wrong there."""


def read_recorded(path: Path) -> list[Series]:
    """The series of a recorded run (`exchanges.jsonl`), by scenario, API and try, in the order in which they began. Discovery is left out.

    Raises:
        BrokenRecording: a line is no exchange, or the same step stands there twice.
    """
    grouped: dict[tuple[str, str, int], dict[str, Exchange]] = {}
    for line in read_lines(path):
        if isinstance(line, Problem):
            raise BrokenRecording(f"{path}, line {line.number}: {line}" if line.number else f"{path}: {line}")
        x = _recorded(path, line)
        if x is None:
            continue
        api = x.api if x.api in APIS else CHAT_COMPLETIONS.name
        steps = grouped.setdefault((x.scenario, api, x.attempt), {})
        if x.step in steps:
            raise BrokenRecording(
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
            raise BadRecording("no recorded exchange: its `kind` is not `exchange`")
        return read_exchange(value)
    except ValueError as problem:
        raise BrokenRecording(f"{path}, line {line.number}: {problem}") from None


def parse_line(line: Line) -> Json:
    """The JSON value of a line.

    Raises:
        NotJson: it is none.
        NotUtf8: it is no UTF-8.
    """
    try:
        document = line.data.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise NotUtf8(problem.start) from None
    return loads(document, deepest=ENVELOPED)


@dataclass(frozen=True, kw_only=True)
class Found:
    """An exchange of a log and the offset of its line; its id is `file@offset`."""

    offset: int
    exchange: Exchange


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """An exchange of a recorded run's discovery, at this offset: it is counted, not judged."""

    offset: int


def read_line(line: Line, form: Form, *, name: str) -> Found | LeftOut | Problem:
    """The exchange of one line, or why it is none. What is told of a line holds nothing of its content."""
    try:
        value = parse_line(line)
        recorded = form is Form.EXCHANGES or (form is Form.AUTO and _is_recorded(value))
        if recorded and DISCOVERY in (at(value, "kind"), at(value, "scenario")):
            return LeftOut(offset=line.offset)
        x = replace(read_exchange(value), id=name) if recorded else read_openai_line(value, name=name)
        return Found(offset=line.offset, exchange=x)
    except NotJson as problem:
        return _problem(line, "no JSON", f"at character {problem.position}")
    except NotUtf8 as problem:
        return _problem(line, "no UTF-8", f"at byte {problem.byte}")
    except BadRecording as problem:
        told = str(problem)
        return _problem(line, told if told.startswith(_NO_EXCHANGE) else _WRONG_VALUE)
    except ValueError:
        return _problem(line, _WRONG_VALUE)


def _is_recorded(value: Json) -> bool:
    request = at(value, "request")
    return at(value, "kind") == "exchange" or "json" in members(request) or "text" in members(request)


def _problem(line: Line, kind: str, detail: str = "") -> Problem:
    return Problem(offset=line.offset, number=line.number, kind=kind, detail=detail)
