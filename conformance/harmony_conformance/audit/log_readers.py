"""Reader of log lines: lines of a run's `exchanges.jsonl`, and OpenAI-style lines with `request` and `response`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from harmony_conformance.audit.openai_log_line import read_openai_line
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import DISCOVERY, NotAnExchangeError, read_exchange
from harmony_conformance.evidence.file_lines import Line, LineEncodingError, UnreadableLine, parse_line
from harmony_conformance.json_value import InvalidJsonError, Json, members, value_at

_WRONG_VALUE = "no exchange: a member has a value that cannot be read"


class LineFormat(StrEnum):
    """Values of `audit --format`."""

    AUTO = "auto"
    EXCHANGES = "exchanges"
    OPENAI = "openai"


@dataclass(frozen=True, kw_only=True)
class LoggedExchange:
    """An exchange of a log, and the byte offset of its line. The exchange's id is `file@offset`."""

    offset: int
    exchange: Exchange


@dataclass(frozen=True, kw_only=True)
class DiscoveryLine:
    """An exchange of discovery in a recorded run, at this byte offset. It is counted but not judged."""

    offset: int


def read_line(line: Line, form: LineFormat, *, name: str) -> LoggedExchange | DiscoveryLine | UnreadableLine:
    """Return the exchange of one line, or the reason why it is unreadable. The reason never quotes the line."""
    try:
        value = parse_line(line)
        recorded = form is LineFormat.EXCHANGES or (form is LineFormat.AUTO and _is_recorded(value))
        if recorded and DISCOVERY in (value_at(value, "kind"), value_at(value, "scenario")):
            return DiscoveryLine(offset=line.offset)
        x = replace(read_exchange(value), id=name) if recorded else read_openai_line(value, name=name)
        return LoggedExchange(offset=line.offset, exchange=x)
    except InvalidJsonError as problem:
        return _problem(line, "no JSON", f"at character {problem.position}")
    except LineEncodingError as problem:
        return _problem(line, "no UTF-8", f"at byte {problem.byte}")
    except NotAnExchangeError as problem:
        return _problem(line, str(problem))
    except ValueError:
        return _problem(line, _WRONG_VALUE)


def _is_recorded(value: Json) -> bool:
    request = value_at(value, "request")
    is_own = value_at(value, "kind") == "exchange" or value_at(value, "scenario") == DISCOVERY
    return is_own or "json" in members(request) or "text" in members(request)


def _problem(line: Line, kind: str, detail: str = "") -> UnreadableLine:
    return UnreadableLine(offset=line.offset, number=line.number, kind=kind, detail=detail)
