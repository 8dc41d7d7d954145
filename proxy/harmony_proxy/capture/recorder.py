"""Recorder of one exchange. Sans-IO: it never waits, raises, changes or parses anything; `build_exchange` does that later.

Memory is bounded: past the limit, bytes are only counted, and the exchange is reported as too large to judge.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import astuple, dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from harmony_proxy.capture.memory_budget import FREE_BYTES, MemoryBudget
from harmony_proxy.capture.sent_response import PackedResponse, RecordedResponse, SentResponse, decode_response

LIMIT = 16 * 1024 * 1024
"""Memory limit for one exchange, in bytes: request and response, with the overhead of each chunk."""

OVER_MEMORY = 0
"""The limit of an exchange that is not retained because the memory of all exchanges is used up."""

CHUNK_COST = 128
HEADER_COST = 2048

Headers = Iterable[tuple[bytes, bytes]]
"""Names and values as on the wire."""


class End(StrEnum):
    """The end of an exchange, as logged."""

    COMPLETE = "complete"
    CLIENT_LEFT = "client_left"
    NO_CONNECTION = "no_connection"
    TIMEOUT = "timeout"
    RESET = "reset"
    CUT = "cut"
    BLOCKED = "blocked"
    EARLY = "early"
    REFUSED = "refused"
    SHUT_DOWN = "shut_down"
    MALFORMED = "malformed"


ENDS = tuple(End)
_SHUT_DOWN = ENDS.index(End.SHUT_DOWN)
_NO_SERVER_FAULT = frozenset({End.CLIENT_LEFT, End.BLOCKED, End.REFUSED, End.SHUT_DOWN, End.MALFORMED})


def early_end(end: End, detail: str) -> tuple[End, str]:
    """Return the end of an exchange whose server did not get the whole request: not evidence about the server."""
    return (end, detail) if end in _NO_SERVER_FAULT else (End.EARLY, f"{end.value} {detail}".rstrip())


class RecordedExchange(NamedTuple):
    """A finished exchange as plain values. Times are seconds after the request was sent."""

    id: str
    started: float  # Unix time
    method: str
    path: str
    query: str  # its credentials, and those of the headers, are never written, and masked where the server echoes them
    request_headers: tuple[tuple[bytes, bytes], ...]
    request_body: bytes
    request_bytes: int
    status: int | None
    response_headers: tuple[tuple[bytes, bytes], ...]
    response_body: bytes
    times: list[float]
    sizes: list[int]
    response_bytes: int
    chunks: int
    first_byte: float | None
    seconds: float
    end: str
    detail: str
    is_whole: bool  # the bodies are retained
    limit: int
    repair_counts: dict[str, int]
    blocked_checks: tuple[str, ...]
    unrepaired_reasons: dict[str, str]
    added_seconds: float
    sent: RecordedResponse | None = None  # what the client got instead, if that was recorded
    client_status: int | None = None  # if the client got another status


OversizeTotals = tuple[int, int, int, float | None]
"""Totals of an exchange that was too large: bytes of request and response, chunks, time of the first byte."""

EndDetails = tuple[
    str,
    OversizeTotals | None,
    dict[str, int],
    tuple[str, ...],
    dict[str, str],
    float,
    PackedResponse | None,
    int | None,
]
"""Detail of the end, totals, and actions: repaired, blocked, left, seconds added, response and status that were sent instead."""

_Request = tuple[str, str, Headers, list[bytes]]  # method, path, headers and body
_Response = tuple[int | None, Headers, list[bytes], list[float]]  # status, headers, chunks and their times

PackedExchange = tuple[str, float, *_Request, *_Response, float, float, int, int, EndDetails]
"""An exchange for the queue, built without copying: id, start, request, response, and the zero of the times.

