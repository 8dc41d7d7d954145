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

_CHUNK_COST = 128
_HEADER_COST = 2048

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
    SHUT_DOWN = "shut_down"


class Kept(NamedTuple):
    """An exchange that is over, as it is handed on: plain values, cheap to pack.

    `request_headers` holds credentials: what they were is masked wherever the server echoed them, then forgotten; they are never written. Times are
    seconds after the request was sent; `started` is seconds since the epoch. `is_whole` says whether bodies are kept.
    """

    id: str
    started: float
    method: str
    path: str
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


class Recorder:
    """State: what has been kept, how much has gone by, and how it ended. `repaired`, `blocked`, `left` and `added` are for whoever acts on the answer."""

    # what an exchange mostly leaves as it is, is the class's: one that begins is to cost little
    _method = _path = _detail = ""
    _request_headers: Headers = ()
    _headers: Headers = ()
    _request_bytes = _response_bytes = _chunks = 0
    _cost = _HEADER_COST
    _status: int | None = None
    _first_byte: float | None = None
    _end: End | None = None
    _seconds = added = 0.0
    repaired: Mapping[str, int] = MappingProxyType({})
    blocked: tuple[str, ...] = ()
    left: Mapping[str, str] = MappingProxyType({})

    def __init__(self, *, limit: int = LIMIT) -> None:
        self._limit = limit
        self._request: list[bytes] = []
        self._parts: list[bytes] = []
        self._times: list[float] = []

    @property
    def cost(self) -> int:
        """About how many bytes of memory are held."""
        return self._cost if self._cost <= self._limit else _HEADER_COST

    @property
    def is_whole(self) -> bool:
        """Whether everything that went by is kept."""
        return self._cost <= self._limit

    def has_room(self, size: int) -> bool:
        """Whether a further chunk of that size would be kept."""
        return self._cost + size + _CHUNK_COST <= self._limit

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
        self._request_bytes += len(data)
        self._cost += len(data)
        if self._cost <= self._limit:
            self._request.append(data)
        else:
            self._forget()

    def response_head(self, status: int, headers: Headers) -> None:
        """The status and headers of the response."""
        self._status, self._headers = status, headers

    def feed(self, data: bytes, at: float) -> None:
        """More of the response's body, `at` seconds after the request was sent."""
        size = len(data)
        if not size:
            return
        if not self._chunks:
            self._first_byte = at
        self._chunks += 1
        self._response_bytes += size
        self._cost = cost = self._cost + size + _CHUNK_COST
        if cost <= self._limit:
            self._parts.append(data)
            self._times.append(at)
        else:
            self._forget()

    def end(self, at: float) -> None:
        """The response is complete."""
        self.abort(End.COMPLETE, "", at)

    def abort(self, end: End, detail: str, at: float) -> None:
        """The exchange broke off. Only the first end counts."""
        if self._end is None:
            self._end, self._detail, self._seconds = end, detail, at

    def packed(self, name: str, started: float) -> tuple[object, ...]:
        """What is kept, in a plain value: the members of `Kept` in their order. `name` is the id of the exchange."""
        parts = self._parts
        return (
            name,
            started,
            self._method,
            self._path.partition("?")[0],  # keys travel in a query
            tuple(self._request_headers),
            b"".join(self._request),
            self._request_bytes,
            self._status,
            tuple(self._headers),
            b"".join(parts),
            self._times,
            [len(part) for part in parts],
            self._response_bytes,
            self._chunks,
            self._first_byte,
            self._seconds,
            (self._end or End.SHUT_DOWN).value,
            self._detail,
            self.is_whole,
            self._limit,
            dict(self.repaired),
            self.blocked,
            dict(self.left),
            self.added,
        )

    def kept(self, name: str, started: float) -> Kept:
        """The same with the names of its members."""
        return Kept._make(self.packed(name, started))

    def _forget(self) -> None:
        self._request.clear()
        self._parts.clear()
        self._times.clear()
