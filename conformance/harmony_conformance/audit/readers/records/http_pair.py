"""A logged pair of request and response, and the exchange that it becomes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import overload

from harmony_conformance.apis.api import Api, Framing
from harmony_conformance.apis.registry import APIS
from harmony_conformance.apis.text_fields import parse_text
from harmony_conformance.audit.readers.records.api_detection import MOST_EXAMINED, detect_api, has_answer
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import NotAnExchangeError
from harmony_conformance.json_value import (
    Json,
    JsonObject,
    dumps,
    dumps_each,
    integer,
    members,
    number,
    reads_back,
    text,
    value_at,
)
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_conformance.transport.redaction import has_credentials
from harmony_conformance.transport.sse import DONE, Event, EventDecoder, EventStream, parse_together, parsed_event

UNKNOWN_API = "no exchange: its request is for no API that is known (see --explain-format)"
EVENT_STREAM, JSON_LINES, JSON = "text/event-stream", "application/x-ndjson", "application/json"
_NAME = re.compile(r"[\w.-]*", re.ASCII)
_CODED = frozenset({"content-encoding", "content-length", "transfer-encoding"})
_COUNT = "-tokens"
"""The end of headers with a number of tokens, such as TGI's `x-prompt-tokens`. They are no credentials."""
_STATUS = re.compile(r"([1-5]\d\d)(?:\.0)?", re.ASCII)
_EPOCH = re.compile(r"\d{10}(?:\d{3}){0,3}(?:\.\d+)?", re.ASCII)
"""A time as a text of digits: seconds to nanoseconds since 1970. `20251123` is a date."""
_EVENT_FIELDS = ("data:", "event:", ":", "id:", "retry:")
_STREAM_MEMBERS = frozenset({"stream", "stream_options"})
_OK = 200
_LATEST_SECOND = 1e11


@dataclass(frozen=True, kw_only=True)
class HttpPair:
    """A request and its response, as a log has them.

    Attributes:
        request: The request body, parsed; None if the log does not have it.
        response: The response body: an object, its text, or the list of a stream's events.
        path: The request path with query, empty if unknown.
        is_wire: True if the response is as it crossed the wire, False if a client parsed it.
        started: The start time in ISO 8601, None if unknown.
    """

    request: Json
    response: Json
    path: str = ""
    status: int = _OK
    request_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    response_headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_wire: bool = False
    started: str | None = None


def read_headers(value: Json) -> Mapping[str, str]:
    """Return headers without credentials, names in lower case: an object, or a list of names and values as in HAR."""
    if isinstance(value, list):
        pairs = [(text(value_at(one, "name")), value_at(one, "value")) for one in value if isinstance(one, dict)]
        pairs += [(text(value_at(one, 0)), value_at(one, 1)) for one in value if isinstance(one, list)]
    else:
        pairs = [*members(value).items()]
    lower = ((name.lower(), found) for name, value in pairs if name and (found := _header_text(value)) is not None)
    return {name: content for name, content in lower if name not in _CODED and not _is_secret(name)}


def _is_secret(name: str) -> bool:
    return has_credentials(name) and not name.endswith(_COUNT)


def _header_text(value: Json) -> str | None:
    """Return the value of a header: a text, a number, or the list of its lines as in `http.Header` of Go. None for any other value."""
    if isinstance(value, list):
        return ", ".join(filter(None, map(_header_text, value))) or None
    return value if isinstance(value, str) else None if number(value) is None else str(value)


def read_status(value: Json) -> int | None:
    """Return an HTTP status, which a table may have as a text or with a fraction; None for another value."""
    found = _STATUS.fullmatch(str(value)) if isinstance(value, str | float) else None
    return integer(value) if found is None else int(found[1])


def read_time(value: Json) -> str | None:
    """Return a time as text, None if there is no time. A number counts seconds, milliseconds, microseconds or nanoseconds since 1970.

    A table may have the number as a text.
    """
    if isinstance(value, str) and _EPOCH.fullmatch(value):
        value = float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return text(value) or None
    try:
        for _ in range(3):
            value = value / 1000 if abs(value) > _LATEST_SECOND else value
        return datetime.fromtimestamp(value, UTC).isoformat()
    except (ValueError, OverflowError, OSError):
        return None


def build_exchange(pair: HttpPair, *, name: str) -> Exchange:
    """Return the exchange of a pair, with the id `name`.

    Raises:
        NotAnExchangeError: The pair is for no API that is known.
    """
    path = pair.path.partition("?")[0]
    received = _read_body(pair)
    api = _api_of(pair, path, received)
    if api is None:
        raise NotAnExchangeError(UNKNOWN_API)
    data, is_exact, stream = b"", False, received.stream
    if received.data is None and received.events is not None:
        body, stream = _write_events(api, received.events)
        data = body.encode("utf-8", "surrogatepass")
    else:
        data, is_exact = _whole_body(received)
    chunks = (Chunk(arrival_time=0.0, data=data),) if data else ()
    kind = JSON if received.events is None else JSON_LINES if api.framing is Framing.LINES else EVENT_STREAM
    response = Response(status=pair.status, headers={"content-type": kind, **pair.response_headers}, chunks=chunks)
    if is_exact:  # what was parsed already is not parsed again
        vars(response)["json"] = received.value
    request = pair.request if pair.request is not None else {}
    if (
        not pair.is_wire
        and not isinstance(pair.response, str)
        and response.content_type == JSON
        and isinstance(request, dict)
    ):
        request = _without_stream(request, api)
    document = dumps(request)
    sent = Request(path=path or api.path, headers=pair.request_headers, body=document.encode("utf-8", "surrogatepass"))
    if reads_back(document):
        vars(sent)["json"] = request
    x = Exchange(id=name, api=api.name, request=sent, response=response, started=pair.started, from_log=True)
    if stream is not None and response.is_event_stream:
        vars(x)["events"] = stream
    return x


