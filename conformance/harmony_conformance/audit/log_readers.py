"""Logs to exchanges. Two forms of line: our own `exchanges.jsonl`, and plain OpenAI-style lines with `request` and `response`.

`read_line` reads one line of a log of any size; where it is no exchange, its offset and the reason are told. `read_recorded` reads a recorded run whole
and strictly, grouped as it was sent.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from harmony_conformance.audit.openai_log_line import read_openai_line
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.file_lines import Line, LineEncodingError, UnreadableLine, parse_line
from harmony_conformance.evidence.recording import DISCOVERY, InvalidRecordError, read_exchange
from harmony_conformance.json_value import InvalidJsonError, Json, at, members

_NO_EXCHANGE = "no exchange: "
_WRONG_VALUE = "no exchange: a member has a value that cannot be read"


class LineFormat(StrEnum):
    """The forms of a line that can be asked for."""

    AUTO = "auto"
    EXCHANGES = "exchanges"
    OPENAI = "openai"


@dataclass(frozen=True, kw_only=True)
class Found:
    """An exchange of a log and the offset of its line; its id is `file@offset`."""

    offset: int
    exchange: Exchange


@dataclass(frozen=True, kw_only=True)
class LeftOut:
    """An exchange of a recorded run's discovery, at this offset: it is counted, not judged."""

    offset: int


def read_line(line: Line, form: LineFormat, *, name: str) -> Found | LeftOut | UnreadableLine:
    """The exchange of one line, or why it is none. What is told of a line holds nothing of its content."""
    try:
        value = parse_line(line)
        recorded = form is LineFormat.EXCHANGES or (form is LineFormat.AUTO and _is_recorded(value))
        if recorded and DISCOVERY in (at(value, "kind"), at(value, "scenario")):
            return LeftOut(offset=line.offset)
        x = replace(read_exchange(value), id=name) if recorded else read_openai_line(value, name=name)
        return Found(offset=line.offset, exchange=x)
    except InvalidJsonError as problem:
        return _problem(line, "no JSON", f"at character {problem.position}")
    except LineEncodingError as problem:
        return _problem(line, "no UTF-8", f"at byte {problem.byte}")
    except InvalidRecordError as problem:
        told = str(problem)
        return _problem(line, told if told.startswith(_NO_EXCHANGE) else _WRONG_VALUE)
    except ValueError:
        return _problem(line, _WRONG_VALUE)


def _is_recorded(value: Json) -> bool:
    request = at(value, "request")
    return at(value, "kind") == "exchange" or "json" in members(request) or "text" in members(request)


def _problem(line: Line, kind: str, detail: str = "") -> UnreadableLine:
    return UnreadableLine(offset=line.offset, number=line.number, kind=kind, detail=detail)
