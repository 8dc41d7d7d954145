"""What `HarmonyGuard` notes of an exchange that it observes: one flat list, appended to as messages go by. `read_note` makes sense of it, later and elsewhere.

    [run, path and query (one value), number, request headers, time of the start,  then in the order in which it came:
     bytes                    of the request's body
     ...                      of which there is more to come
     int, then pairs          status of the answer, and each of its headers
     float, bytes             the time just before a piece of the answer's body is sent, and the piece
     False                    the client has left
     dict                     the limit, and what went by that is no longer kept (`_Sums`): it comes first, and status and headers after it
     None                     that piece is the last: the end
     str, str, float          how it ended, as the application knows, a detail, and when: the end
     True, float              the application was done without an end, and when: the end]

What comes after the end counts no more. Between two requests everything else has been through the caches, so that each step here takes several times as long
as it does alone: what need not be named, looked up or decided on the way is not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from typing import Any, NamedTuple, Protocol

from harmony_proxy.capture.recorder import CHUNK_COST, ENDS, LIMIT, End, RecordedExchange, early, kept

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ENDED = "harmony_guard.ended"
"""In the scope, where the application has a true `tells_its_end`: what it calls as it knows better than we how its answer ended (an `End` and a detail).
What it sends after that is its own."""

LEFT = "harmony_guard.left"
"""In the scope, where the server is our own: what knows more of the client (a `Client`)."""


class ClientConnection(Protocol):
    """What a server of ours knows of who it serves, beyond the messages."""

    fault: str
    """What was malformed, where that ended a request; in words that are none of the client's."""

    def has_left(self) -> bool:
        """Whether the client is gone, while nothing is read of it."""
        ...


Clock = Callable[[], float]
"""Seconds since whenever."""

Note = list[Any]
"""As above."""

_HEAD = 4
_AGAIN_BYTES = 64 * 1024
"""What is kept past the limit, before it is summed up again: that takes as long as the note is long."""

_BYTES = frozenset({bytes, bytearray, memoryview})
"""What a server may hand a request over in; bytes once it is packed."""

_SMALL_BYTES = 1024
"""The last piece of a request and of an answer are not counted up to here: `HEADER_COST` allows for them."""


class Terms:
    """What is the same of all exchanges: the clock, how many bytes of memory are kept of one, and what is called where we fail ourselves."""

    __slots__ = ("clock", "limit", "problem")

    def __init__(self, clock: Clock, limit: int, problem: Callable[[], None]) -> None:
        self.clock, self.limit, self.problem = clock, limit, problem


class Observer:
    """What stands between an application and its server, and notes. It is set up by whoever makes it: an `__init__` would be a call more.

    Attributes:
        asked, sent: the server's `receive` and `send`.
        used: about how many bytes of memory are kept.
    """

    __slots__ = ("asked", "note", "sent", "terms", "used")
    asked: Receive
    sent: Send
    note: Note
    terms: Terms
    used: int

    async def receive(self) -> Message:
        """What the application asks for."""
        asked = self.asked  # first, here and below: `self.asked()` would look for a method
        message = await asked()
        try:
            try:
                body, is_partial = message["body"], message["more_body"]
            except KeyError:  # to ask first takes longer
                self._less_told(message)
            else:
                self.note.append(body)
                if is_partial:
                    self.note.append(...)
                    self._count(len(body))
                elif len(body) > _SMALL_BYTES:
                    self._count(len(body))
        except Exception:  # noqa: BLE001 - what goes wrong with us must not touch the traffic
            self.terms.problem()
        return message

    def send(self, message: Message) -> Awaitable[None]:
        """What the application sends: noted, and sent on as it is. No coroutine of ours: it would cost more than the note."""
        try:
            if "body" in message:
                body = message["body"]
                if body.__class__ is not bytes:  # which may change: what is kept is what it was
                    body = bytes(body)
                note = self.note
                clock = self.terms.clock
                note.append(clock())
                note.append(body)
                if "more_body" in message and message["more_body"]:  # noqa: RUF019 - `get` takes longer
                    self.used = used = self.used + len(body) + CHUNK_COST
                    if used > self.terms.limit:
                        self._sum_up()
                else:
                    if len(body) > _SMALL_BYTES:
                        self._count(len(body))
                    note.append(None)
            elif message["type"] == "http.response.start":
                note = self.note
                note.append(+message["status"])  # of an Enum: the number
                headers: Any
                try:
                    headers = message["headers"]
                except KeyError:  # which it may leave out; to ask first takes longer
                    headers = []
                if headers.__class__ is list or iter(headers) is not headers:  # else they are read once, by the server
                    note += headers  # each by itself: others may change the list on its way
            elif message["type"] == "http.response.body":
                self.note += (self.terms.clock(), b"")
                self._count(0)
                if not message.get("more_body", False):
                    self.note.append(None)
        except Exception:  # noqa: BLE001 - as above
            self.terms.problem()
        sent = self.sent
        return sent(message)

    def _less_told(self, message: Message) -> None:
        """A request that leaves out what it may, or a client that has left."""
        if message["type"] != "http.request":
            self.note.append(False)
            return
        body = message.get("body", b"")
        self.note += (body, ...) if message.get("more_body", False) else (body,)
        self._count(len(body))

    def _count(self, size: int) -> None:
        self.used += size + CHUNK_COST
        if self.used > self.terms.limit:
            self._sum_up()

    def _sum_up(self) -> None:
        """Keep of the bodies no more than how much there was."""
        limit = self.terms.limit
        told = _told(self.note)
        known = (*((...,) if told.is_partial else ()), *((False,) if told.has_left else ()))
        head = () if told.status is None else (told.status, *told.headers)
        self.note[_HEAD:] = [{"limit": limit, **_sums(told)._asdict()}, *head, *known, *told.ending]
        self.used = limit - _AGAIN_BYTES


