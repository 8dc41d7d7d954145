"""A plain log line to an exchange: `{"request": {…body of Chat Completions…}, "response": …}`, as most loggers write it.

The response may be

- a `chat.completion` or an error object, or its text,
- a list of chunk objects: a stream; `[DONE]` is added where a logger that keeps parsed objects had no place for it,
- what crossed the wire: `{"status": 200, "headers": {…}, "body": object, list of chunks, or text}` (text that holds event lines is a stream).

`status` may also stand beside `request` and `response`. The request may be wrapped: `{"path": …, "headers": {…}, "body": …}`.
"""

from __future__ import annotations

from collections.abc import Mapping

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.recording import InvalidRecordError
from harmony_conformance.json_value import InvalidJsonError, Json, JsonObject, at, dumps, loads, members, number, text
from harmony_conformance.transport.messages import Chunk, Request, Response
from harmony_conformance.transport.sse import DONE

CHAT = "/v1/chat/completions"
_OK = 200
_STATUS_NAMES = ("status", "status_code")
_SECRET = frozenset({"authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key"})
_EVENT_FIELDS = ("data:", "event:", ":", "id:", "retry:")
_STREAM_MEMBERS = frozenset({"stream", "stream_options"})


def read_openai_line(value: Json, *, name: str) -> Exchange:
    """The exchange of a plain line.

    Raises:
        BadRecording: it is none; says which member is missing or what it is instead.
    """
    held = members(value)
    if not isinstance(value, dict):
        raise InvalidRecordError("no exchange: not a JSON object")
    if "request" not in held:
        raise InvalidRecordError("no exchange: it has no member `request`")
    if held.get("response") is None:
        raise InvalidRecordError("no exchange: it has no response")
    path, headers, asked = _request(held["request"])
    response, is_wire = _response(held["response"], _status(value))
    if not is_wire and response.content_type == "application/json" and at(asked, "stream") is True:
        asked = {member: content for member, content in members(asked).items() if member not in _STREAM_MEMBERS}
    body = dumps(asked).encode("utf-8", "surrogatepass")
    return Exchange(id=name, request=Request(path=path, headers=headers, body=body), response=response, from_log=True)


def _request(value: Json) -> tuple[str, Mapping[str, str], Json]:
    wrapped = at(value, "body")
    asked = _parsed(wrapped if wrapped is not None and at(value, "messages") is None else value)
    if not isinstance(asked, dict):
        raise InvalidRecordError("no exchange: its request is no JSON object")
    path = (text(at(value, "path")) or text(at(value, "url"))).partition("?")[0] or CHAT
    if "messages" not in asked or not path.endswith("/chat/completions"):
        raise InvalidRecordError(
            "no exchange: its request is none of Chat Completions (no `messages`, or another path)"
        )
    return path, _headers(at(value, "headers")) if wrapped is not None else {}, asked


def _response(value: Json, beside: int | None) -> tuple[Response, bool]:
    """The response, and whether the line says what crossed the wire, not only what a client made of it."""
    own = _status(value)
    if own is not None or at(value, "body") is not None:
        headers = dict(_headers(at(value, "headers")))
        return _of_body(at(value, "body"), own or beside or _OK, headers), True
    return _of_body(value, beside or _OK, {}), isinstance(value, str)


def _of_body(body: Json, status: int, headers: dict[str, str]) -> Response:
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
    return Response(status=status, headers=headers, chunks=(Chunk(at=0.0, data=data),) if data else ())


def _chunks(events: list[Json]) -> tuple[Chunk, ...]:
    told = [event if isinstance(event, str) else dumps(event) for event in events]
    if not any(isinstance(event, str) for event in events):
        told.append(DONE)
    return tuple(Chunk(at=0.0, data=_event(event)) for event in told)  # no times are known, so none are made up


def _event(data: str) -> bytes:
    if data.startswith("data:"):
        return (data.rstrip("\r\n") + "\n\n").encode("utf-8", "surrogatepass")
    return "".join(f"data: {line}\n" for line in data.split("\n")).encode("utf-8", "surrogatepass") + b"\n"


def _status(value: Json) -> int | None:
    held = members(value)
    return next((status for name in _STATUS_NAMES if (status := number(held.get(name))) is not None), None)


def _headers(value: Json) -> Mapping[str, str]:
    held: JsonObject = members(value)
    return {name.lower(): text(content) for name, content in held.items() if name.lower() not in _SECRET}


def _parsed(value: Json) -> Json:
    if not isinstance(value, str):
        return value
    try:
        return loads(value)
    except InvalidJsonError:
        return None
