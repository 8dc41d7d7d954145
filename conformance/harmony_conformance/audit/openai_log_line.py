"""Reader of OpenAI-style log lines: `{"request": {…body of Chat Completions…}, "response": …}`.

The response may be

- a `chat.completion` or an error object, or its text,
- a list of chunk objects: a stream; `[DONE]` is added if all events are objects, because such loggers cannot represent it,
- the HTTP response: `{"status": 200, "headers": {…}, "body": object, list of chunks, or text}` (text with event lines is a stream).

`status` may also be a member of the line. The request may be wrapped: `{"path": …, "headers": {…}, "body": …}`.
"""

from __future__ import annotations

from collections.abc import Mapping

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.exchange_json import NotAnExchangeError
from harmony_conformance.json_value import InvalidJsonError, Json, dumps, integer, loads, members, text, value_at
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_conformance.transport.sse import DONE

CHAT = "/v1/chat/completions"
_OK = 200
_STATUS_NAMES = ("status", "status_code")
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"})
_EVENT_FIELDS = ("data:", "event:", ":", "id:", "retry:")
_STREAM_MEMBERS = frozenset({"stream", "stream_options"})


def read_openai_line(value: Json, *, name: str) -> Exchange:
    """Return the exchange of an OpenAI-style line, with the id `name`.

    Raises:
        NotAnExchangeError: The line is not an exchange. The message names the missing or invalid member.
    """
    if not isinstance(value, dict):
        raise NotAnExchangeError("no exchange: not a JSON object")
    if "request" not in value:
        raise NotAnExchangeError("no exchange: it has no member `request`")
    if value.get("response") is None:
        raise NotAnExchangeError("no exchange: it has no response")
    path, headers, content = _request(value["request"])
    response, is_wire = _response(value["response"], _status(value))
    if not is_wire and response.content_type == "application/json" and value_at(content, "stream") is True:
        content = {key: member for key, member in members(content).items() if key not in _STREAM_MEMBERS}
    body = dumps(content).encode("utf-8", "surrogatepass")
    return Exchange(id=name, request=Request(path=path, headers=headers, body=body), response=response, from_log=True)


def _request(value: Json) -> tuple[str, Mapping[str, str], Json]:
    wrapped = value_at(value, "body")
    body = _parse_text(wrapped if wrapped is not None and value_at(value, "messages") is None else value)
    if not isinstance(body, dict):
        raise NotAnExchangeError("no exchange: its request is not a JSON object")
    path = (text(value_at(value, "path")) or text(value_at(value, "url"))).partition("?")[0] or CHAT
    if "messages" not in body or not path.endswith("/chat/completions"):
        raise NotAnExchangeError(
            "no exchange: its request is not for Chat Completions (no `messages`, or another path)"
        )
    return path, _headers(value_at(value, "headers")) if wrapped is not None else {}, body


def _response(value: Json, line_status: int | None) -> tuple[Response, bool]:
    """Return the response, and True if the line has the HTTP response or its text, not only an object that a client parsed."""
    status = _status(value)
    if status is not None or value_at(value, "body") is not None:
        headers = dict(_headers(value_at(value, "headers")))
        return _response_of_body(value_at(value, "body"), status or line_status or _OK, headers), True
    return _response_of_body(value, line_status or _OK, {}), isinstance(value, str)


def _response_of_body(body: Json, status: int, headers: dict[str, str]) -> Response:
    if isinstance(body, list):
        headers.setdefault("content-type", "text/event-stream")
        return Response(status=status, headers=headers, chunks=_chunks(body))
    if isinstance(body, str):
        is_stream = body.lstrip("\ufeff\r\n").startswith(_EVENT_FIELDS)
        headers.setdefault("content-type", "text/event-stream" if is_stream else "application/json")
        data = body.encode("utf-8", "surrogatepass")
    else:
        headers.setdefault("content-type", "application/json")
        data = dumps(body).encode("utf-8", "surrogatepass") if body is not None else b""
    return Response(status=status, headers=headers, chunks=(Chunk(arrival_time=0.0, data=data),) if data else ())


def _chunks(events: list[Json]) -> tuple[Chunk, ...]:
    texts = [event if isinstance(event, str) else dumps(event) for event in events]
    if not any(isinstance(event, str) for event in events):
        texts.append(DONE)
    return tuple(Chunk(arrival_time=0.0, data=_event(event)) for event in texts)  # arrival times are unknown


def _event(data: str) -> bytes:
    if data.startswith("data:"):
        return (data.rstrip("\r\n") + "\n\n").encode("utf-8", "surrogatepass")
    return "".join(f"data: {line}\n" for line in data.split("\n")).encode("utf-8", "surrogatepass") + b"\n"


def _status(value: Json) -> int | None:
    return next((status for name in _STATUS_NAMES if (status := integer(value_at(value, name))) is not None), None)


def _headers(value: Json) -> Mapping[str, str]:
    return {name.lower(): text(content) for name, content in members(value).items() if name.lower() not in _SECRET}


def _parse_text(value: Json) -> Json:
    """Return the value, or the JSON value of its text, None if the text is invalid."""
    if not isinstance(value, str):
        return value
    try:
        return loads(value)
    except InvalidJsonError:
        return None
