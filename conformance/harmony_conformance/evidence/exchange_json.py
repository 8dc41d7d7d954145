"""Write and read exchanges as JSON: the lines of `exchanges.jsonl` and the files under `golden/exchanges`.

A recorded response is exact: `chunks` lists pairs of seconds and text. Bytes that are not UTF-8 become surrogate escapes.
Hand-written files may use shorter forms, which are never written: `json` or `text` for a response body, `events` for a stream.
"""

from __future__ import annotations

from collections.abc import Mapping

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.evidence.expected_output import read_expectation, write_expectation
from harmony_conformance.evidence.levels import AnsweredBy, PromptTokenCount, RenderedPrompt, Validity
from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    JsonObject,
    dumps,
    integer,
    integers,
    items,
    loads,
    members,
    text,
    value_at,
)
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response
from harmony_ref import encode, encode_with_special_tokens, tokens


class InvalidRecordError(ValueError):
    """A JSON value that is not a recorded exchange."""


class NotAnExchangeError(InvalidRecordError):
    """A JSON value that lacks a part of an exchange. The message contains nothing of the value, so it may be shown unredacted."""


def write_exchange(x: Exchange) -> JsonObject:
    """Return the JSON form of an exchange. Members with default values are omitted."""
    line: JsonObject = {
        "kind": "exchange",
        "id": x.id,
        "scenario": x.scenario,
        "step": x.step,
        "api": x.api,
        "try": x.attempt,
        "engine": x.engine,
        "validity": x.validity.value,
        "request": write_request(x.request),
    }
    failure, rendered, counted = x.failure, x.rendered_prompt, x.counted_prompt
    optional: JsonObject = {
        "started": x.started,
        "response": write_response(x.response) if x.response is not None else None,
        "failure": {"kind": failure.kind.value, "detail": failure.detail} if failure is not None else None,
        "script": list(x.script) if x.script is not None else None,
        "expected": write_expectation(x.expected) if x.expected is not None else None,
        "unplayed": x.script_not_played or None,
        "rendered": {"source": rendered.source, "ids": list(rendered.ids)} if rendered is not None else None,
        "counted": {"source": counted.source, "tokens": counted.tokens} if counted is not None else None,
        "rebuilt": x.from_log or None,
        "together": x.concurrency,
        "waited": list(x.retry_waits) or None,
        "websocket": x.websocket,
        "answered_by": x.answered_by.value if x.answered_by is not AnsweredBy.API else None,
    }
    return line | {name: value for name, value in optional.items() if value is not None}


def exchange_line(x: Exchange) -> bytes:
    """Return the exchange as a line of `exchanges.jsonl`, with its line end."""
    return (dumps(write_exchange(x)) + "\n").encode("utf-8", "backslashreplace")


def read_exchange(line: Json, *, name: str = "") -> Exchange:
    """Read an exchange from its JSON form. `name` is the id if the value has none.

    Raises:
        InvalidRecordError: The value is not a recorded exchange.
    """
    if not isinstance(value_at(line, "request"), dict):
        raise NotAnExchangeError("no exchange: it has no member `request` that is an object")
    script = value_at(line, "script")
    expected = value_at(line, "expected")
    rendered = value_at(line, "rendered")
    count = integer(value_at(line, "counted", "tokens"))
    validity, answered_by = text(value_at(line, "validity")), text(value_at(line, "answered_by"))
    return Exchange(
        id=text(value_at(line, "id")) or name,
        scenario=text(value_at(line, "scenario")) or "traffic",
        step=text(value_at(line, "step")),
        api=text(value_at(line, "api")) or "chat",
        attempt=integer(value_at(line, "try")) or 0,
        engine=text(value_at(line, "engine")) or "openai",
        started=text(value_at(line, "started")) or None,
        validity=Validity(validity) if validity in set(Validity) else Validity.UNKNOWN,
        request=_read_request(value_at(line, "request")),
        response=_read_response(value_at(line, "response")) if isinstance(value_at(line, "response"), dict) else None,
        failure=_read_failure(value_at(line, "failure")),
        script=read_script(script) if script is not None else None,
        expected=read_expectation(expected) if expected is not None else None,
        script_not_played=text(value_at(line, "unplayed")),
        rendered_prompt=RenderedPrompt(source=text(value_at(rendered, "source")), ids=_ids(value_at(rendered, "ids")))
        if rendered is not None
        else None,
        counted_prompt=PromptTokenCount(source=text(value_at(line, "counted", "source")), tokens=count)
        if count is not None
        else None,
        retry_waits=tuple(_seconds(wait) for wait in items(value_at(line, "waited")) if isinstance(wait, int | float)),
        concurrency=integer(value_at(line, "together")),
        websocket=integer(value_at(line, "websocket")),
        from_log=value_at(line, "rebuilt") is True,
        answered_by=AnsweredBy(answered_by) if answered_by in set(AnsweredBy) else AnsweredBy.API,
    )


