"""The guard: one exchange under a policy, and the bytes that the client gets. Sans-IO, framework-independent, never raises.

A route that observes only records; the same bytes come out at once. Otherwise a stream goes through a `StreamRepair`,
and any other response is buffered until it is complete. After an internal error the policy decides: pass the response
(open) or block it (closed). The caller calls the methods in order, sends `head` before the first bytes that it gets, and
stops both sides when `must_stop` is true.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from harmony_conformance.transport.content_coding import BodyDecoder, ContentDecodingError
from harmony_proxy.capture.build_exchange import build_exchange
from harmony_proxy.capture.memory_budget import MemoryBudget
from harmony_proxy.capture.recorder import LIMIT, End, Headers, Recorder
from harmony_proxy.capture.routes import api_of, normalize_path
from harmony_proxy.guard.body_treatment import Treatment
from harmony_proxy.guard.error_responses import (
    BROKEN_OFF,
    NOT_EXAMINED,
    OVERLOADED,
    bad_gateway_response,
    blocked_response,
    error_event,
    unexamined_message,
)
from harmony_proxy.guard.response_head import (
    CONTENT_ENCODING,
    Closing,
    HeadTiming,
    ResponseHead,
    is_stream,
    values_of,
    verdict_of,
    with_body,
    with_request_id,
    without_body,
)
from harmony_proxy.guard.stream_opening import open_stream
from harmony_proxy.guard.unsent_bytes import UnsentBytes
from harmony_proxy.policy.policy import OBSERVE_ROUTE, FailMode, Policy, Route
from harmony_proxy.policy.repair_interface import Actions, Handlers, StreamRepair

_FIRST_ERROR = 400
_NO_BODY = (204, 304)
_COPIES = 3  # a response is held as recorded, as emitted, and while it is judged


class Guard:
    """State: the recorder, and the treatment of the response.

    Attributes:
        recorder: the record of the exchange and of the actions, for the judge.
        observes: true if nothing is buffered or changed. A caller may then pass bytes to the recorder alone.
        head: the head for the client before any byte of the body; None while it is withheld.
        must_stop: true if the response was blocked: end the client's side, abort the server's.
        problems: number of internal errors.
    """

    __slots__ = (
        *("_handlers", "_api", "_head_timing", "_is_given_up", "_limit", "_mode", "_pending_head", "_policy"),
        *("_decoder", "_request_id", "_route", "_server_head", "_stream", "_undecodable_reason", "_unsent"),
        *("head", "must_stop", "observes", "problems", "recorder"),
    )

    def __init__(  # noqa: PLR0913 - most have a default
        self,
        policy: Policy,
        *,
        request_id: str,
        limit: int = LIMIT,
        memory: MemoryBudget | None = None,
        handlers: Handlers | None = None,
        head_timing: HeadTiming = HeadTiming.AT_ONCE,
    ) -> None:
        self.recorder = Recorder(limit=limit, memory=memory)
        self.observes = True
        self.head: ResponseHead | None = None
        self.must_stop, self.problems = False, 0
        self._policy, self._request_id, self._limit = policy, request_id, limit
        self._handlers, self._head_timing = handlers, head_timing
        self._route: Route = OBSERVE_ROUTE
        self._api, self._mode = "", Treatment.PASSING
        self._server_head: ResponseHead | None = None
        self._pending_head: ResponseHead | None = None  # of a stream, until its first bytes
        self._stream: StreamRepair | None = None
        self._decoder: BodyDecoder | None = None
        self._unsent, self._is_given_up = UnsentBytes(), False
        self._undecodable_reason = ""  # of a body that is read undecoded

    @property
    def fails_closed(self) -> bool:
        """True if the route acts, and blocks what it cannot examine."""
        return not self.observes and self._route.fail is FailMode.CLOSED

    @property
    def is_buffering(self) -> bool:
        """True while a response is buffered until it is complete."""
        return self._mode is Treatment.BUFFERING

    def request_head(self, method: str, path: str, headers: Headers) -> Headers:
        """Start the request; return the headers to send on: unchanged, or if the route acts, without compression."""
        with self._counting_problems():
            self.recorder.request_head(method, path, headers)
            route_path = path.partition("?")[0]
            route = self._policy.route(normalize_path(route_path))
            if not route.observes and self._handlers is not None and method == "POST":
                self._api = api_of(route_path)
                if self._api:
                    self._route, self.observes = route, False
                    self.recorder.copies = _COPIES
            if self.observes:
                return headers
            others = [(name, value) for name, value in headers if name.lower() != b"accept-encoding"]
            return [*others, (b"accept-encoding", b"identity")]
        return headers

    def request_body(self, data: bytes) -> None:
        """Record more of the request's body."""
        with self._counting_problems():
            self.recorder.request_body(data)

    def response_head(self, status: int, headers: Headers) -> ResponseHead | None:
        """Start the response, and return the head for the client; None if it is withheld for now."""
        try:
            self.recorder.response_head(status, headers)
            self._server_head = ResponseHead(status=status, headers=tuple(headers))
            if not self.observes:
                self._begin(self._server_head)
        except BaseException as error:  # noqa: BLE001 - an internal error must not affect the traffic
            self._count_problem(error)
            self._give_up("the answer could not be read")
        if self._mode is Treatment.PASSING and self._server_head is not None:
            self.head = self._server_head if self.observes else with_request_id(self._server_head, self._request_id)
        return self.head

    def may_be_judged(self, data: bytes) -> bool:
        """Return True if the next chunk may make the checks run, which takes time on a large response."""
        stream, decoder = self._stream, self._decoder
        return stream is None or decoder is None or not decoder.is_plain or stream.may_be_judged(data)

    def feed(self, data: bytes, at: float) -> list[bytes]:
        """Add a chunk that came `at` seconds after the request was sent; return the bytes to send now, after `head`."""
        try:
            if self._mode is Treatment.BUFFERING:
                return self._buffer(data, at)
            self.recorder.feed(data, at)
        except BaseException as error:  # noqa: BLE001 - as above
            self._count_problem(error)
            if self._mode is Treatment.BUFFERING:
                buffered = self.recorder.response_body
                self._give_up("an internal error")
                return self._release(buffered + data)
        match self._mode:
            case Treatment.UNPACKED if self._decoder is not None:
                unpacking = self._decoder
                return self._guarded(lambda: [unpacking.feed(data, limit=self._limit)])
            case Treatment.STREAMING | Treatment.UNPACKED:
                return self._guarded(lambda: self._feed_stream(data))
            case Treatment.REFUSING:
                return self._refuse_now()
            case Treatment.STOPPED:
                return []
            case _:
                return [data]

    def close(self, at: float) -> Closing:
        """End a complete response, and return the rest of what the client gets."""
        with self._counting_problems():
            self.recorder.end(at)
        match self._mode:
            case Treatment.STREAMING:
                body = self._guarded(self._end_decoding)
                more = [] if self.must_stop else self._guarded(lambda: self._end_stream(is_complete=True))
                return Closing(head=None, body=[*body, *more])
            case Treatment.REFUSING:
                return self._unexamined()
            case Treatment.BUFFERING:
                with self._counting_problems():
                    return self._repair_whole()
                self._give_up("an internal error")
                return self._unexamined()
            case _:
                return Closing(head=None, body=[])

    def abort(self, end: End, detail: str, at: float) -> Closing:
        """End a truncated exchange, and return the last bytes for the client, whose connection the caller then aborts."""
        with self._counting_problems():
            self.recorder.abort(end, detail, at)
        is_listening = end not in (End.CLIENT_LEFT, End.SHUT_DOWN)
        if self._mode is Treatment.STREAMING:
            # Without a client too: this records the actions for the log.
            body = self._guarded(lambda: self._end_stream(is_complete=False))
            return Closing(head=None, body=body if is_listening else [])
        if is_listening and self._mode in (Treatment.BUFFERING, Treatment.REFUSING):
            self._mode = Treatment.STOPPED
            message = f"The server broke off its answer (request {self._request_id})"
            return self._end_with(bad_gateway_response(self._api, BROKEN_OFF, message, self._request_id, "broken_off"))
        return Closing(head=None, body=[])

    def _begin(self, head: ResponseHead) -> None:
        headers = values_of(head)
        if head.status in _NO_BODY:
            return
        if self.recorder.is_partial and head.status < _FIRST_ERROR:
            self._give_up("the server answered before it had all of the request")
            return
        try:
            self._decoder = BodyDecoder(headers.get("content-encoding", ""))
        except ContentDecodingError as problem:
            if self._route.fail is FailMode.CLOSED:
                self._give_up(str(problem))
                return
            self._undecodable_reason, self._decoder = str(problem), BodyDecoder("identity")
            self._note_left(self._undecodable_reason)
        if not is_stream(headers, self._api):
            self._mode = Treatment.BUFFERING
            return
        self._mode = Treatment.STREAMING
        self._open_stream(head)
        if self._head_timing is HeadTiming.AT_ONCE:
            self._release_head()

    def _open_stream(self, head: ResponseHead) -> None:
        """Make the handler of a stream, and the head for the client. A body that is read undecoded keeps its content coding."""
        keep, route = b"", self._route
        if self._undecodable_reason and self._handlers is not None:
            keep, route = CONTENT_ENCODING, route.limited_to(self._handlers.leak_checks)
        self._stream = open_stream(self._handlers, self.recorder, head, self._api, route, self._request_id, self._limit)
        self._pending_head = with_request_id(without_body(head, keep), self._request_id)

    def _buffer(self, data: bytes, at: float) -> list[bytes]:
        if self.recorder.has_room(len(data)):
            self.recorder.feed(data, at)
            return []
        buffered = self.recorder.response_body
        self.recorder.feed(data, at)
        self._give_up(OVERLOADED if self.recorder.is_over_memory else f"larger than the limit of {self._limit} bytes")
        return self._release(buffered + data)

    def _release(self, data: bytes) -> list[bytes]:
        """Pass the buffered bytes, or refuse them."""
        if self._mode is Treatment.REFUSING:
            return self._refuse_now()
        self.head = with_request_id(self._server_head, self._request_id) if self._server_head is not None else None
        return [data]

    def _refuse_now(self) -> list[bytes]:
        closing = self._unexamined()
        self._mode, self.must_stop = Treatment.STOPPED, True
        return closing.body

    def _feed_stream(self, data: bytes) -> list[bytes]:
        if self._stream is None or self._decoder is None:
            return [data]
        if self.recorder.is_over_memory and not self._is_given_up:
            self._is_given_up = True
            return self._emit([*self._stream.give_up(OVERLOADED), *self._stream.feed(self._unpack(data))])
        return self._emit(self._stream.feed(self._unpack(data)))

    def _unpack(self, data: bytes) -> bytes:
        unpacked = self._decoder.feed(data, limit=self._limit) if self._decoder is not None else data
        self._unsent.add(unpacked)
        return unpacked

    def _emit(self, out: list[bytes]) -> list[bytes]:
        emitted = b"".join(out)
        self._unsent.mark_sent(emitted)
        if self._stream is not None and self._stream.is_terminated:
            self._record_actions(self._stream.actions)
            self._mode, self.must_stop = Treatment.STOPPED, True
            if self._pending_head is not None:
                self._pending_head = None
                return self._block(self.recorder.blocked_checks).body
        if emitted:
            self._release_head()
        return out

    def _release_head(self) -> None:
        if self._pending_head is not None:
            self.head, self._pending_head = self._pending_head, None

    def _end_decoding(self) -> list[bytes]:
        if self._decoder is not None:
            self._decoder.end()
        return []

    def _end_stream(self, *, is_complete: bool) -> list[bytes]:
        if self._stream is None:
            return []
        out = self._emit(self._stream.close()) if is_complete else self._stream.abort()
        self._record_actions(self._stream.actions)
        self._release_head()
        return out

    def _guarded(self, act: Callable[[], list[bytes]]) -> list[bytes]:
        """Call `act`. After an internal error pass `_unsent`, if the policy is open and nothing was changed so far."""
        try:
            return act()
        except ContentDecodingError as problem:
            self._note_left(str(problem))
            if self._route.fail is FailMode.OPEN and self._pending_head is not None and self.recorder.is_whole:
                return self._guarded(self._restart_stream)
        except BaseException as error:  # noqa: BLE001 - as above
            self._count_problem(error)
            self._note_left("an internal error")
            if self._route.fail is FailMode.OPEN and self._unsent.is_unchanged:
                self._mode = Treatment.UNPACKED
                self._release_head()
                unsent = self._unsent.take()
                return [unsent] if unsent else []
        self._mode, self.must_stop = Treatment.STOPPED, True
        self._unsent.take()
        if self._pending_head is not None:
            self._pending_head = None
            return self._block(()).body
        return [error_event(self._api, NOT_EXAMINED, unexamined_message(self._request_id))]

    def _repair_whole(self) -> Closing:
        record = self.recorder.to_record(self._request_id, 0.0)
        if record.status is not None and record.status >= _FIRST_ERROR and record.end == End.EARLY:
            record = record._replace(end=End.COMPLETE.value)  # an error is read without the rest of the request
        built = build_exchange(record, is_masked=False, keeps_undecodable=self._route.fail is FailMode.OPEN)
        if built.exchange is None or self._handlers is None or self._server_head is None:
            self._give_up(built.unjudged_reason)
            return self._unexamined()
        answer = self._handlers.repair_answer(built.exchange, self._route.actions, fallback=self._route.fallback)
        self._undecodable_reason = self._undecodable_reason or built.undecodable_reason
        self._record_actions(answer.actions)
        self._mode = Treatment.PASSING
        if answer.actions.blocked_checks:
            return self._block(answer.actions.blocked_checks)
        verdict = verdict_of(answer.actions, answer.results)
        if answer.unread_reason:
            self._give_up(answer.unread_reason)
            return self._unexamined()
        head, body = self._server_head, answer.body
        if body is None and self._decoder is not None and not self._decoder.is_plain:
            # What was examined, since decoders differ: some read what follows the end of the compressed data.
            body = built.exchange.response.body if built.exchange.response is not None else b""
        if body is None:
            body = self.recorder.response_body
        else:
            head = with_body(head, body)
        return self._end_with(Closing(head=with_request_id(head, self._request_id, verdict), body=[body]))

    def _unexamined(self) -> Closing:
        if self._mode is Treatment.REFUSING or self._server_head is None:
            return self._block(())
        head = with_request_id(self._server_head, self._request_id, "unexamined")
        return self._end_with(Closing(head=head, body=[self.recorder.response_body]))

    def _block(self, checks: Sequence[str]) -> Closing:
        return self._end_with(blocked_response(self._api, checks, self._request_id))

    def _end_with(self, closing: Closing) -> Closing:
        self.head = closing.head
        self.recorder.client_status = closing.head.status if closing.head is not None else None
        return closing

    def _record_actions(self, actions: Actions) -> None:
        self.recorder.repair_counts = dict(actions.repair_counts)
        self.recorder.blocked_checks = tuple(actions.blocked_checks)
        left = {"*": self._undecodable_reason} if self._undecodable_reason else {}
        self.recorder.unrepaired_reasons = {**left, **actions.unrepaired_reasons}

    def _give_up(self, why: str) -> None:
        """Pass or refuse the unexaminable response, as the policy says."""
        if self.observes:
            return
        self._note_left(why)
        self._mode = Treatment.PASSING if self._route.fail is FailMode.OPEN else Treatment.REFUSING

    def _restart_stream(self) -> list[bytes]:
        """Judge what could be decoded. Then read the body as it came, as many clients do: they have nothing of it yet."""
        if self._stream is None or self._server_head is None or (self._stream.close(), self._stream.is_terminated)[1]:
            return self._emit([])
        self._undecodable_reason = self.recorder.unrepaired_reasons["*"]
        self._decoder = BodyDecoder("identity")
        self._unsent.take()
        self._open_stream(self._server_head)
        return self._feed_stream(self.recorder.response_body)

    def _note_left(self, why: str) -> None:
        self.recorder.unrepaired_reasons = {**self.recorder.unrepaired_reasons, "*": why}

    @contextmanager
    def _counting_problems(self) -> Generator[None]:
        """Count an internal error instead of raising it: it must not affect the traffic."""
        try:
            yield
        except BaseException as error:  # noqa: BLE001 - as above
            self._count_problem(error)

    def _count_problem(self, error: BaseException) -> None:
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise error
        self.problems += 1
