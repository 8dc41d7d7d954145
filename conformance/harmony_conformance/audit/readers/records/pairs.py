"""Records with a request and its response: recorded exchanges, pairs under several names, entries of HAR, lines of OpenAI's Batch API."""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Sequence
from urllib.parse import urlsplit

from harmony_conformance.apis.text_fields import parse_text
from harmony_conformance.audit.readers.records.http_pair import (
    HttpPair,
    build_exchange,
    first_text,
    read_headers,
    read_status,
    read_time,
)
from harmony_conformance.audit.readers.records.proxy_log import read_recorded
from harmony_conformance.audit.readers.records.record import LoggedExchange, Shape
from harmony_conformance.audit.scopes import Scope
from harmony_conformance.evidence.exchange_json import DISCOVERY, NotAnExchangeError
from harmony_conformance.json_value import Json, JsonObject, members, text, value_at

_PAIRS: Sequence[tuple[str, str]] = (
    ("request", "response"),
    ("request_body", "response_body"),
    ("requestBody", "responseBody"),
    ("request_json", "response_json"),
    ("raw_request", "raw_response"),
)
"""Names of a request and its response."""
_STATUSES = ("status", "status_code", "response_status", "statusCode", "responseStatus")
_PATHS = ("path", "url", "endpoint", "request_path", "requestPath")
_TIMES = ("started", "timestamp", "time", "created_at", "request_created_at", "startedDateTime", "start_time")
_RECORDED = frozenset({"method", "path", "headers", "json", "text"})
_BODIES = frozenset({"messages", "input", "prompt", "inputs", "sampling_params"})
"""Members of requests. A request with one of them is the body itself, although it has a member `body`."""


def _is_recorded(value: JsonObject) -> bool:
    request = members(value.get("request"))
    is_own = value.get("kind") == "exchange" or DISCOVERY in (value.get("kind"), value.get("scenario"))
    return is_own or (request.keys() <= _RECORDED and ("json" in request or request.keys() >= {"path", "text"}))


EXCHANGES = Shape(name="exchanges", title="exchanges.jsonl of a run", matches=_is_recorded, read=read_recorded)


def _names(value: JsonObject) -> tuple[str, str] | None:
    return next(((sent, received) for sent, received in _PAIRS if sent in value), None)


def _is_pair(value: JsonObject) -> bool:
    return _names(value) is not None


def _read_pair(value: Json, name: str) -> LoggedExchange:
    """Return the exchange of `{"request": …, "response": …}`.

    Raises:
        NotAnExchangeError: A member is missing or invalid, or the API is unknown.
    """
    if not isinstance(value, dict):
        raise NotAnExchangeError("no exchange: not a JSON object")
    sent_name, received_name = _names(value) or _PAIRS[0]
    sent, received = value.get(sent_name), value.get(received_name)
    if sent_name not in value:
        raise NotAnExchangeError(f"no exchange: it has no member `{sent_name}`")
    if received is None or received == "":
        raise NotAnExchangeError("no exchange: it has no response")
    wrapped = value_at(sent, "body")
    is_wrapped = wrapped is not None and not _BODIES & members(sent).keys()
    body = parse_text(wrapped if is_wrapped else sent)
    if not isinstance(body, dict):
        raise NotAnExchangeError("no exchange: its request is not a JSON object")
    received = _parse_wrapper(received)
    status, line_status = _status(received), _status(value)
    is_wire = status is not None or value_at(received, "body") is not None
    path = first_text(members(sent) if is_wrapped else {}, _PATHS) or first_text(value, _PATHS)
    pair = HttpPair(
        request=body,
        response=value_at(received, "body") if is_wire else received,
        path=urlsplit(path).path if "://" in path else path,
        status=status or line_status or 200,
        request_headers=read_headers(value_at(sent, "headers")) if is_wrapped else {},
        response_headers=read_headers(value_at(received, "headers")) if is_wire else {},
        is_wire=is_wire,
        started=next((at for name in _TIMES if (at := read_time(value.get(name)))), None),
    )
    return LoggedExchange(exchange=build_exchange(pair, name=name), provider=text(value.get("provider")))


