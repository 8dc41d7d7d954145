"""Rebuild a recorded exchange for judging: parse headers, decompress bodies, mask credentials.

This takes time, so it runs outside the data path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import text, value_at
from harmony_conformance.transport.content_coding import ContentDecodingError, decode_chunks
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response
from harmony_conformance.transport.redaction import Mask, cookie_secrets, header_secrets, query_secrets, request_secrets
from harmony_proxy.capture.recorder import OVER_MEMORY, End, Headers, RecordedExchange
from harmony_proxy.capture.routes import api_of, refine_api

_RETAINED_HEADERS = frozenset(
    {
        *("content-type", "content-encoding", "transfer-encoding", "retry-after", "server", "x-request-id"),
        *("x-prompt-tokens", "x-generated-tokens"),
    }
)
_FINAL_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ID_LENGTH = 128
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


def build_exchange(kept: RecordedExchange, *, engine: str = "openai") -> BuiltExchange:
    """Rebuild a recorded exchange."""
    request_headers, response_headers = _decode(kept.request_headers), _decode(kept.response_headers)
    joined: dict[str, str] = {}
    for name, value in request_headers:
        joined[name] = f"{joined[name]} {value}" if name in joined else value
    words = (*header_secrets(None, joined), *query_secrets(kept.query), *cookie_secrets(response_headers))
    exchange: Exchange | None = None
    end, unjudged = End(kept.end), _reason_not_to_judge(kept)
    if not unjudged:
        try:
            exchange = _exchange(kept, request_headers, response_headers, words, engine)
        except ContentDecodingError as problem:
            unjudged = str(problem)
    if end is End.CLIENT_LEFT and kept.is_whole:
        if exchange is not None and _has_final_event(exchange):
            end, exchange = End.COMPLETE, replace(exchange, failure=None)
        elif _is_judged(kept):
            exchange, unjudged = None, "the client left before the answer was complete"
    if exchange is None:
        headers: tuple[Mapping[str, str], Mapping[str, str]] = dict(request_headers), dict(response_headers)
    else:  # in these, the secrets of the request's body are masked too
        headers = exchange.request.headers, exchange.response.headers if exchange.response is not None else {}
    request_id = _mask(headers[1].get("x-request-id") or headers[0].get("x-request-id") or "", words)
    return BuiltExchange(
        record=kept,
        end=end,
        request_id="".join(char for char in request_id if char.isprintable())[:_ID_LENGTH],
        exchange=exchange,
        unjudged_reason=unjudged,
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


def _exchange(
    record: RecordedExchange,
    request_headers: Sequence[_Header],
    response_headers: Sequence[_Header],
    words: tuple[str, ...],
    engine: str,
) -> Exchange:
    end = End(record.end)
    failure = Failure(kind=_FAILURES[end], detail=record.detail) if end in _FAILURES else None
    compressed = (Chunk(arrival_time=0.0, data=record.request_body),)
    chunks = decode_chunks(compressed, _encoding(request_headers), limit=record.limit)
    headers, body = _retained(request_headers, words), b"".join(chunk.data for chunk in chunks)
    request = Request(method=record.method, path=record.path, headers=headers, body=body)
    words = (*words, *request_secrets(request.json))
    mask = _mask_of(words)
    if (masked := mask.mask_body(body)) != body:
        request = replace(request, headers=_retained(request_headers, words), body=masked)
    response: Response | None = None
    if record.status is not None:
        chunks = decode_chunks(_chunks(record), _encoding(response_headers), limit=record.limit)
        headers = _retained(response_headers, words)
        response = Response(status=record.status, headers=headers, chunks=mask.mask_chunks(chunks))
    return Exchange(
        id=record.id,
        request=request,
        response=response,
        failure=failure,
        api=refine_api(api_of(record.path), request.json),
        engine=engine,
    )


def _chunks(record: RecordedExchange) -> Iterator[Chunk]:
    start = 0
    for arrival, size in zip(record.times, record.sizes, strict=True):
        yield Chunk(arrival_time=arrival, data=record.response_body[start : start + size])
        start += size


def _encoding(headers: Sequence[_Header]) -> str:
    return ", ".join(value for name, value in headers if name == "content-encoding")


def _decode(headers: Headers) -> list[_Header]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def _retained(headers: Sequence[_Header], words: tuple[str, ...]) -> dict[str, str]:
    return {name: _mask(value, words) for name, value in headers if name in _RETAINED_HEADERS}


def _mask(value: str, words: tuple[str, ...]) -> str:
    """Mask secrets in the value of a header."""
    return _mask_of(words).mask_text(value)


@lru_cache(maxsize=64)  # clients send the same credentials again
def _mask_of(words: tuple[str, ...]) -> Mask:
    return Mask(words)