def ending(note: Note, clock: Clock) -> Callable[[End, str], None]:
    """For an application that knows how its answer ended."""

    def ended(end: End, detail: str) -> None:
        note.extend((end.value, detail, clock()))

    return ended


def close_note(note: Note, clock: Clock) -> None:
    """The application is done; if its answer is not, it broke off. Only the first end counts."""
    note.append(True)
    note.append(clock())


def place(run: str, path: str) -> bytes:
    """What a note begins with, where there is no query. In one, and encoded once: packing takes a hundred steps for each value, and more for text."""
    return f"{run} {path}".encode(errors="replace")


def read_note(note: Note, epoch: float) -> RecordedExchange:
    """What was noted, read; it may come from another process. `epoch` is what the clock's 0 is in seconds since 1970."""
    where, number, asked, begun = note[:_HEAD]
    placed, mark, query = where.partition(b"?")
    run, _, path = placed.decode().partition(" ")
    path += (mark + query).decode("latin-1")
    told = _told(note)
    sums = _sums(told) if told.sums is not None else None
    is_whole = sums is None
    end, detail = told.end
    return kept(
        (
            f"{run}-{number}",
            epoch + begun,
            "POST",
            path,
            asked,
            told.request if is_whole else [],
            told.status,
            told.headers,
            told.parts if is_whole else [],
            told.times if is_whole else [],
            begun,
            told.over,
            ENDS.index(end),
            told.limit,
            (detail, sums and sums[:4], {}, (), {}, 0.0),
        )
    )


class _Sums(NamedTuple):
    """Of what is no longer kept: bytes of the request and of the answer, pieces of the answer that were not empty, when the first came and when the last."""

    request_bytes: int
    response_bytes: int
    chunks: int
    first: float | None
    last: float


class _Told(NamedTuple):
    """What stands in a note behind its head. `ending` is what tells the end there."""

    request: list[bytes]
    status: int | None
    headers: list[tuple[bytes, bytes]]
    parts: list[bytes]
    times: list[float]
    last: float
    has_left: bool
    is_partial: bool
    sums: _Sums | None
    limit: int
    ending: tuple[Any, ...]

    @property
    def end(self) -> tuple[End, str]:
        """How it ended, with a detail."""
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
        return early(end, detail) if self.is_partial else (end, detail)

    @property
    def over(self) -> float:
        """When it ended."""
        return float(self.ending[-1]) if self.ending and self.ending[-1] is not None else self.last


def _told(note: Note) -> _Told:
    request: list[bytes] = []
    parts: list[bytes] = []
    times: list[float] = []
    status: int | None = None
    headers: list[tuple[bytes, bytes]] = []
    sums: _Sums | None = None
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
            limit, sums = value["limit"], _Sums(**{name: value[name] for name in _Sums._fields})
            last = sums.last
        else:
            headers.append(value)
    return _Told(request, status, headers, parts, times, last, has_left, is_partial, sums, limit, ending)


def _sums(told: _Told) -> _Sums:
    before = told.sums or _Sums(0, 0, 0, None, told.last)
    first = before.first
    if first is None and told.times:
        first = told.times[0]
    return _Sums(
        before.request_bytes + sum(map(len, told.request)),
        before.response_bytes + sum(map(len, told.parts)),
        before.chunks + len(told.parts),
        first,
        told.last,
    )
