"""One exchange as its bytes go by, put together for judging. Sans-IO: feed me, I never wait, I never raise, I change nothing.

Memory is bounded: past the limit the bytes are counted and no longer kept, and the exchange is said to be too large to judge. Credentials are never
kept: of the headers only a few are, by name, and a key that a server echoes is masked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from harmony_conformance.exchange import Exchange
from harmony_conformance.secret import Mask, secrets
from harmony_conformance.wire import Chunk, Failure, FailureKind, Request, Response
from harmony_proxy.decoding import NotDecoded, decode_chunks

LIMIT = 16 * 1024 * 1024
"""The most that is kept of one exchange, in bytes; request and response together, with what each chunk costs."""

CHAT = "/chat/completions"
_CHUNK_COST = 256
_KEPT_HEADERS = frozenset(
    {"content-type", "content-encoding", "transfer-encoding", "retry-after", "server", "x-request-id"}
)
_ID_LENGTH = 128

Headers = Iterable[tuple[str, str]]


class End(StrEnum):
    """How an exchange ended, as it is logged."""

    COMPLETE = "complete"
    CLIENT_LEFT = "client_left"
    NO_CONNECTION = "no_connection"
    RESET = "reset"
    CUT = "cut"
    SHUT_DOWN = "shut_down"


_FAILURES = {
    End.NO_CONNECTION: FailureKind.NO_CONNECTION,
    End.RESET: FailureKind.RESET,
    End.CUT: FailureKind.CUT,
    End.CLIENT_LEFT: FailureKind.CLIENT_LEFT,
}


@dataclass(frozen=True, kw_only=True)
class Passage:
    """What is known of an exchange that went by. Times are seconds after the request was sent; `unjudged` says why `exchange` is None."""

    method: str
    path: str
    request_id: str
    request_bytes: int
    status: int | None
    response_bytes: int
    chunks: int
    first_byte: float | None
    seconds: float
    end: End
    exchange: Exchange | None
    unjudged: str


class Recorder:
    """State: what has been kept, how much has gone by, and how it ended."""

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._method, self._path = "", ""
        self._request_headers: dict[str, str] = {}
        self._mask = Mask(())
        self._body: list[bytes] = []
        self._request_bytes = 0
        self._status: int | None = None
        self._headers: dict[str, str] = {}
        self._chunks: list[Chunk] = []
        self._response_bytes = 0
        self._chunk_count = 0
        self._first_byte: float | None = None
        self._cost = 0
        self._end: End | None = None
        self._detail = ""
        self._seconds = 0.0

    @property
    def cost(self) -> int:
        """About how many bytes of memory are held."""
        return self._cost

    def request_head(self, method: str, path: str, headers: Headers) -> None:
        """The request line and headers. A query is not kept: keys travel in it."""
        named = [(name.lower(), value) for name, value in headers]
        self._method, self._path = method, path.partition("?")[0]
        self._request_headers = _kept(named)
        self._mask = Mask(secrets(None, _joined(named)))

    def request_body(self, data: bytes) -> None:
        """More of the request's body."""
        self._request_bytes += len(data)
        if self._has_room(len(data)):
            self._body.append(data)

    def response_head(self, status: int, headers: Headers) -> None:
        """The status and headers of the response."""
        self._status = status
        self._headers = _kept((name.lower(), value) for name, value in headers)

    def feed(self, data: bytes, at: float) -> None:
        """More of the response's body, `at` seconds after the request was sent."""
        if not data:
            return
        self._response_bytes += len(data)
        self._chunk_count += 1
        if self._first_byte is None:
            self._first_byte = at
        if self._has_room(len(data) + _CHUNK_COST):
            self._chunks.append(Chunk(at=at, data=data))

    def end(self, at: float) -> None:
        """The response is complete."""
        self._finish(End.COMPLETE, "", at)

    def abort(self, end: End, detail: str, at: float) -> None:
        """The exchange broke off. Only the first end counts."""
        self._finish(end, detail, at)

    def passage(self, name: str) -> Passage:
        """The exchange put together. This is work: it belongs outside of the data path."""
        exchange: Exchange | None = None
        unjudged = self._why_not()
        if not unjudged:
            try:
                exchange = self._exchange(name)
            except NotDecoded as problem:
                unjudged = str(problem)
        return Passage(
            method=self._method,
            path=self._path,
            request_id=self._request_id(),
            request_bytes=self._request_bytes,
            status=self._status,
            response_bytes=self._response_bytes,
            chunks=self._chunk_count,
            first_byte=self._first_byte,
            seconds=self._seconds,
            end=self._end or End.SHUT_DOWN,
            exchange=exchange,
            unjudged=unjudged,
        )

    def _finish(self, end: End, detail: str, at: float) -> None:
        if self._end is None:
            self._end, self._detail, self._seconds = end, detail, at
        if self._cost > self._limit:
            self._body.clear()
            self._chunks.clear()

    def _has_room(self, cost: int) -> bool:
        self._cost += cost
        if self._cost > self._limit:
            self._body.clear()
            self._chunks.clear()
        return self._cost <= self._limit

    def _why_not(self) -> str:
        if self._method != "POST" or not self._path.endswith(CHAT):
            return "not a request of Chat Completions"
        if self._cost > self._limit:
            return f"larger than the {self._limit} bytes that are kept of an exchange"
        if self._end in (None, End.SHUT_DOWN):
            return "the proxy was stopped before the answer was complete"
        if self._end is End.CLIENT_LEFT:
            return "the client left before the answer was complete"
        return ""

    def _exchange(self, name: str) -> Exchange:
        end = self._end or End.SHUT_DOWN
        body = _decoded_request(b"".join(self._body), self._request_headers, self._limit)
        failure = Failure(kind=_FAILURES[end], detail=self._detail) if end in _FAILURES else None
        response: Response | None = None
        if self._status is not None:
            chunks = decode_chunks(self._chunks, self._headers.get("content-encoding", ""), limit=self._limit)
            response = Response(status=self._status, headers=self._headers, chunks=self._mask.chunks(chunks))
        return Exchange(
            id=name,
            request=Request(method=self._method, path=self._path, headers=self._request_headers, body=body),
            response=response,
            failure=failure,
        )

    def _request_id(self) -> str:
        told = self._headers.get("x-request-id") or self._request_headers.get("x-request-id") or ""
        return "".join(char for char in told if char.isprintable())[:_ID_LENGTH]


def _kept(headers: Headers) -> dict[str, str]:
    return {name: value for name, value in headers if name in _KEPT_HEADERS}


def _joined(headers: Headers) -> dict[str, str]:
    """Headers by name; the values of one that is sent more than once stand side by side."""
    joined: dict[str, str] = {}
    for name, value in headers:
        joined[name] = f"{joined[name]} {value}" if name in joined else value
    return joined


def _decoded_request(body: bytes, headers: dict[str, str], limit: int) -> bytes:
    packed = (Chunk(at=0.0, data=body),)
    return b"".join(chunk.data for chunk in decode_chunks(packed, headers.get("content-encoding", ""), limit=limit))
