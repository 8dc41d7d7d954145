"""The table of record shapes, and the reader of one record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from harmony_conformance.apis.text_fields import parse_text
from harmony_conformance.audit.readers.records.gateways import HELICONE, LITELLM, OBSERVATION, OPENROUTER
from harmony_conformance.audit.readers.records.pairs import BATCH, EXCHANGES, HAR_ENTRY, PAIR
from harmony_conformance.audit.readers.records.partial import ANSWER, CONVERSATION, TEXT, VLLM_RECORD
from harmony_conformance.audit.readers.records.proxy_log import PROXY_LOG
from harmony_conformance.audit.readers.records.record import CountedExchange, DiscoveryLine, LoggedExchange, Shape
from harmony_conformance.audit.readers.records.spans import SPAN, split_otlp
from harmony_conformance.evidence.exchange_json import NotAnExchangeError
from harmony_conformance.evidence.file_lines import Line, LineEncodingError, UnreadableLine, parse_line
from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, items, text, value_at

AUTO = "auto"
ALL_SHAPES = (
    PROXY_LOG,
    EXCHANGES,
    HAR_ENTRY,
    BATCH,
    LITELLM,
    PAIR,
    VLLM_RECORD,
    HELICONE,
    OPENROUTER,
    SPAN,
    OBSERVATION,
    ANSWER,
    CONVERSATION,
    TEXT,
)
SHAPES: Mapping[str, Shape] = MappingProxyType({shape.name: shape for shape in ALL_SHAPES})
"""The shapes by name, in the order in which they are tried."""
_SPLITTERS: Sequence[tuple[str, Callable[[JsonObject], list[Json]]]] = (
    ("resourceSpans", split_otlp),
    ("resourceLogs", split_otlp),
    ("observations", lambda value: items(value["observations"])),
    ("batch", lambda value: [body for event in items(value["batch"]) if (body := value_at(event, "body")) is not None]),
    ("data", lambda value: items(value["data"])),
)
"""Members of records that contain several exchanges, and the function that returns their parts."""
COLUMNS = ("request", "response", "status", "path", "messages", "input", "output", "model", "started")
"""The names that `--map` can give to members or columns."""
_WHOLE = frozenset({"request", "messages", "choices", "custom_id"})
"""Members of records that are one exchange, whatever other members they have."""
_USERS = ("end_user", "user", "user_id", "userId")
"""Members of records with the id of a user. A request can have it too."""
_TORN = "no JSON: the last line is torn, or still being written"
_LONGEST_INDEX = 10
_WRONG_VALUE = "no exchange: a member has a value that cannot be read"

Record = LoggedExchange | CountedExchange | DiscoveryLine | UnreadableLine


def read_line(line: Line, form: str, *, name: str, columns: Mapping[str, str] | None = None) -> list[Record]:
    """Return the exchanges of one record, or the reasons why they are unreadable. A reason never quotes the record.

    Args:
        line: The record.
        form: The name of a shape, or of a file format, or `auto`.
        name: The place of the record. Several exchanges of it are `name/0`, `name/1`, ….
        columns: Paths of members by the name under which they are read (`--map`).
    """
    try:
        values = parse_record(line, columns or {})
    except InvalidJsonError as problem:
        return [_problem(line, _TORN if _is_torn(line) else "no JSON", f"at character {problem.position}")]
    except LineEncodingError as problem:
        return [_problem(line, _TORN if _is_torn(line) else "no UTF-8", f"at byte {problem.byte}")]
    if len(values) == 1:
        return [_read_value(values[0], line, form, name)]
    return [_read_value(value, line, form, f"{name}/{number}") for number, value in enumerate(values)] or [
        _problem(line, "no exchange: it has none of the parts that its format announces")
    ]


def _is_torn(line: Line) -> bool:
    return not line.has_end and line.data.lstrip().startswith((b"{", b"["))


def parse_record(line: Line, columns: Mapping[str, str]) -> list[Json]:
    """Return the value of a record, or the parts of one that contains several exchanges.

    Raises:
        InvalidJsonError: The record is not JSON.
        LineEncodingError: The record is not UTF-8.
    """
    value = parse_line(line)
    if columns:
        return [{target: _at_path(value, path) for target, path in columns.items()}]
    parts = split_record(value)
    return [value] if parts is None else parts


def split_record(value: Json) -> list[Json] | None:
    """Return the parts of a record that contains several exchanges, None for any other."""
    if not isinstance(value, dict) or _WHOLE & value.keys():
        return None
    return next((split(value) for member, split in _SPLITTERS if isinstance(value.get(member), list)), None)


def find_shape(value: Json, form: str) -> Shape:
    """Return the shape of a value: the one of that name, else the first that matches.

    Raises:
        NotAnExchangeError: No shape matches.
    """
    if form in SHAPES:
        return _chosen_shape(value, SHAPES[form])
    if isinstance(value, str):
        return TEXT
    if isinstance(value, list) and value:
        return ANSWER
    if not isinstance(value, dict):
        raise NotAnExchangeError("no exchange: not a JSON object")
    found = next((shape for shape in ALL_SHAPES if shape.matches(value)), None)
    if found is None:
        raise NotAnExchangeError("no exchange: it has no member `request`, nor the members of another known format")
    return found


def _chosen_shape(value: Json, shape: Shape) -> Shape:
    explains_itself = shape in (EXCHANGES, PAIR)
    is_plain = (shape is TEXT and isinstance(value, str)) or (shape is ANSWER and isinstance(value, dict | list))
    if not (explains_itself or is_plain or (isinstance(value, dict) and shape.matches(value))):
        raise NotAnExchangeError("no exchange: it lacks the members of the format that was chosen")
    return shape


def _read_value(value: Json, line: Line, form: str, name: str) -> Record:
    try:
        record = find_shape(value, form).read(value, name)
    except NotAnExchangeError as problem:
        return _problem(line, str(problem))
    except ValueError:
        return _problem(line, _WRONG_VALUE)
    if not isinstance(record, LoggedExchange) or record.user or not isinstance(value, dict):
        return record
    users = (text(value.get(member)) for member in _USERS)
    return replace(record, user=next(filter(None, users), ""))


def _at_path(value: Json, path: str) -> Json:
    """Return the member at a dotted path. A name that contains dots comes first, and a text is parsed to follow a path into it."""
    while value is not None and path:
        if isinstance(value, dict) and path in value:
            return value[path]
        head, _, path = path.partition(".")
        is_index = head.isdecimal() and len(head) < _LONGEST_INDEX
        value = value_at(parse_text(value), int(head) if is_index else head)
        value = parse_text(value) if path else value
    return value


def _problem(line: Line, kind: str, detail: str = "") -> UnreadableLine:
    return UnreadableLine(offset=line.offset, number=line.number, kind=kind, detail=detail)


__all__ = [
    "ALL_SHAPES",
    "AUTO",
    "COLUMNS",
    "SHAPES",
    "Record",
    "find_shape",
    "parse_record",
    "read_line",
    "split_record",
]
