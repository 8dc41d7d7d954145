"""What is kept of one exchange while its bytes go by. Sans-IO: feed me, I never wait, I never raise, I change nothing, and I read nothing.

Memory is bounded: past the limit the bytes are counted and no longer kept, and the exchange is said to be too large to judge. Everything that is work
(reading headers, unpacking, masking credentials) is done later and elsewhere, by `passage`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

LIMIT = 16 * 1024 * 1024
"""The most that is kept of one exchange, in bytes; request and response together, with what each chunk costs."""

CHUNK_COST = 128
HEADER_COST = 2048

Headers = Iterable[tuple[bytes, bytes]]
"""Names and values as they stand on the wire."""


class End(StrEnum):
    """How an exchange ended, as it is logged."""

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
_NOBODYS_FAULT = frozenset({End.CLIENT_LEFT, End.BLOCKED, End.REFUSED, End.SHUT_DOWN, End.MALFORMED})


def early(end: End, detail: str) -> tuple[End, str]:
    """How it ended with a server that did not have all of the request: of it that says nothing."""
    return (end, detail) if end in _NOBODYS_FAULT else (End.EARLY, f"{end.value} {detail}".rstrip())


class RecordedExchange(NamedTuple):
    """An exchange that is over: plain values.

    `request_headers` and `query` hold credentials: what they were is masked wherever the server echoed them, then forgotten; they are never written. Times are
    seconds after the request was sent; `started` is seconds since the epoch. `is_whole` says whether bodies are kept.
    """

    id: str
    started: float
    method: str
    path: str
    query: str
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
    is_whole: bool
    limit: int
    repaired: dict[str, int]
    blocked: tuple[str, ...]
    left: dict[str, str]
    added: float


Gone = tuple[int, int, int, float | None]
"""Of an exchange that was too large: bytes of the request and the response, chunks and the first byte that went by."""

Further = tuple[str, Gone | None, dict[str, int], tuple[str, ...], dict[str, str], float]
"""How it ended in words, what was not kept, and what was done: repaired, blocked, left; seconds added."""

Packed = tuple[
    str,
    float,
    str,
    str,
    Headers,
    list[bytes],
    int | None,
    Headers,
    list[bytes],
    list[float],
    float,
    float,
    int,
    int,
    Further | None,
]
"""An exchange as it is handed on, without work: id, when it started; method, path, headers and body of the request; status, headers, chunks and times of the
response; what stands for 0 in the times, when it was over and how it ended (a place in `End`), the limit, and what most exchanges have nothing of."""


class Recorder:
    """State: what has been kept, how much room is left, and how it ended.

    `repaired`, `blocked`, `left` and `added` are for whoever acts on the answer; `is_partial` says that more of the request is to come.
    """

    added = 0.0
    repaired: Mapping[str, int] = MappingProxyType({})
    blocked: tuple[str, ...] = ()
    left: Mapping[str, str] = MappingProxyType({})
    is_partial = False
    _is_acted_on = True

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._room = limit - HEADER_COST
        self._method = self._path = self._detail = ""
        self._request_headers: Headers = ()
        self._request: list[bytes] = []
        self._status: int | None = None
        self._headers: Headers = ()
        self._parts: list[bytes] = []
        self._times: list[float] = []
        self._begun = self._ended_at = 0.0  # the first stands for 0 in the times
        self._end: int | None = None
        self._gone: _Gone | None = None

    @property
    def cost(self) -> int:
        """About how many bytes of memory are held."""
        return self._limit - self._room if self._room >= 0 else HEADER_COST

    @property
    def is_whole(self) -> bool:
        """Whether everything that went by is kept."""
        return self._room >= 0

    def has_room(self, size: int) -> bool:
        """Whether a further chunk of that size would be kept."""
        return self._room >= size + CHUNK_COST

    @property
    def is_over(self) -> bool:
        """Whether its end is known."""
        return self._end is not None

    @property
    def has_status(self) -> bool:
        """Whether the response began."""
        return self._status is not None

    @property
    def response_body(self) -> bytes:
        """What is kept of the response's body."""
        return b"".join(self._parts)

    def request_head(self, method: str, path: str, headers: Headers) -> None:
        """The request line and headers."""
        self._method, self._path, self._request_headers = method, path, headers

    def request_body(self, data: bytes) -> None:
        """More of the request's body."""
        self._room -= len(data)
        if self._room >= 0:
            self._request.append(data)
        else:
            self._past_limit().request_bytes += len(data)

    def response_head(self, status: int, headers: Headers) -> None:
        """The status and headers of the response."""
        self._status, self._headers = status, headers

    def feed(self, data: bytes, at: float) -> None:
        """More of the response's body, `at` seconds after the request was sent."""
        if not data:
            return
        self._room -= len(data) + CHUNK_COST
        if self._room >= 0:
            self._parts.append(data)
            self._times.append(at)
        else:
            self._past_limit().count(len(data), at)

    def end(self, at: float) -> None:
        """The response is complete."""
        self.abort(End.COMPLETE, "", at)

    def abort(self, end: End, detail: str, at: float) -> None:
        """The exchange broke off. Only the first end counts. Of a server that did not have all of the request it says nothing how it ended."""
        if self._end is None:
            if self.is_partial:
                end, detail = early(end, detail)
            self._end, self._detail, self._ended_at = ENDS.index(end), detail, at

    def packed(self, name: str, started: float) -> Packed:
        """What is kept, as it is handed on. `name` is the id of the exchange, `started` is seconds since the epoch."""
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
            self._limit,
            self._further() if self._is_acted_on or self._gone is not None or self._detail else None,
        )

    def kept(self, name: str, started: float) -> RecordedExchange:
        """The same, read."""
        return kept(self.packed(name, started))

    def _further(self) -> Further:
        """What most exchanges have nothing of."""
        gone = self._gone
        return (
            self._detail,
            (gone.request_bytes, gone.response_bytes, gone.chunks, gone.first_byte) if gone else None,
            dict(self.repaired),
            tuple(self.blocked),
            dict(self.left),
            self.added,
        )

    def _past_limit(self) -> _Gone:
        gone = self._gone
        if gone is None:
            gone = self._gone = _Gone()
            gone.request_bytes = sum(map(len, self._request))
            for data, at in zip(self._parts, self._times, strict=True):
                gone.count(len(data), at)
            self._request.clear()
            self._parts.clear()
            self._times.clear()
        return gone


