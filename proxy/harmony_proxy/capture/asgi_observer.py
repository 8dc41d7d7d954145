"""Recording of an observed exchange by `HarmonyGuard`: one flat list, parsed later in another process by `read_note`.

The list has a head: run, path and query (one value); number; request headers; start time. Then, in the order of arrival:

| Values          | Meaning                                                                                 |
| bytes           | a part of the request's body                                                            |
| ...             | after a part that is not the last                                                       |
| int, then pairs | the status of the response, and each of its headers                                     |
| float, bytes    | the time just before a part of the response's body is sent, and the part                |
| False           | the client has left                                                                     |
| dict            | the limit, and totals of removed parts (`_Totals`): comes first, before the status      |
| None            | the previous part is the last: the end                                                  |
| str, str, float | the end as the application reports it, a detail, and the time: the end                  |
| True, float     | the application returned without an end, and the time: the end                          |

Values after the end are ignored. Between two requests other code evicts the CPU caches, so that each step here takes
several times as long as in a loop. So the code avoids names, look-ups and decisions where it can.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any, NamedTuple, Protocol

from harmony_proxy.capture.memory_budget import FREE_BYTES, MemoryBudget
from harmony_proxy.capture.recorder import (
    CHUNK_COST,
    ENDS,
    LIMIT,
    OVER_MEMORY,
    End,
    RecordedExchange,
    decode_packed,
    early_end,
)

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

END_CALLBACK_KEY = "harmony_guard.ended"
"""Key in the scope, if the application has a true `reports_end`: a callback for the end of its response.

Its arguments are an `End` and a detail. Messages after the call are the application's own, not the server's.
"""

CONNECTION_KEY = "harmony_guard.left"
"""Key in the scope, if the server is the standalone proxy: the `ClientConnection`."""


class ClientConnection(Protocol):
    """State of the client's connection that no ASGI message contains."""

    fault: str  # reason why a malformed request was aborted; it quotes nothing of the request

    def has_left(self) -> bool:
        """Return True if the client is gone, even while nothing is read from it."""
        ...


Clock = Callable[[], float]
"""Seconds since an arbitrary start."""

Note = list[Any]
"""The list that the module docstring describes."""

_HEAD = 4
_AGAIN_BYTES = FREE_BYTES
"""Bytes retained past the limit before the next summary, which takes time proportional to the length of the note."""

_BYTES = frozenset({bytes, bytearray, memoryview})  # types of a request's body in ASGI servers
_SMALL_BYTES = 1024  # largest last part of a request or response that is not counted: `HEADER_COST` includes it


class ObserverSettings:
    """Parameters of all exchanges: the clock, the limit of one in bytes, the callback for internal errors, and the memory.

    `first_bytes` are the bytes of an exchange that are not taken from the memory.
    """

    __slots__ = ("clock", "count_problem", "first_bytes", "limit", "memory")

    def __init__(self, clock: Clock, limit: int, problem: Callable[[], None], memory: MemoryBudget) -> None:
        self.clock, self.limit, self.count_problem, self.memory = clock, limit, problem, memory
        self.first_bytes = min(FREE_BYTES, limit)


