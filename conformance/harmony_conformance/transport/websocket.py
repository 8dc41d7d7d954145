"""The Responses API over a WebSocket: the message of a request, and the events of its answer.

A client opens one connection, sends `response.create` for each turn, and gets the events of the stream as JSON messages.
A recorded response has the same form as over HTTP: each message is written as the server-sent event with its data.
A refused request has the status that its `error` event names, with the event as body.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from harmony_conformance.json_value import InvalidJsonError, Json, dumps, integer, loads, text, value_at
from harmony_conformance.transport.messages import Failure, Request

CREATE = "response.create"
EVENT_STREAM_HEADERS: Mapping[str, str] = {"content-type": "text/event-stream"}
JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}
_PATH = "/responses"
_NOT_SENT = frozenset({"stream", "background"})
_BODY_HEADERS = frozenset({"content-encoding", "content-length", "content-type"})
_ERROR = "error"
_ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled", _ERROR})
_LOWEST_ERROR, _HIGHEST_ERROR = 400, 599
_LINE_END = re.compile(r"\r\n|\r|\n")


class WebSocketFailedError(Exception):
    """A connection that could not be opened or has ended, with the `Failure` to record."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class WebSocketRefusedError(Exception):
    """A handshake that the server answered by an HTTP response."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.headers, self.body = status, headers, body


class WebSocket(Protocol):
    """An open connection. `send` and `receive` raise a `WebSocketFailedError` once it has ended."""

    async def send(self, message: str) -> None:
        """Send a text message."""

    async def receive(self) -> str:
        """Return the next text message."""
        ...

    async def close(self) -> None:
        """Close the connection. Closing it twice has no effect."""


def create_message(request: Request) -> str | None:
    """Return the message for a request, or None for a request that only HTTP can carry.

    Only a streamed request of the Responses API has one. It may not run in the background, nor have headers about its body,
    nor text that is not valid UTF-8.
    """
    body = request.json
    if request.method != "POST" or not request.path.endswith(_PATH) or not isinstance(body, dict):
        return None
    if _BODY_HEADERS & request.headers.keys():
        return None
    if body.get("stream") is not True or body.get("background") is True:
        return None
    message = dumps({"type": CREATE, **{name: value for name, value in body.items() if name not in _NOT_SENT}})
    try:
        message.encode()
    except UnicodeEncodeError:
        return None
    return message


def read_message(message: str) -> Json:
    """Return a message as JSON, None if it is invalid."""
    try:
        return loads(message)
    except InvalidJsonError:
        return None


def ends_turn(event: Json) -> bool:
    """Return True for the last event of an answer: an end of the response, or an error, also without `type`."""
    kind = text(value_at(event, "type"))
    return kind in _ENDS or is_error(event)


def is_error(event: Json) -> bool:
    """Return True for an error event, also without `type`."""
    kind = text(value_at(event, "type"))
    return kind == _ERROR or (not kind and value_at(event, _ERROR) is not None)


def error_status(event: Json) -> int | None:
    """Return the HTTP status that an error event names, None without one."""
    named = (integer(value_at(event, name)) for name in ("status", "status_code"))
    status = next((value for value in named if value is not None), None)
    return status if is_error(event) and status is not None and _LOWEST_ERROR <= status <= _HIGHEST_ERROR else None


def as_server_sent_event(message: str) -> bytes:
    """Return a message as the server-sent event that has it as data."""
    lines = "".join(f"data: {line}\n" for line in _LINE_END.split(message))
    return f"{lines}\n".encode("utf-8", "surrogateescape")