class _Gone:
    """How much has gone by of an exchange that is too large to be kept."""

    __slots__ = ("chunks", "first_byte", "request_bytes", "response_bytes")

    def __init__(self) -> None:
        self.request_bytes = self.response_bytes = self.chunks = 0
        self.first_byte: float | None = None

    def count(self, size: int, at: float) -> None:
        """One more chunk of the response."""
        if self.first_byte is None:
            self.first_byte = at
        self.response_bytes += size
        self.chunks += 1


def kept(packed: Packed) -> RecordedExchange:
    """What was packed, read; it may come from another process."""
    name, started, method, path, asked, request, status, answered, parts, times, begun, over, end, limit, further = (
        packed
    )
    detail, gone, repaired, blocked, left, added = further or ("", None, {}, (), {}, 0.0)
    request_body = b"".join(request)
    path, _, query = path.partition("?")
    sizes = [len(part) for part in parts]
    whole = (len(request_body), sum(sizes), len(parts), times[0] if times else None)
    request_bytes, response_bytes, chunks, first_byte = gone or whole
    return RecordedExchange(
        id=name,
        started=started,
        method=method,
        path=path,
        query=query,
        request_headers=tuple((name, value) for name, value in asked),
        request_body=request_body,
        request_bytes=request_bytes,
        status=status,
        response_headers=tuple((name, value) for name, value in answered),
        response_body=b"".join(parts),
        times=[at - begun for at in times],
        sizes=sizes,
        response_bytes=response_bytes,
        chunks=chunks,
        first_byte=None if first_byte is None else first_byte - begun,
        seconds=over - begun,
        end=ENDS[end].value,
        detail=detail,
        is_whole=gone is None,
        limit=limit,
        repaired=repaired,
        blocked=tuple(blocked),
        left=left,
        added=added,
    )