class Observer:
    """Records the messages between an application and its server. The caller sets the attributes: `__init__` is slower.

    `server_receive` and `server_send` are the server's `receive` and `send`; `used_bytes` is the approximate memory in bytes.
    `granted_bytes` is the memory that it may use before it has to take more: `first_bytes` of the settings at the start.
    """

    __slots__ = ("granted_bytes", "note", "server_receive", "server_send", "terms", "used_bytes")
    server_receive: Receive
    server_send: Send
    note: Note
    terms: ObserverSettings
    used_bytes: int
    granted_bytes: int

    async def receive(self) -> Message:
        """Receive a message for the application, and record it."""
        receive = (
            self.server_receive
        )  # a local variable, here and below: `self.server_receive()` would look up a method
        message = await receive()
        try:
            try:
                body, is_partial = message["body"], message["more_body"]
            except KeyError:  # a test before takes longer
                self._record_partial(message)
            else:
                self.note.append(body)
                if is_partial:
                    self.note.append(...)
                    self._count(len(body))
                elif len(body) > _SMALL_BYTES:
                    self._count(len(body))
        except Exception:  # noqa: BLE001 - an internal error must not affect the traffic
            self.terms.count_problem()
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """Record a message of the application, and send it unchanged. Not a coroutine, which would cost more than the note."""
        try:
            if "body" in message:
                body = message["body"]
                if body.__class__ is not bytes:  # a mutable buffer: copy it
                    body = bytes(body)
                note = self.note
                clock = self.terms.clock
                note.append(clock())
                note.append(body)
                if "more_body" in message and message["more_body"]:  # noqa: RUF019 - `get` takes longer
                    self.used_bytes = used = self.used_bytes + len(body) + CHUNK_COST
                    if used > self.granted_bytes:
                        self._grow()
                else:
                    if len(body) > _SMALL_BYTES:
                        self._count(len(body))
                    note.append(None)
            elif message["type"] == "http.response.start":
                note = self.note
                note.append(+message["status"])  # converts an Enum to its number
                headers: Any
                try:
                    headers = message["headers"]
                except KeyError:  # optional; a test before takes longer
                    headers = []
                # an iterator can be read only once, by the server
                if headers.__class__ is list or iter(headers) is not headers:
                    note += headers  # a copy: other middleware may change the list
            elif message["type"] == "http.response.body":
                self.note += (self.terms.clock(), b"")
                self._count(0)
                if not message.get("more_body", False):
                    self.note.append(None)
        except Exception:  # noqa: BLE001 - as above
            self.terms.count_problem()
        send = self.server_send
        return send(message)

    def _record_partial(self, message: Message) -> None:
        """Record a message without optional members, or a disconnect."""
        if message["type"] != "http.request":
            self.note.append(False)
            return
        body = message.get("body", b"")
        self.note += (body, ...) if message.get("more_body", False) else (body,)
        self._count(len(body))

    def _count(self, size: int) -> None:
        self.used_bytes += size + CHUNK_COST
        if self.used_bytes > self.granted_bytes:
            self._grow()

    def release(self) -> None:
        """Give back the memory that was taken. The exchange is over, and packed or dropped."""
        terms = self.terms
        if self.granted_bytes > terms.first_bytes:
            terms.memory.give_back(self.granted_bytes - terms.first_bytes)
            self.granted_bytes = terms.first_bytes

    def _grow(self) -> None:
        """Take more memory, or record only totals from here on."""
        terms = self.terms
        if self.used_bytes > terms.limit or self.note[_HEAD].__class__ is dict:
            self._sum_up(terms.limit)
        elif taken := terms.memory.take(self.used_bytes - self.granted_bytes):
            self.granted_bytes += taken
        else:
            self._sum_up(OVER_MEMORY)

    def _sum_up(self, limit: int) -> None:
        """Replace the bodies by their totals."""
        parsed = _parse(self.note)
        if parsed.totals is not None:
            limit = parsed.limit
        flags = (*((...,) if parsed.is_partial else ()), *((False,) if parsed.has_left else ()))
        head = () if parsed.status is None else (parsed.status, *parsed.headers)
        self.note[_HEAD:] = [{"limit": limit, **_totals(parsed)._asdict()}, *head, *flags, *parsed.ending]
        self.release()
        self.used_bytes = self.granted_bytes - _AGAIN_BYTES


def end_callback(note: Note, clock: Clock) -> Callable[[End, str], None]:
    """Return the callback by which an application reports the end of its response."""

    def ended(end: End, detail: str) -> None:
        note.extend((end.value, detail, clock()))

    return ended


def close_note(note: Note, clock: Clock) -> None:
    """Record that the application returned: a truncated response, unless its end came before."""
    note.append(True)
    note.append(clock())


def note_start(run: str, path: str) -> bytes:
    """Return the first value of a note without a query. One value of bytes: packing costs time per value, more for text."""
    return f"{run} {path}".encode(errors="replace")


