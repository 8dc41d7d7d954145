"""What was kept of an exchange, put together for judging: headers read, bodies unpacked, credentials masked.

This is work, and done outside of the data path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import at, text
from harmony_conformance.transport.messages import Chunk, Failure, FailureKind, Request, Response
from harmony_conformance.transport.redaction import Mask, cookie_secrets, query_secrets, request_secrets, secrets
from harmony_proxy.capture.decoding import BodyDecodingError, decode_chunks
from harmony_proxy.capture.recorder import End, Headers, RecordedExchange
from harmony_proxy.capture.routes import api_as_asked, api_of

_KEPT_HEADERS = frozenset(
    {
        *("content-type", "content-encoding", "transfer-encoding", "retry-after", "server", "x-request-id"),
        *("x-prompt-tokens", "x-generated-tokens"),
    }
)
_LAST_EVENTS = frozenset({"response.completed", "response.incomplete", "response.failed"})
_ID_LENGTH = 128
_Header = tuple[str, str]
"""Name, in lower case, and value."""
_FAILURES = {
    End.NO_CONNECTION: FailureKind.NO_CONNECTION,
    End.TIMEOUT: FailureKind.TIMEOUT,
    End.RESET: FailureKind.RESET,
    End.CUT: FailureKind.CUT,
    End.CLIENT_LEFT: FailureKind.CLIENT_LEFT,
}


@dataclass(frozen=True, kw_only=True)
class BuiltExchange:
    """What is known of an exchange that went by. `unjudged` says why `exchange` is None. `request_id` is the one that client or server gave it."""

    kept: RecordedExchange
    end: End
    request_id: str
    exchange: Exchange | None
    unjudged: str


def build_exchange(kept: RecordedExchange, *, engine: str = "openai") -> BuiltExchange:
    """The exchange put together."""
    asked, answered = _read(kept.request_headers), _read(kept.response_headers)
    held = (*secrets(None, _joined(asked)), *query_secrets(kept.query), *cookie_secrets(answered))
    exchange: Exchange | None = None
    end, unjudged = End(kept.end), _why_not(kept)
    if not unjudged:
        try:
            exchange = _exchange(kept, asked, answered, held, engine)
        except BodyDecodingError as problem:
            unjudged = str(problem)
    if end is End.CLIENT_LEFT and kept.is_whole:
        if exchange is not None and _was_told_to_its_end(exchange):
            end, exchange = End.COMPLETE, replace(exchange, failure=None)
        elif _is_judged(kept):
            exchange, unjudged = None, "the client left before the answer was complete"
    if exchange is None:
        names: tuple[Mapping[str, str], Mapping[str, str]] = dict(asked), dict(answered)
    else:  # which knows all that is secret
        names = exchange.request.headers, exchange.response.headers if exchange.response is not None else {}
    told = names[1].get("x-request-id") or names[0].get("x-request-id") or ""
    return BuiltExchange(
        kept=kept,
        end=end,
        request_id="".join(char for char in _told(told, held) if char.isprintable())[:_ID_LENGTH],
        exchange=exchange,
        unjudged=unjudged,
    )


def is_unread(x: Exchange) -> bool:
    """Whether it was answered with something that nobody can read as an answer of its API."""
    response = x.response
    is_read = x.events is not None or isinstance(x.response_json, dict | list)
    return response is not None and response.is_success and not is_read and bool(response.body.strip())


def _is_judged(kept: RecordedExchange) -> bool:
    return kept.method == "POST" and bool(api_of(kept.path))


def _why_not(kept: RecordedExchange) -> str:
    if kept.end == End.MALFORMED:
        return f"the request is malformed: {kept.detail}"
    if kept.end == End.REFUSED:
        return f"the proxy did not pass all of the request on: {kept.detail}"
    if not _is_judged(kept):
        return "not a request of an API that is judged"
    if not kept.is_whole:
        return f"larger than the {kept.limit} bytes that are kept of an exchange"
    if kept.end == End.SHUT_DOWN:
        return "the proxy was stopped before the answer was complete"
    if kept.end == End.EARLY:
        return "the server answered, or broke off, before it had all of the request"
    if kept.end == End.BLOCKED:
        return "it was blocked before the answer was complete"
    return ""


def _was_told_to_its_end(x: Exchange) -> bool:
    """Whether the last event that an API has was there. Clients leave with it (the official one on `[DONE]`), before the end of the body."""
    if x.events is None or not x.events.events:
        return False
    last = x.events.events[-1]
    return last.is_done or at(last.value, "done") is True or text(at(last.value, "type")) in _LAST_EVENTS


def _exchange(
    kept: RecordedExchange, asked: Sequence[_Header], answered: Sequence[_Header], held: tuple[str, ...], engine: str
) -> Exchange:
    end = End(kept.end)
    failure = Failure(kind=_FAILURES[end], detail=kept.detail) if end in _FAILURES else None
    packed = (Chunk(at=0.0, data=kept.request_body),)
    unpacked = decode_chunks(packed, _encoding(asked), limit=kept.limit)
    request = Request(
        method=kept.method,
        path=kept.path,
        headers=_some(asked, held),
        body=b"".join(chunk.data for chunk in unpacked),
    )
    if further := request_secrets(request.json):
        held = (*held, *further)
        body = b"".join(chunk.data for chunk in Mask(further).chunks(unpacked))
        request = replace(request, headers=_some(asked, held), body=body)
    response: Response | None = None
    if kept.status is not None:
        unpacked = decode_chunks(_chunks(kept), _encoding(answered), limit=kept.limit)
        response = Response(status=kept.status, headers=_some(answered, held), chunks=Mask(held).chunks(unpacked))
    return Exchange(
        id=kept.id,
        request=request,
        response=response,
        failure=failure,
        api=api_as_asked(api_of(kept.path), request.json),
        engine=engine,
    )


def _chunks(kept: RecordedExchange) -> Iterator[Chunk]:
    start = 0
    for came, size in zip(kept.times, kept.sizes, strict=True):
        yield Chunk(at=came, data=kept.response_body[start : start + size])
        start += size


def _encoding(headers: Sequence[_Header]) -> str:
    return ", ".join([value for name, value in headers if name == "content-encoding"])


def _read(headers: Headers) -> list[_Header]:
    return [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]


def _some(headers: Sequence[_Header], held: tuple[str, ...]) -> dict[str, str]:
    return {name: _told(value, held) for name, value in headers if name in _KEPT_HEADERS}


def _told(value: str, held: tuple[str, ...]) -> str:
    """The value of a header without secrets. Hardly one has any: that is found out first."""
    return Mask(held).text(value) if any(word in value for word in held) else value


def _joined(headers: Sequence[_Header]) -> dict[str, str]:
    """Headers by name; the values of one that is sent more than once stand side by side."""
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]} {value}" if name in joined else value
    return joined