def read_script(script: Json) -> tuple[int, ...]:
    """Return the token ids of a script: a Harmony text whose markers become special tokens, or a list of pieces.

    A piece is a token id, such a text, or `{"ordinary": text}`, whose markers become ordinary tokens.

    Raises:
        InvalidRecordError: The value is neither.
    """
    if isinstance(script, str):
        return tuple(encode_with_special_tokens(script))
    if isinstance(script, list):
        return integers(script) or tuple(token for piece in script for token in _piece(piece))
    raise InvalidRecordError("invalid script: expected a text, or a list of token ids and texts")


def _piece(piece: Json) -> tuple[int, ...]:
    if isinstance(piece, str):
        return tuple(encode_with_special_tokens(piece))
    if (token := integer(piece)) is not None:
        return (token,)
    ordinary = value_at(piece, "ordinary")
    if isinstance(ordinary, str):
        return tuple(encode(ordinary))
    raise InvalidRecordError(
        f'invalid piece of a script: expected a token id, a text, or {{"ordinary": text}}, got {dumps(piece)}'
    )


def write_request(request: Request) -> JsonObject:
    """Return the JSON form of a request. The body is a JSON value if that reproduces its bytes, else a text."""
    record: JsonObject = {"method": request.method, "path": request.path, "headers": dict(request.headers)}
    body = request.body.decode("utf-8", "surrogateescape")
    try:
        value = loads(body)
        is_reproduced = dumps(value).encode("utf-8", "surrogatepass") == request.body
    except InvalidJsonError:
        return {**record, "text": body}
    return {**record, "json": value} if is_reproduced else {**record, "text": body}


def _read_request(value: Json) -> Request:
    return Request(
        method=text(value_at(value, "method")) or "POST",
        path=text(value_at(value, "path")) or "/v1/chat/completions",
        headers=_headers(value_at(value, "headers")),
        body=_body(value) or b"",
    )


def write_response(response: Response) -> JsonObject:
    """Return the JSON form of a response."""
    chunks: list[Json] = [
        [round(chunk.arrival_time, 6), chunk.data.decode("utf-8", "surrogateescape")] for chunk in response.chunks
    ]
    return {"status": response.status, "headers": dict(response.headers), "chunks": chunks}


def _read_response(value: Json) -> Response:
    headers = dict(_headers(value_at(value, "headers")))
    if isinstance(events := value_at(value, "events"), list):
        headers.setdefault("content-type", "text/event-stream")
        texts = (_encode(event) if isinstance(event, str) else _json_bytes(event) for event in events)
        data = (b"data: " + one.replace(b"\n", b"\ndata: ") + b"\n\n" for one in texts)
        chunks = tuple(Chunk(arrival_time=index / 100, data=event) for index, event in enumerate(data))
    elif isinstance(value_at(value, "chunks"), list):
        chunks = tuple(
            Chunk(
                arrival_time=_seconds(value_at(chunk, 0)),
                data=_encode(text(value_at(chunk, 1))),
            )
            for chunk in items(value_at(value, "chunks"))
        )
    else:
        body = _body(value)
        headers.setdefault("content-type", "application/json")
        chunks = (Chunk(arrival_time=0.0, data=body),) if body is not None else ()
    return Response(status=integer(value_at(value, "status")) or 200, headers=headers, chunks=chunks)


def _body(value: Json) -> bytes | None:
    record = members(value)
    if "json" in record:
        return _json_bytes(record["json"])
    return _encode(text(record["text"])) if "text" in record else None


def _json_bytes(value: Json) -> bytes:
    return dumps(value).encode("utf-8", "surrogatepass")


def _encode(recorded: str) -> bytes:
    """Return the bytes of a recorded text.

    Raises:
        InvalidRecordError: It has a surrogate that is the escape of no byte.
    """
    try:
        return recorded.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as problem:
        found = f"U+{ord(recorded[problem.start]):04X}"
        raise InvalidRecordError(f"invalid text: expected no surrogates but U+DC80 to U+DCFF, got {found}") from None


def _headers(value: Json) -> Mapping[str, str]:
    return {name.lower(): text(content) for name, content in members(value).items()}


def _read_failure(value: Json) -> Failure | None:
    kind = text(value_at(value, "kind"))
    if not kind:
        return None
    if kind not in set(FailureKind):
        raise InvalidRecordError(f"invalid failure: expected one of {', '.join(FailureKind)}, got {kind!r}")
    return Failure(kind=FailureKind(kind), detail=text(value_at(value, "detail")))


def _ids(value: Json) -> tuple[int, ...]:
    ids = integers(items(value))
    if ids is None or (ids and not (tokens.is_known(min(ids)) and tokens.is_known(max(ids)))):
        raise InvalidRecordError("invalid token ids: expected whole numbers of the Harmony vocabulary, 0 to 201088")
    return ids


def _seconds(value: Json) -> float:
    try:
        return float(value) if isinstance(value, int | float) else 0.0
    except OverflowError:
        raise InvalidRecordError("invalid time: expected seconds, got a number that is too large") from None


DISCOVERY = "discovery"