def find_api_of(pair: HttpPair) -> Api | None:
    """Return the API of a pair, None if it is for no API that is known."""
    return _api_of(pair, pair.path.partition("?")[0], _read_body(pair))


def _api_of(pair: HttpPair, path: str, received: _Body) -> Api | None:
    events = received.events
    if events is not None and not isinstance(events, _EventValues):
        events = [*map(_event_value, events[:MOST_EXAMINED])]
    return detect_api(path, pair.request, received.value, events)


def _without_stream(request: JsonObject, api: Api) -> JsonObject:
    """Return the request of a complete response that a client made of a stream, so that it is judged as a complete one."""
    if request.get("stream") is not True and api.framing is not Framing.LINES:
        return request
    whole = {name: value for name, value in request.items() if name not in _STREAM_MEMBERS}
    return {**whole, "stream": False} if api.framing is Framing.LINES else whole


@dataclass(frozen=True, kw_only=True)
class _Body:
    """A response body: the value of a complete one, the values of a stream's events. `data` has its bytes, if the log has them.

    `stream` has the events of server-sent ones, None if they were not decoded. `is_exact`: parsing the bytes gives `value`.
    """

    data: bytes | None = None
    value: Json = None
    events: Sequence[Json] | None = None
    stream: EventStream | None = None
    is_exact: bool = False


def _read_body(pair: HttpPair) -> _Body:
    body = pair.response
    if isinstance(body, list):
        is_whole = value_at(pair.request, "stream") is not True and any(has_answer(api, body) for api in APIS.values())
        return _Body(value=body) if is_whole else _Body(events=body)
    if not isinstance(body, str):
        return _Body(value=body)
    data = body.encode("utf-8", "surrogatepass")
    if is_event_text(body):
        decoder = EventDecoder()
        events = decoder.feed(data)
        stream = decoder.stream(events)
        return _Body(data=data, events=_EventValues((*events, *decoder.feed(b"\n\n"))), stream=stream)
    if (value := parse_text(body)) is not None:
        return _Body(data=data, value=value, is_exact=reads_back(body))
    lines = [parse_text(line) for line in body.split("\n") if line.strip()]
    return _Body(data=data, events=lines if lines and isinstance(lines[0], dict) else None)


class _EventValues(Sequence[Json]):
    """The values of events, which are parsed when they are read: most are read as the joined pieces of one text."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    def __len__(self) -> int:
        return len(self._events)

    @overload
    def __getitem__(self, index: int) -> Json: ...
    @overload
    def __getitem__(self, index: slice) -> list[Json]: ...

    def __getitem__(self, index: int | slice) -> Json | list[Json]:
        chosen = self._events[index]
        if isinstance(chosen, Event):
            return _event_value(chosen.value)
        parse_together(chosen)
        return [_event_value(event.value) for event in chosen]


def _whole_body(body: _Body) -> tuple[bytes, bool]:
    """Return the bytes of a complete body, and True if parsing them gives its value."""
    if body.data is not None or body.value is None:
        return body.data or b"", body.is_exact
    document = dumps(body.value)
    return document.encode("utf-8", "surrogatepass"), reads_back(document)


def _write_events(api: Api, events: Sequence[Json]) -> tuple[str, EventStream | None]:
    """Return the text of a stream that a log has as a list, and its events if they are certain without decoding the text.

    `[DONE]` is added if such a list cannot have it. Arrival times are unknown.
    """
    if api.framing is Framing.LINES:
        return "".join((event if isinstance(event, str) else dumps(event)) + "\n" for event in events), None
    has_texts = any(isinstance(event, str) for event in events)
    texts = (
        [event if isinstance(event, str) else dumps(event) for event in events] if has_texts else dumps_each([*events])
    )
    names = [text(event.get("type")) if isinstance(event, dict) else "" for event in events]
    values = [*events]
    is_plain = not has_texts and not any(names)
    if is_plain:
        texts.append(DONE)
        names.append("")
        values.append(None)
    body = f"data: {_BETWEEN_EVENTS.join(texts)}\n\n" if is_plain else "".join(map(_event, texts, names))
    if has_texts or not all(map(reads_back, texts)) or not all(map(_NAME.fullmatch, names)):
        return body, None
    read = [parsed_event(data, value, name=name) for data, value, name in zip(texts, values, names, strict=True)]
    return body, EventStream(events=tuple(read))


_BETWEEN_EVENTS = "\n\ndata: "


def _event(data: str, name: str) -> str:
    if data.startswith(_EVENT_FIELDS):
        return data.rstrip("\r\n") + "\n\n"
    kind = f"event: {name}\n" if name else ""
    return kind + "".join(f"data: {line}\n" for line in data.split("\n")) + "\n"


def is_event_text(body: str) -> bool:
    """Return True for the text of a stream of server-sent events."""
    return body.lstrip("\ufeff\r\n").startswith(_EVENT_FIELDS)


def _event_value(event: Json) -> Json:
    return parse_text(event.removeprefix("data:")) if isinstance(event, str) else event


def first_text(value: JsonObject, names: Iterable[str]) -> str:
    """Return the first of some members that is a text, an empty one without any."""
    return next((found for name in names if (found := text(value.get(name)))), "")
