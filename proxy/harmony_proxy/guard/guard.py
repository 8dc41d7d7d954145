"""One exchange going by, and what the client gets of it under a policy. Sans-IO, knows no framework, never raises.

Observing, it is a recorder: the same bytes come out at once. Acting, a stream goes through a `Streaming` of those who act, an answer in one piece is held
until it is complete. Where we fail ourselves, the policy says whether the answer passes (open) or is blocked (closed). A shell calls the methods in order,
sends `head` before the first bytes it is given, and stops both sides once `must_stop` is true.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto

from harmony_conformance.transport.messages import NO_HEADERS, Request, Response
from harmony_proxy.capture.build_exchange import build_exchange, is_unread
from harmony_proxy.capture.decoding import BodyDecodingError, Unpacking
from harmony_proxy.capture.recorder import LIMIT, End, Headers, Recorder
from harmony_proxy.capture.routes import api_as_asked, api_of, plain
from harmony_proxy.guard.error_bodies import BROKEN_OFF, NOT_EXAMINED, error_event, unexamined_message
from harmony_proxy.guard.error_responses import blocked, refused
from harmony_proxy.guard.response_head import (
    Closing,
    ResponseHead,
    ResponseHeads,
    is_stream,
    named,
    values_of,
    verdict_of,
    with_body,
    without_body,
)
from harmony_proxy.policy.actions import Actions, Handlers, StreamRepair
from harmony_proxy.policy.policy import OBSERVING, FailMode, Policy, Route

_AN_ERROR = 400
_NO_BODY = (204, 304)


class _Mode(Enum):
    PASSING = auto()
    STREAMING = auto()
    UNPACKED = auto()
    HELD = auto()
    REFUSING = auto()
    STOPPED = auto()


class Guard:
    """State: the recorder, and how the answer is treated.

    Attributes:
        recorder: what the server sent, for judging, and what was done to it.
        observes: whether nothing is held or changed: then a shell may hand bytes to the recorder alone.
        head: what the client gets before any byte of the body; None while it is held.
        must_stop: the answer was blocked: end the client's side, abort the server's.
        problems: how often an error of ours was caught.
    """

    __slots__ = (
        "_actors",
        "_answered",
        "_api",
        "_heads",
        "_identical",
        "_later",
        "_limit",
        "_mode",
        "_policy",
        "_request_id",
        "_route",
        "_streaming",
        "_unpacking",
        "_withheld",
        "head",
        "must_stop",
        "observes",
        "problems",
        "recorder",
    )

    def __init__(
        self,
        policy: Policy,
        *,
        request_id: str,
        limit: int = LIMIT,
        actors: Handlers | None = None,
        heads: ResponseHeads = ResponseHeads.AT_ONCE,
    ) -> None:
        self.recorder = Recorder(limit=limit)
        self.observes = True
        self.head: ResponseHead | None = None
        self.must_stop = False
        self.problems = 0
        self._policy, self._request_id = policy, request_id
        self._limit = limit
        self._actors = actors
        self._route: Route = OBSERVING
        self._api = ""
        self._mode = _Mode.PASSING
        self._answered: ResponseHead | None = None
        self._streaming: StreamRepair | None = None
        self._unpacking: Unpacking | None = None
        self._withheld, self._identical = bytearray(), True
        self._heads = heads
        self._later: ResponseHead | None = None

    @property
    def is_holding(self) -> bool:
        """Whether an answer is held until it is complete."""
        return self._mode is _Mode.HELD

    def request_head(self, method: str, path: str, headers: Headers) -> Headers:
        """The request begins; the headers to send on. Observing, they are the same; acting, the server is asked for bodies that are not packed."""
        try:
            self.recorder.request_head(method, path, headers)
            self._choose(method, path.partition("?")[0])
            if self.observes:
                return headers
            kept = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
        except BaseException as error:  # noqa: BLE001 - what goes wrong with us must not touch the traffic
            self._trouble(error)
            return headers
        return [*kept, (b"accept-encoding", b"identity")]

    def request_body(self, data: bytes) -> None:
        """More of the request's body."""
        try:
            self.recorder.request_body(data)
        except BaseException as error:  # noqa: BLE001 - as above
            self._trouble(error)

    def response_head(self, status: int, headers: Headers) -> ResponseHead | None:
        """The response begins. What the client gets, None where that is held back until the answer is complete."""
        try:
            self.recorder.response_head(status, headers)
            self._answered = ResponseHead(status=status, headers=tuple(headers))
            if not self.observes:
                self._begin(self._answered)
        except BaseException as error:  # noqa: BLE001 - as above
            self._trouble(error)
            self._give_up("the answer could not be read")
        if self._mode is _Mode.PASSING and self._answered is not None:
            self.head = self._answered if self.observes else named(self._answered, self._request_id)
        return self.head

    def feed(self, data: bytes, at: float) -> list[bytes]:
        """More of the response's body, `at` seconds after the request was sent; what goes to the client now, after `head`."""
        try:
            if self._mode is _Mode.HELD:
                return self._hold(data, at)
            self.recorder.feed(data, at)
        except BaseException as error:  # noqa: BLE001 - as above
            self._trouble(error)
            if self._mode is _Mode.HELD:
                held = self.recorder.response_body
                self._give_up("an error of ours")
                return self._released(held + data)
        match self._mode:
            case _Mode.STREAMING | _Mode.UNPACKED:
                return self._streamed(data)
            case _Mode.REFUSING:
                return self._refuse_now()
            case _Mode.STOPPED:
                return []
            case _:
                return [data]

    def close(self, at: float) -> Closing:
        """The answer is complete; the rest of what goes to the client."""
        try:
            self.recorder.end(at)
        except BaseException as error:  # noqa: BLE001 - as above
            self._trouble(error)
        if self._mode is _Mode.STREAMING:
            return Closing(head=None, body=self._guarded(self._close_stream))
        if self._mode is _Mode.REFUSING:
            return self._unexamined()
        return self._close_held() if self._mode is _Mode.HELD else Closing(head=None, body=[])

    def abort(self, end: End, detail: str, at: float) -> Closing:
        """The exchange broke off; what the client, where it is still there, is told of it. The shell then breaks off as well: this is no good end."""
        try:
            self.recorder.abort(end, detail, at)
        except BaseException as error:  # noqa: BLE001 - as above
            self._trouble(error)
        if end in (End.CLIENT_LEFT, End.SHUT_DOWN):
            if self._mode is _Mode.STREAMING:
                self._guarded(self._abort_stream)  # nobody hears it; what was done stands in the log all the same
            return Closing(head=None, body=[])
        if self._mode is _Mode.STREAMING:
            return Closing(head=None, body=self._guarded(self._abort_stream))
        if self._mode in (_Mode.HELD, _Mode.REFUSING):
            self._mode = _Mode.STOPPED
            why = f"The server broke off its answer (request {self._request_id})"
            return self._ended(refused(self._api, BROKEN_OFF, why, self._request_id, "broken_off"))
        return Closing(head=None, body=[])

    def _choose(self, method: str, path: str) -> None:
        route = self._policy.route(plain(path))
        if route.observes or self._actors is None or method != "POST":
            return
        self._api = api_of(path)
        if self._api:
            self._route, self.observes = route, False

    def _begin(self, answered: ResponseHead) -> None:
        told = values_of(answered)
        if answered.status in _NO_BODY:
            return
        if self.recorder.is_partial:
            if answered.status < _AN_ERROR:
                self._give_up("the server answered before it had all of the request")
            return
        try:
            self._unpacking = Unpacking(told.get("content-encoding", ""))
        except ValueError as problem:
            self._give_up(str(problem))
            return
        if not is_stream(told):
            self._mode = _Mode.HELD
            return
        if self._actors is not None:
            kept = self.recorder.kept(self._request_id, 0.0)
            request = Request(path=kept.path, body=kept.request_body, method=kept.method)
            self._api = api_as_asked(self._api, request.json)
            self._streaming = self._actors.stream(
                request,
                Response(status=answered.status, chunks=(), headers=told or NO_HEADERS),
                self._api,
                self._route.actions,
                fallback=self._route.fallback,
                request_id=self._request_id,
                limit=self._limit,
                fail=self._route.fail,
            )
            self._mode = _Mode.STREAMING
            head = named(without_body(answered), self._request_id)
            self.head, self._later = (head, None) if self._heads is ResponseHeads.AT_ONCE else (None, head)

    def _hold(self, data: bytes, at: float) -> list[bytes]:
        if self.recorder.has_room(len(data)):
            self.recorder.feed(data, at)
            return []
        held = self.recorder.response_body
        self.recorder.feed(data, at)
        self._give_up(f"larger than the {self._limit} bytes that are held of an answer")
        return self._released(held + data)

    def _released(self, data: bytes) -> list[bytes]:
        """What was held, passed or refused."""
        if self._mode is _Mode.REFUSING:
            return self._refuse_now()
        self.head = named(self._answered, self._request_id) if self._answered is not None else None
        return [data]

    def _refuse_now(self) -> list[bytes]:
        closing = self._unexamined()
        self._mode, self.must_stop = _Mode.STOPPED, True
        return closing.body

    def _streamed(self, data: bytes) -> list[bytes]:
        if self._mode is _Mode.UNPACKED and self._unpacking is not None:
            unpacking = self._unpacking
            return self._guarded(lambda: [unpacking.feed(data, most=self._limit)])
        return self._guarded(lambda: self._feed_stream(data))

    def _feed_stream(self, data: bytes) -> list[bytes]:
        if self._streaming is None or self._unpacking is None:
            return [data]
        unpacked = self._unpacking.feed(data, most=self._limit)
        self._withheld += unpacked
        return self._given(self._streaming.feed(unpacked))

    def _given(self, out: list[bytes]) -> list[bytes]:
        """Keep in mind what was not given out yet, as long as nothing was changed: that is what passes where we fail."""
        given = b"".join(out)
        if self._identical and self._withheld.startswith(given):
            del self._withheld[: len(given)]
        else:
            self._identical = False
            self._withheld.clear()
        if self._streaming is not None and self._streaming.is_over:
            self._note(self._streaming.actions)
            self._mode, self.must_stop = _Mode.STOPPED, True
            if self._later is not None:
                self._later = None
                return self._blocked(self.recorder.blocked).body
        if given:
            self._give_head()
        return out

    def _give_head(self) -> None:
        if self._later is not None:
            self.head, self._later = self._later, None

    def _close_stream(self) -> list[bytes]:
        if self._streaming is None:
            return []
        if self._unpacking is not None:
            self._unpacking.end()
        out = self._given(self._streaming.close())
        self._note(self._streaming.actions)
        self._give_head()
        return out

    def _abort_stream(self) -> list[bytes]:
        if self._streaming is None:
            return []
        out = self._streaming.abort()
        self._note(self._streaming.actions)
        self._give_head()
        return out

    def _guarded(self, act: Callable[[], list[bytes]]) -> list[bytes]:
        """What it gives; where it fails, what was held, if the policy is open and the client has had nothing but the server's own bytes so far."""
        try:
            return act()
        except BodyDecodingError as problem:
            return self._not_decoded(str(problem))
        except BaseException as error:  # noqa: BLE001 - as above
            self._trouble(error)
        self._leave("an error of ours")
        if self._route.fail is FailMode.OPEN and self._identical:
            self._mode = _Mode.UNPACKED
            self._give_head()
            held = bytes(self._withheld)
            self._withheld.clear()
            return [held] if held else []
        return self._stopped()

    def _not_decoded(self, why: str) -> list[bytes]:
        """A stream that is not what it says it is packed as: it can pass as it came, packed, only where the client has had nothing of it yet."""
        self._leave(why)
        if self._route.fail is FailMode.OPEN and self._later is not None and self.recorder.is_whole:
            self._later = None
            self._mode = _Mode.PASSING
            return self._released(self.recorder.response_body)
        return self._stopped()

    def _stopped(self) -> list[bytes]:
        """Both sides end, with an error."""
        self._mode, self.must_stop = _Mode.STOPPED, True
        message = unexamined_message(self._request_id)
        self._withheld.clear()
        if self._later is not None:
            self._later = None
            return self._blocked(()).body
        return [error_event(self._api, NOT_EXAMINED, message)]

    def _close_held(self) -> Closing:
        try:
            return self._whole()
        except BaseException as error:  # noqa: BLE001 - as above
            self._trouble(error)
            self._give_up("an error of ours")
        return self._unexamined()

    def _whole(self) -> Closing:
        told = build_exchange(self.recorder.kept(self._request_id, 0.0))
        if told.exchange is None or self._actors is None or self._answered is None:
            self._give_up(told.unjudged)
            return self._unexamined()
        whole = self._actors.whole(told.exchange, self._route.actions, fallback=self._route.fallback)
        self._note(whole.actions)
        self._mode = _Mode.PASSING
        if whole.actions.blocked:
            return self._blocked(whole.actions.blocked)
        verdict = verdict_of(whole.actions, whole.results)
        if whole.body is None and is_unread(told.exchange):
            self._give_up("the answer is no JSON")
            return self._unexamined()
        if whole.body is None:
            return self._finished(named(self._answered, self._request_id, verdict), [self.recorder.response_body])
        return self._finished(named(with_body(self._answered, whole.body), self._request_id, verdict), [whole.body])

    def _unexamined(self) -> Closing:
        if self._mode is _Mode.REFUSING or self._answered is None:
            return self._blocked(())
        return self._finished(named(self._answered, self._request_id, "unexamined"), [self.recorder.response_body])

    def _finished(self, head: ResponseHead, body: list[bytes]) -> Closing:
        return self._ended(Closing(head=head, body=body))

    def _blocked(self, checks: Sequence[str]) -> Closing:
        return self._ended(blocked(self._api, checks, self._request_id))

    def _ended(self, closing: Closing) -> Closing:
        self.head = closing.head
        return closing

    def _note(self, acted: Actions) -> None:
        self.recorder.repaired = dict(acted.repaired)
        self.recorder.blocked = tuple(acted.blocked)
        self.recorder.left = dict(acted.left)

    def _give_up(self, why: str) -> None:
        """Pass what could not be examined, or stop, as the policy says."""
        if self.observes:
            return
        self._leave(why)
        self._mode = _Mode.PASSING if self._route.fail is FailMode.OPEN else _Mode.REFUSING

    def _leave(self, why: str) -> None:
        self.recorder.left = {**self.recorder.left, "*": why}

    def _trouble(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        self.problems += 1
