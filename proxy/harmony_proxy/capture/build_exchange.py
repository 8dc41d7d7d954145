"""Rebuild a recorded exchange for judging: parse headers, decompress bodies, mask credentials.

Masking takes time, so it runs outside the data path only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from harmony_conformance.apis.registry import refine_api
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import text, value_at
from harmony_conformance.transport.content_coding import ContentDecodingError, decode_chunks
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response
from harmony_conformance.transport.redaction import Mask, cookie_secrets, header_secrets, query_secrets, request_secrets
from harmony_proxy.capture.recorder import OVER_MEMORY, End, Headers, RecordedExchange
from harmony_proxy.capture.routes import api_of
from harmony_proxy.capture.sent_response import RecordedResponse

_RETAINED_HEADERS = frozenset(
    {
        *("content-type", "content-encoding", "transfer-encoding", "retry-after", "server", "x-request-id"),
        *("x-prompt-tokens", "x-generated-tokens"),
    }
)
_SENT_HEADERS = frozenset({"x-harmony-verdict", "x-should-retry"})
EVENT_STREAM = "text/event-stream"
STREAM_TYPES = frozenset({EVENT_STREAM, "application/x-ndjson", "application/ndjson", "application/jsonl"})
"""Content types of streams: server-sent events, and lines of JSON."""
_FINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ID_LENGTH = 128
_MOST_SECRETS, _MOST_SECRET_TEXT = 64, 16 * 1024  # of one exchange: the time of masking grows with both
_TOO_MANY_SECRETS = "too many credentials to mask"
_Header = tuple[str, str]  # lower-case name, and value
_FAILURES = {
    End.NO_CONNECTION: FailureKind.NO_CONNECTION,
    End.TIMEOUT: FailureKind.TIMEOUT,
    End.RESET: FailureKind.RESET,
    End.CUT: FailureKind.CUT,
    End.CLIENT_LEFT: FailureKind.CLIENT_LEFT,
}


@dataclass(frozen=True, kw_only=True)
class BuiltExchange:
    """A recorded exchange, prepared for judging."""

    record: RecordedExchange
    end: End
    request_id: str  # `x-request-id` of the server or the client
    exchange: Exchange | None
    unjudged_reason: str  # the reason if there is no exchange
    model: str = ""  # as the request names it
    undecodable_reason: str = ""  # the reason if a body is read undecoded
    is_stream: bool = False  # by the content type of the response
    asked: Request | None = None  # the request, if `before` and `after` were recorded
    before: Response | None = None  # what the server sent, and `after` what the client got, if that was recorded
    after: Response | None = None


def build_exchange(
    kept: RecordedExchange, *, engine: str = "openai", is_masked: bool = True, keeps_undecodable: bool = False
) -> BuiltExchange:
    """Rebuild a recorded exchange. The data path needs no mask: it takes time, and a repair keeps the other text of the server.

    Without a mask, the JSON of the request is not read: neither its id nor the exact name of its API is known then.

    `keeps_undecodable`: read a body undecoded that is not in its content coding. Many servers and clients ignore the header.
    """
    request_headers, response_headers = _decode(kept.request_headers), _decode(kept.response_headers)
    undecodable = list[str]() if keeps_undecodable else None
    request = _request(kept, request_headers, undecodable)
    words = _secrets(kept, request_headers, response_headers, request) if is_masked else ()
    if len(words) > _MOST_SECRETS or sum(map(len, words)) > _MOST_SECRET_TEXT:
        return _without_text(kept)
    mask = _mask_of(words)
    reasons = {check: mask.mask_text(reason) for check, reason in kept.unrepaired_reasons.items()}
    kept = kept._replace(detail=mask.mask_text(kept.detail), unrepaired_reasons=reasons)
    exchange: Exchange | None = None
    end, unjudged = End(kept.end), _reason_not_to_judge(kept)
    if not unjudged:
        try:
            exchange = _exchange(kept, request, response_headers, mask, engine, undecodable)
            if is_masked:
                exchange = replace(exchange, api=refine_api(exchange.api, exchange.request.json))
        except ContentDecodingError as problem:
            unjudged = mask.mask_text(str(problem))
    if end is End.CLIENT_LEFT and kept.is_whole:
        if exchange is not None and _has_final_event(exchange):
            end, exchange = End.COMPLETE, replace(exchange, failure=None)
        elif _is_judged(kept):
            exchange, unjudged = None, "the client left before the answer was complete"
    before, after = _before_and_after(kept, response_headers, mask) if is_masked else (None, None)
    asked = None
    if is_masked and kept.sent is not None and isinstance(request, Request):
        asked = replace(request, headers=_masked(request.headers, mask), body=mask.mask_body(request.body))
    request_id = model = ""
    if is_masked and isinstance(request, Request):
        model = mask.mask_text(text(value_at(request.json, "model")))
    if is_masked and isinstance(request, Request) and (request.json is not None or not request.body.strip()):
        found = dict(response_headers).get("x-request-id") or dict(request_headers).get("x-request-id") or ""
        request_id = mask.mask_text(found)
    return BuiltExchange(
        record=kept,
        end=end,
        request_id="".join(char for char in request_id if char.isprintable())[:_ID_LENGTH],
        exchange=exchange,
        unjudged_reason=unjudged,
        model=model,
        undecodable_reason=next(iter(undecodable or ()), ""),
        is_stream=dict(response_headers).get("content-type", "").partition(";")[0].strip().lower() in STREAM_TYPES,
        asked=asked,
        before=before,
        after=after,
    )


def is_unreadable(x: Exchange) -> bool:
    """Return True if the response is successful, but neither events nor a JSON value of its API."""
    response = x.response
    is_read = x.events is not None or isinstance(x.response_json, dict | list)
    return response is not None and response.is_success and not is_read and bool(response.body.strip())


def _is_judged(record: RecordedExchange) -> bool:
    return record.method == "POST" and bool(api_of(record.path))


_REFUSALS = {
    End.MALFORMED: "the request is malformed: ",
    End.REFUSED: "the proxy did not pass all of the request on: ",
}
_UNJUDGED_ENDS = {
    End.SHUT_DOWN: "the proxy was stopped before the answer was complete",
    End.EARLY: "the server answered, or broke off, before it had all of the request",
    End.BLOCKED: "blocked before the answer was complete",
}


def _reason_not_to_judge(record: RecordedExchange) -> str:
    end = End(record.end)
    if end in _REFUSALS:
        return _REFUSALS[end] + record.detail
    if not _is_judged(record):
        return "not a request of a supported API"
    if not record.is_whole and record.limit == OVER_MEMORY:
        return "the memory limit of all exchanges was reached"
    if not record.is_whole:
        return f"larger than the limit of {record.limit} bytes for an exchange"
    return _UNJUDGED_ENDS.get(end, "")


def _has_final_event(x: Exchange) -> bool:
    """Return True if the last event of the API came. Clients may leave after it: the official one on `[DONE]`."""
    if x.events is None or not x.events.events:
        return False
    last = x.events.events[-1]
    return last.is_done or value_at(last.value, "done") is True or text(value_at(last.value, "type")) in _FINAL_EVENTS


def _request(
    record: RecordedExchange, headers: Sequence[_Header], undecodable: list[str] | None
) -> Request | ContentDecodingError:
    """Return the request as sent; or the reason why its body cannot be read."""
    if not record.is_whole:
        return ContentDecodingError("the body was not retained")
    try:
        compressed = (Chunk(arrival_time=0.0, data=record.request_body),)
        chunks = _decoded(compressed, _encoding(headers), record.limit, undecodable)
    except ContentDecodingError as problem:
        return problem
    body = b"".join(chunk.data for chunk in chunks)
    return Request(method=record.method, path=record.path, headers=_retained(headers), body=body)


def _secrets(
    record: RecordedExchange,
    request_headers: Sequence[_Header],
    response_headers: Sequence[_Header],
    request: Request | ContentDecodingError,
) -> tuple[str, ...]:
    joined: dict[str, str] = {}
    for name, value in request_headers:
        joined[name] = f"{joined[name]} {value}" if name in joined else value
    of_body = request_secrets(request.json) if isinstance(request, Request) else ()
    words = (*header_secrets(None, joined), *query_secrets(record.query), *cookie_secrets(response_headers), *of_body)
    return tuple(dict.fromkeys(words))


def _without_text(record: RecordedExchange) -> BuiltExchange:
    """Return an exchange that is not judged, without any text that may need a mask."""
    reasons = dict.fromkeys(record.unrepaired_reasons, _TOO_MANY_SECRETS)
    return BuiltExchange(
        record=record._replace(detail="", unrepaired_reasons=reasons),
        end=End(record.end),
        request_id="",
        exchange=None,
        unjudged_reason=_TOO_MANY_SECRETS,
    )


def _exchange(  # noqa: PLR0913, PLR0917 - the recorded exchange and how to read it
    record: RecordedExchange,
    sent: Request | ContentDecodingError,
    response_headers: Sequence[_Header],
    mask: Mask,
    engine: str,
    undecodable: list[str] | None,
) -> Exchange:
    if isinstance(sent, ContentDecodingError):
        raise sent
    end = End(record.end)
    failure = Failure(kind=_FAILURES[end], detail=record.detail) if end in _FAILURES else None
    headers, body = _masked(sent.headers, mask), mask.mask_body(sent.body)
    is_changed = (headers, body) != (sent.headers, sent.body)
    request = replace(sent, headers=headers, body=body) if is_changed else sent  # which has its JSON parsed
    response: Response | None = None
    if record.status is not None:
        parts = _cut(record.response_body, record.times, record.sizes)
        chunks = _decoded(tuple(parts), _encoding(response_headers), record.limit, undecodable)
        headers = _masked(_retained(response_headers), mask)
        response = Response(status=record.status, headers=headers, chunks=mask.mask_chunks(chunks))
    return Exchange(
        id=record.id,
        request=request,
        response=response,
        failure=failure,
        api=api_of(record.path),
        engine=engine,
    )


def _before_and_after(
    record: RecordedExchange, headers: Sequence[_Header], mask: Mask
) -> tuple[Response | None, Response | None]:
    """Return what the server sent, and what the client got instead. None for a response that was not retained or not recorded."""
    sent = record.sent
    if sent is None:
        return None, None
    came: RecordedResponse | None = None
    if record.is_whole and record.status is not None:
        came = RecordedResponse(
            record.status, record.response_headers, record.response_body, record.times, record.sizes
        )
    return _response(came, headers, mask, record.limit), _response(sent, _decode(sent.headers), mask, record.limit)


def _response(one: RecordedResponse | None, headers: Sequence[_Header], mask: Mask, limit: int) -> Response | None:
    if one is None or one.body is None:
        return None
    try:
        chunks = decode_chunks(_cut(one.body, one.times, one.sizes), _encoding(headers), limit=limit)
    except ContentDecodingError:
        return None
    shown = {name: value for name, value in headers if name in _RETAINED_HEADERS or name in _SENT_HEADERS}
    return Response(status=one.status, headers=_masked(shown, mask), chunks=mask.mask_chunks(chunks))


def _decoded(
    chunks: tuple[Chunk, ...], content_encoding: str, limit: int, undecodable: list[str] | None
) -> tuple[Chunk, ...]:
    """Return the chunks decoded. With a list, chunks that cannot be decoded are returned as they are, and the reason is added to it."""
    try:
        return decode_chunks(chunks, content_encoding, limit=limit)
    except ContentDecodingError as problem:
        if undecodable is None:
            raise
        undecodable.append(str(problem))
        return chunks


def _cut(body: bytes, times: Sequence[float], sizes: Sequence[int]) -> Iterator[Chunk]:
    start = 0
    for arrival, size in zip(times, sizes, strict=True):
        yield Chunk(arrival_time=arrival, data=body[start : start + size])
        start += size


def _encoding(headers: Sequence[_Header]) -> str:
    return ", ".join(value for name, value in headers if name == "content-encoding")


def _decode(headers: Headers) -> list[_Header]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def _retained(headers: Sequence[_Header]) -> dict[str, str]:
    return {name: value for name, value in headers if name in _RETAINED_HEADERS}


def _masked(headers: Mapping[str, str], mask: Mask) -> dict[str, str]:
    return {name: mask.mask_text(value) for name, value in headers.items()}


@lru_cache(maxsize=64)  # clients send the same credentials again
def _mask_of(words: tuple[str, ...]) -> Mask:
    return Mask(words)