Then the time of the end, the end (an index of `ENDS`), the limit, and `EndDetails`.
"""


class Recorder:
    """State: the recorded bytes, the free memory, and the end. The guard sets `repair_counts` and the other members of the class."""

    added_seconds = 0.0
    repair_counts: Mapping[str, int] = MappingProxyType({})
    blocked_checks: tuple[str, ...] = ()
    unrepaired_reasons: Mapping[str, str] = MappingProxyType({})
    is_partial = False  # true while more of the request is to come
    copies = 1  # number of times that the guard holds each byte, for the memory
    sent: SentResponse | None = None  # what the client gets, if that is recorded
    client_status: int | None = None  # of the response that the guard sends instead

    def __init__(self, limit: int = LIMIT, memory: MemoryBudget | None = None) -> None:
        self._limit = limit
        self._memory = memory or MemoryBudget()
        self._granted, self._taken = min(FREE_BYTES, limit), 0
        self.is_over_memory = False
        self._room = limit - HEADER_COST
        self._method = self._path = self._detail = ""
        self._request_headers: Headers = ()
        self._request: list[bytes] = []
        self._status: int | None = None
        self._headers: Headers = ()
        self._parts: list[bytes] = []
        self._times: list[float] = []
        self._begun = self._ended_at = 0.0  # the first is 0 in the times
        self._end: int | None = None
        self._totals: _Totals | None = None

    @property
    def cost(self) -> int:
        """The approximate memory in bytes."""
        own = self._limit - self._room if self._room >= 0 else HEADER_COST
        return own if self.sent is None else own + self.sent.cost

    @property
    def is_whole(self) -> bool:
        """True if all bytes are retained."""
        return self._room >= 0

    def has_room(self, size: int) -> bool:
        """Return True if another chunk of this size would be retained."""
        return self._room >= size + CHUNK_COST and self._may_use(self._limit - self._room + size + CHUNK_COST)

    @property
    def has_status(self) -> bool:
        """True if the response has begun."""
        return self._status is not None

    @property
    def response_body(self) -> bytes:
        """The retained body of the response."""
        return b"".join(self._parts)

    def request_head(self, method: str, path: str, headers: Headers) -> None:
        """Record the request line and headers."""
        self._method, self._path, self._request_headers = method, path, headers

    def request_body(self, data: bytes) -> None:
        """Record more of the request's body."""
        self._room -= len(data) + CHUNK_COST
        if self._room >= 0 and self._may_use(self._limit - self._room):
            self._request.append(data)
        else:
            self._past_limit().request_bytes += len(data)

    def response_head(self, status: int, headers: Headers) -> None:
        """Record the status and headers of the response."""
        self._status, self._headers = status, headers

    def feed(self, data: bytes, at: float) -> None:
        """Record a chunk of the response, `at` seconds after the request was sent."""
        if not data:
            return
        self._room -= len(data) + CHUNK_COST
        if self._room >= 0 and self._may_use(self._limit - self._room):
            self._parts.append(data)
            self._times.append(at)
        else:
            self._past_limit().count(len(data), at)

    def end(self, at: float) -> None:
        """Record the end of a complete response."""
        self.abort(End.COMPLETE, "", at)

    def abort(self, end: End, detail: str, at: float) -> None:
        """Record the end of a truncated exchange. Only the first end counts; while the request is partial, see `early_end`."""
        if self._end is None:
            if self.is_partial:
                end, detail = early_end(end, detail)
            self._end, self._detail, self._ended_at = ENDS.index(end), detail, at

    def record_sent(self) -> None:
        """Record what the client gets too: `sent` gets its head and its parts from here on."""
        self.sent = SentResponse(self._limit, self._memory)

    def pack(self, name: str, started: float) -> PackedExchange:
        """Return the record for the queue. `name` is the id of the exchange, `started` a Unix time in seconds."""
        totals = self._totals
        return (
            name,
            started,
            self._method,
            self._path,
            self._request_headers,
            self._request,
            self._status,
            self._headers,
            self._parts,
            self._times,
            self._begun,
            self._ended_at,
            _SHUT_DOWN if self._end is None else self._end,
            OVER_MEMORY if self.is_over_memory else self._limit,
            (
                self._detail,
                astuple(totals) if totals else None,
                dict(self.repair_counts),
                tuple(self.blocked_checks),
                dict(self.unrepaired_reasons),
                self.added_seconds,
                self._pack_sent(),
                self.client_status,
            ),
        )

    def to_record(self, name: str, started: float) -> RecordedExchange:
        """Return the decoded record."""
        return decode_packed(self.pack(name, started))

    def release(self) -> None:
        """Give back the memory that was taken. The exchange is over, and packed or dropped."""
        self._memory.give_back(self._taken)
        self._taken = 0
        if self.sent is not None:
            self.sent.release()

    def _pack_sent(self) -> PackedResponse | None:
        """Return what the client got, if that is another response: repaired, blocked, or an error of the guard."""
        sent = self.sent
        if sent is None or sent.status is None:
            return None
        is_blocked = bool(self.blocked_checks) or (self._end is not None and ENDS[self._end] is End.BLOCKED)
        return sent.pack() if self.repair_counts or is_blocked or sent.status != self._status else None

    def _may_use(self, size: int) -> bool:
        """Return True if the exchange may use this many bytes; take them from the memory if necessary."""
        if size <= self._granted:
            return True
        if self.is_over_memory or not (taken := self._memory.take((size - self._granted) * self.copies)):
            self.is_over_memory, self._room = True, -1
            return False
        self._taken += taken
        self._granted += taken // self.copies
        return True

    def _past_limit(self) -> _Totals:
        if self._totals is None:
            self._totals = _Totals(sum(map(len, self._request)))
            for data, at in zip(self._parts, self._times, strict=True):
                self._totals.count(len(data), at)
            for retained in (self._request, self._parts, self._times):
                retained.clear()
            if self.sent is not None:
                self.sent.drop()
            self.release()
        return self._totals


@dataclass
class _Totals:
    """Totals of an exchange that is too large to retain."""

    request_bytes: int
    response_bytes: int = 0
    chunks: int = 0
    first_byte: float | None = None

    def count(self, size: int, at: float) -> None:
        if self.first_byte is None:
            self.first_byte = at
        self.response_bytes += size
        self.chunks += 1


def decode_packed(packed: PackedExchange) -> RecordedExchange:
    """Decode a packed exchange, which may come from another process."""
    name, started, method, path, headers, request, status, fields, parts, times, begun, over, end, limit, more = packed
    detail, totals, repaired, blocked, left, added, sent, client_status = more
    request_body = b"".join(request)
    path, _, query = path.partition("?")
    sizes = [len(part) for part in parts]
    whole = (len(request_body), sum(sizes), len(parts), times[0] if times else None)
    request_bytes, response_bytes, chunks, first_byte = totals or whole
    return RecordedExchange(
        id=name,
        started=started,
        method=method,
        path=path,
        query=query,
        request_headers=tuple((name, value) for name, value in headers),
        request_body=request_body,
        request_bytes=request_bytes,
        status=status,
        response_headers=tuple((name, value) for name, value in fields),
        response_body=b"".join(parts),
        times=[at - begun for at in times],
        sizes=sizes,
        response_bytes=response_bytes,
        chunks=chunks,
        first_byte=None if first_byte is None else first_byte - begun,
        seconds=over - begun,
        end=ENDS[end].value,
        detail=detail,
        is_whole=totals is None,
        limit=limit,
        repair_counts=repaired,
        blocked_checks=tuple(blocked),
        unrepaired_reasons=left,
        added_seconds=added,
        sent=None if sent is None else decode_response(sent),
        client_status=client_status,
    )