def read_note(note: Note, epoch: float) -> RecordedExchange:
    """Parse a note, which may come from another process. `epoch` is the Unix time, in seconds, of the clock's 0."""
    start, number, request_headers, begun = note[:_HEAD]
    run_and_path, mark, query = start.partition(b"?")
    run, _, path = run_and_path.decode().partition(" ")
    path += (mark + query).decode("latin-1")
    parsed = _parse(note)
    totals = _totals(parsed) if parsed.totals is not None else None
    request, parts, times = (parsed.request, parsed.parts, parsed.times) if totals is None else ([], [], [])
    end, detail = parsed.end
    return decode_packed(
        (
            *(f"{run}-{number}", epoch + begun, "POST", path, request_headers, request),
            *(parsed.status, parsed.headers, parts, times, begun, parsed.end_time, ENDS.index(end), parsed.limit),
            (detail, totals and totals[:4], dict[str, int](), (), dict[str, str](), 0.0, None, None),
        )
    )


class _Totals(NamedTuple):
    """Totals of removed parts: bytes of request and response, non-empty parts of the response, first and last arrival."""

    request_bytes: int
    response_bytes: int
    chunks: int
    first: float | None
    last: float


class _ParsedNote(NamedTuple):
    """The values of a note after its head. `ending` contains the values of the end."""

    request: list[bytes]
    status: int | None
    headers: list[tuple[bytes, bytes]]
    parts: list[bytes]
    times: list[float]
    last: float
    has_left: bool
    is_partial: bool
    totals: _Totals | None
    limit: int
    ending: tuple[Any, ...]

    @property
    def end(self) -> tuple[End, str]:
        """The end, and a detail."""
        match self.ending:
            case (None,) if not self.has_left:
                return (End.EARLY if self.is_partial else End.COMPLETE), ""
            case (None | True, *_) if self.has_left:
                return End.CLIENT_LEFT, ""
            case (True, *_):
                end, detail = (End.RESET if self.status is None else End.CUT), ""
            case (str() as word, str() as detail, *_):
                end = End(word)
            case _:
                return End.SHUT_DOWN, ""
        return early_end(end, detail) if self.is_partial else (end, detail)

    @property
    def end_time(self) -> float:
        """The time of the end."""
        return float(self.ending[-1]) if self.ending and self.ending[-1] is not None else self.last


def _parse(note: Note) -> _ParsedNote:
    request, parts, times = list[bytes](), list[bytes](), list[float]()
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = []
    totals: _Totals | None = None
    has_left = is_partial = False
    limit = LIMIT
    ending: tuple[Any, ...] = ()
    last: float = note[_HEAD - 1]
    values: Iterator[Any] = iter(note[_HEAD:])
    for value in values:
        kind = value.__class__
        if kind is float:
            data = next(values)
            last = value
            if data:
                times.append(value)
                parts.append(data)
        elif kind in _BYTES:
            request.append(bytes(value))
            is_partial = False
        elif value is ...:
            is_partial = True
        elif value is None:
            ending = (None,)
            break
        elif value is False:
            has_left = True
        elif value is True:
            ending = (True, next(values))
            break
        elif kind is str:
            ending = (value, next(values), next(values))
            break
        elif kind is int:
            status, headers = value, []
        elif kind is dict:
            limit, totals = value["limit"], _Totals(**{name: value[name] for name in _Totals._fields})
            last = totals.last
        else:
            headers.append(value)
    return _ParsedNote(request, status, headers, parts, times, last, has_left, is_partial, totals, limit, ending)


def _totals(parsed: _ParsedNote) -> _Totals:
    before = parsed.totals or _Totals(0, 0, 0, None, parsed.last)
    return _Totals(
        request_bytes=before.request_bytes + sum(map(len, parsed.request)),
        response_bytes=before.response_bytes + sum(map(len, parsed.parts)),
        chunks=before.chunks + len(parsed.parts),
        first=parsed.times[0] if before.first is None and parsed.times else before.first,
        last=parsed.last,
    )