def _parse_wrapper(received: Json) -> Json:
    """Return a response, or the value of its text if that is an HTTP response in JSON. The text of a body stays a text."""
    if isinstance(received, str) and not received.lstrip().startswith("{"):
        return received  # the text of a stream: to learn that it is no JSON costs more than all else here
    value = parse_text(received)
    return value if isinstance(value, dict) and _status(value) is not None and "body" in value else received


def _status(value: Json) -> int | None:
    return next((status for name in _STATUSES if (status := read_status(value_at(value, name))) is not None), None)


PAIR = Shape(name="openai", title="a request and its response", matches=_is_pair, read=_read_pair)


def _is_har_entry(value: JsonObject) -> bool:
    return isinstance(value_at(value, "request", "headers"), list) and isinstance(
        value_at(value, "response", "content"), dict
    )


def _read_har_entry(value: Json, name: str) -> LoggedExchange:
    request, response = value_at(value, "request"), value_at(value, "response")
    sent = text(value_at(request, "postData", "text"))
    body = parse_text(sent)
    if not sent:
        raise NotAnExchangeError("no exchange: its request has no body, as for a page or an image")
    if not isinstance(body, dict):
        raise NotAnExchangeError("no exchange: its request is not a JSON object")
    content = text(value_at(response, "content", "text"))
    if value_at(response, "content", "encoding") == "base64":
        try:
            content = b64decode(content).decode("utf-8", "replace")
        except Base64Error:
            raise NotAnExchangeError("no exchange: its response is no base64, although the entry says so") from None
    if not content:
        raise NotAnExchangeError("no exchange: it has no response (save the HAR file with content)")
    headers = {**read_headers(value_at(response, "headers"))}
    headers.setdefault("content-type", text(value_at(response, "content", "mimeType")))
    pair = HttpPair(
        request=body,
        response=content,
        path=urlsplit(text(value_at(request, "url"))).path,
        status=read_status(value_at(response, "status")) or 200,
        request_headers=read_headers(value_at(request, "headers")),
        response_headers=headers,
        is_wire=True,
        started=text(value_at(value, "startedDateTime")) or None,
    )
    return LoggedExchange(exchange=build_exchange(pair, name=name))


HAR_ENTRY = Shape(name="har", title="entries of an HTTP archive", matches=_is_har_entry, read=_read_har_entry)

BATCH_INPUT_MEMBERS = frozenset({"custom_id", "url", "body"})
BATCH_OUTPUT_MEMBERS = frozenset({"custom_id", "response"})
BATCH_REQUEST = "batch_request"
"""The member with the input line of an output line, after both were joined."""


def _is_batch_output(value: JsonObject) -> bool:
    return value.keys() >= BATCH_OUTPUT_MEMBERS or value.keys() >= BATCH_INPUT_MEMBERS


def _read_batch_output(value: Json, name: str) -> LoggedExchange:
    asked, response = value_at(value, BATCH_REQUEST), value_at(value, "response")
    if response is None:
        reason = "its request failed" if value_at(value, "error") is not None else "no output line has its `custom_id`"
        raise NotAnExchangeError(f"no exchange: it has no response, {reason}")
    request = value_at(asked, "body")
    pair = HttpPair(
        request=request,
        response=value_at(response, "body"),
        path=text(value_at(asked, "url")),
        status=read_status(value_at(response, "status_code")) or 200,
        is_wire=True,
    )
    scope = Scope.WHOLE if isinstance(request, dict) else Scope.ANSWER
    return LoggedExchange(exchange=build_exchange(pair, name=name), scope=scope)


BATCH = Shape(
    name="batch", title="input and output of OpenAI's Batch API", matches=_is_batch_output, read=_read_batch_output
)
