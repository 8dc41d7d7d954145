"""One streamed answer that is acted on as it goes by.

Every event goes out at once as the bytes it came as, unless something that is not out yet may become a leak. Needles say when to ask, the checks say
whether it is one, on the exchange so far; what a check says and further text could undo (an open code fence, a marker that more text follows) is waited
for, within bounds. From where a check failed on, the text is read as the Harmony it is, and told anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from types import MappingProxyType

from harmony_conformance.apis import RESPONSES, api_named
from harmony_conformance.apis.api import Framing
from harmony_conformance.checks.responses.reading import ENDS
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import Json, at, items, text
from harmony_conformance.wire import Request, Response
from harmony_proxy.acted import Acted
from harmony_proxy.acting.accounting import FINISH, TOO_LATE, Account
from harmony_proxy.acting.asking import PROBES, Asking, Went
from harmony_proxy.acting.chat_stream import ChatStream
from harmony_proxy.acting.dialect import DIALECTS, Part
from harmony_proxy.acting.events import LineSplitter, Piece, Splitter, SseSplitter
from harmony_proxy.acting.history import History
from harmony_proxy.acting.mending import declared_by
from harmony_proxy.acting.moulds import Moulds
from harmony_proxy.acting.notes import Notes
from harmony_proxy.acting.reading import NoPlace
from harmony_proxy.acting.repairs import NO_REPAIR, REPAIRS
from harmony_proxy.acting.responses_stream import STATUS, ResponsesStream
from harmony_proxy.acting.retelling import Place, Stream
from harmony_proxy.acting.tracking import Status
from harmony_proxy.policy import Action
from harmony_proxy.refusal import BLOCKED, BROKEN_OFF, blocked_message, error_event

HOLD_LIMIT = 64 * 1024
"""The most bytes that are held for one verdict; beyond it they pass."""

TEXTS = frozenset(
    {
        "channels.no_marker_leak",
        "channels.no_channel_words",
        "channels.no_reasoning_in_content",
        "tool_calls.name_is_declared",
    }
)
"""The checks that are asked while the stream goes on."""

_NO_NAME = "what was left of the name is no function that the request declares"


class StreamActor:
    """State: what went out, what is held, the texts of each choice as far as they are told, and what was done."""

    def __init__(  # noqa: PLR0913 - all that a stream is acted on by
        self,
        request: Request,
        response: Response,
        api: str,
        actions: Mapping[str, Action],
        *,
        fallback: Action,
        request_id: str,
        limit: int,
        reasoning_field: str | None = None,
    ) -> None:
        self.is_over = False
        x = Exchange(id=request_id, request=request, response=response, api=api)
        acting = {check for check, action in actions.items() if action is not Action.OBSERVE}
        self._api, self._id = api, request_id
        self._actions, self._fallback, self._limit = actions, fallback, limit
        self._is_lines = api_named(api).framing is Framing.LINES and response.is_line_stream
        self._splitter: Splitter = LineSplitter(limit=limit) if self._is_lines else SseSplitter(limit=limit)
        self._asked = acting & TEXTS
        self._blocking = frozenset(
            check for check in acting if fallback is Action.BLOCK or actions[check] is Action.BLOCK
        )
        self._asking = Asking(x, is_lines=self._is_lines)
        self._notes = Notes()
        self._moulds = Moulds()
        repairs = {check for check in acting & REPAIRS.keys() if actions[check] is Action.REPAIR}
        self._account = Account(self._asking, self._notes, repairs)
        self._told = self._stream(x, acting, reasoning_field) if response.is_success else None
        self._unrepaired = repairs & {FINISH} if self._told is None and response.is_success else frozenset[str]()
        self._plain = History(None, keeps_bytes=bool(self._blocking or self._unrepaired))
        self._held: list[Piece] = []
        self._held_size = self._size = 0
        self._seen: set[int] = set()
        self._over: set[int] = set()
        self._passing = False
        self._blocked: tuple[str, ...] = ()

    def _stream(self, x: Exchange, acting: Collection[str], reasoning_field: str | None) -> Stream | None:
        """How the answer is read and told anew, None where it is only blocked."""
        keeps_bytes = bool(self._blocking)
        repairs = acting & REPAIRS.keys()
        if x.api == RESPONSES.name and repairs:
            return ResponsesStream(
                declared_by(x),
                self._asking,
                self._notes,
                body=x.request.body,
                mends_status=self._actions.get(STATUS) is Action.REPAIR,
                keeps_bytes=keeps_bytes,
            )
        dialect = DIALECTS.get(x.api)
        if dialect is None or not (repairs or reasoning_field is not None):
            return None
        return ChatStream(
            dialect,
            declared_by(x),
            self._asking,
            self._notes,
            body=x.request.body,
            reasoning_field=reasoning_field,
            mends_finish=self._actions.get(FINISH) is Action.REPAIR,
            keeps_bytes=keeps_bytes,
        )

    @property
    def _went(self) -> Went:
        return self._plain if self._told is None else self._told.went

    @property
    def acted(self) -> Acted:
        """What was done so far."""
        repaired, left = MappingProxyType(dict(self._notes.repaired)), MappingProxyType(dict(self._notes.left))
        return Acted(repaired=repaired, blocked=self._blocked, left=left)

    @property
    def _number(self) -> int:
        return 0 if self._told is None else self._told.number

    def feed(self, data: bytes) -> list[bytes]:
        """More of the body; what goes to the client now."""
        if self.is_over or not data:
            return []
        if self._passing:
            return [data]
        self._size += len(data)
        if self._splitter.is_between and self._size <= self._limit and self._is_quick(data):
            return [data]
        out: list[bytes] = []
        for piece in self._splitter.feed(data):
            out += self._take(piece)
        if self._splitter.is_lost or self._size > self._limit:
            out += self._give_up(f"the answer is larger than the {self._limit} bytes that are kept of one")
        return _joined(out)

    def close(self) -> list[bytes]:
        """The answer is complete; the rest of what goes to the client."""
        if self.is_over or self._passing:
            return []
        rest = self._splitter.rest()
        is_open = self._is_lines and Piece(raw=rest, data=rest.decode("utf-8", "replace")).value is not None
        out = [one for piece in self._splitter.feed(b"\n") for one in self._take(piece)] if is_open else []
        out += [*self._conclude(), *self._remains()]
        self._close_account()
        if self.is_over:
            return _joined(out)
        data = b"".join([*out, self._splitter.rest()])
        return _joined([data.removesuffix(b"\n") if is_open else data])  # clients read a last line that does not end

    def abort(self) -> list[bytes]:
        """The server broke off. What was held goes out, told anew where it leaks; half an event does not."""
        if self.is_over:
            return []
        out = [] if self._passing else [*self._resolve(is_last=True), *self._remains()]
        self._close_account()
        if not self.is_over:
            message = f"The server broke off its answer (request {self._id})"
            out.append(error_event(self._api, BROKEN_OFF, message, number=self._number))
        return _joined(out)

    # what has to wait

    def _take(self, piece: Piece) -> list[bytes]:
        if self.is_over or self._passing:
            return [] if self.is_over else [piece.raw]
        told = self._told
        if told is None:
            return self._take_plain(piece)
        if self._is_quick(piece.raw):
            return [piece.raw]
        piece.parts = told.parts(piece)
        if not self._held and not piece.is_done and self._passes(told, piece):
            told.passed(piece)
            if len(piece.parts) == 1:
                told.learn(piece, self._moulds)
            return [piece.raw]
        self._hold(piece)
        for part in piece.parts:
            self._track(told, part)
        if piece.is_done or told.is_end(piece):
            return self._conclude()
        if told.announces(piece) and self._held_size <= min(HOLD_LIMIT, self._limit):
            return []
        waits = told.ends_with_choices and self._blocking and self._seen and self._seen == self._over
        return [] if waits else self._resolve(is_last=False)

    def _is_quick(self, raw: bytes) -> bool:
        """Whether an event is one that passed before with another text, in which nothing begins a needle. It counts as gone then."""
        told = self._told
        if told is None or self._held or told.is_at_work:
            return False
        found = self._moulds.fit(raw)
        if found is None or not found[0].tracked.passes(found[1]):
            return False
        told.grow(raw, found[0].key, found[1], found[2])
        return True

    def _take_plain(self, piece: Piece) -> list[bytes]:
        """An event of an answer that is only blocked: its end waits until all of it was judged."""
        if piece.is_done:
            self._hold(piece)
            return self._conclude()
        if self._held or self._ends_with(piece.value):
            self._hold(piece)
            return [] if self._held_size <= min(HOLD_LIMIT, self._limit) else self._release()
        self._plain.add(piece.raw, ())
        return [piece.raw]

    def _hold(self, piece: Piece) -> None:
        self._account.came(piece)
        self._held.append(piece)
        self._held_size += len(piece.raw)

    def _passes(self, told: Stream, piece: Piece) -> bool:
        """Whether an event is nothing but text without a needle."""
        if told.is_at_work or told.announces(piece) or told.is_end(piece):
            return False
        for part in piece.parts:
            if not told.is_plain(part):
                return False
            if not all(tracked.passes(said) for tracked, said in told.texts_of(part)):
                return False
        return True

    def _ends_with(self, value: Json) -> bool:
        """Whether the server says with this event that the answer is complete, in an API whose answers are only blocked."""
        if not self._blocking:
            return False
        is_last = at(value, "generated_text") is not None or at(value, "done") is True
        ends = any(at(choice, "finish_reason") is not None for choice in items(at(value, "choices")))
        return is_last or ends or text(at(value, "type")) in ENDS

    def _track(self, told: Stream, part: Part) -> None:
        self._seen.add(part.choice)
        if part.finish is not None:
            self._over.add(part.choice)
        for tracked, said in told.texts_of(part):
            tracked.add(said)

    def _resolve(self, *, is_last: bool) -> list[bytes]:
        """What can go out of what is held."""
        told = self._told
        if told is None or not self._asked:
            return self._release()
        statuses = {place: tracked.status() for place, tracked in told.texts.items()}
        may_leak = [place for place, status in statuses.items() if status is not Status.CLEAR]
        is_odd = not told.cleans_names and any(_is_odd(told, piece) for piece in self._held)
        if not is_odd and not may_leak:
            return self._release()
        is_over = not all(map(self._may_grow, may_leak))
        if is_odd or is_last or is_over or Status.READY in statuses.values():
            if not is_last and not self._asking.may_ask(self._size):
                return self._too_much()
            found = self._asking.fails(told.went, self._held, self._asked)
            if not found and (is_last or not any(self._goes_on(told, place) for place in statuses)):
                return self._release()
            ready = [place for place, status in statuses.items() if status is Status.READY and self._may_grow(place)]
            more = (told.probe(place, said) for place in ready for said in PROBES)
            probes = chain(told.further() if is_over else (), more)
            if found and (is_last or is_odd or self._asking.is_final(found, told.went, self._held, probes)):
                return self._act(told, found, statuses)
        return self._too_much()

    def _may_grow(self, place: Place) -> bool:
        return place[0] not in self._over

    def _goes_on(self, told: Stream, place: Place) -> bool:
        tracked = told.texts[place]
        return self._may_grow(place) and not tracked.is_read and bool(tracked.unsent) and tracked.goes_on

    def _too_much(self) -> list[bytes]:
        """Nothing, as long as there is room for what is held."""
        if self._held_size <= min(HOLD_LIMIT, self._limit) or self._told is None:
            return []
        self._notes.leave(self._asked, f"no verdict within {HOLD_LIMIT} bytes")
        for tracked in self._told.texts.values():
            tracked.is_given_up = tracked.is_given_up or (tracked.reader is None and bool(tracked.unsent))
        return self._release()

    # what goes out

    def _act(self, told: Stream, found: Collection[str], statuses: Mapping[Place, Status]) -> list[bytes]:
        """Repair or block what fails. A repair is judged before it goes out."""
        blocked = [check for check in found if self._actions[check] is Action.BLOCK]
        if blocked:
            return self._block(blocked)
        held, go_back, done = self._held, told.saved(), dict(self._notes.repaired)
        before = self._account.before(told.went, held)
        told.is_trying = True
        try:
            told.begin(statuses)
            out = self._release()
        except NoPlace as problem:
            reason = f"the model wrote {problem}"
        else:
            late = NO_REPAIR if b"".join(out) == b"".join(piece.raw for piece in held) else TOO_LATE
            reason = told.problem or (late if Status.READY in statuses.values() else _NO_NAME)
            if not self._asking.fails(told.went, (), found):
                self._notes.count(found)
                self._account.begin(before)
                return out
        finally:
            told.is_trying = False
        self._notes.repaired = done
        self._held, self._held_size = held, sum(len(piece.raw) for piece in held)
        go_back()
        told.forget(statuses)
        self._notes.leave(found, reason)
        return self._block(found) if self._fallback is Action.BLOCK else self._release()

    def _release(self) -> list[bytes]:
        """What is held goes out: the very bytes, unless something of it is told anew."""
        held, self._held, self._held_size = self._held, [], 0
        told = self._told
        if told is None:
            for piece in held:
                self._plain.add(piece.raw, ())
            return [piece.raw for piece in held]
        out = [one for piece in held for one in told.tell(piece)]
        if told.problem:
            self._notes.leave(self._asked, told.problem)
        for tracked in told.texts.values():
            if tracked.unsent:
                tracked.settle()
        return out

    def _conclude(self) -> list[bytes]:
        """The answer is complete: what fails now fails for good."""
        number = self._number  # of the next event, if none of what is held goes out
        out = self._resolve(is_last=True)
        if not self.is_over and self._blocking:
            found = self._asking.fails_whole(self._went, self._held, self._blocking)
            return self._block(found, number) if found else out
        return out

    def _close_account(self) -> None:
        """Say what is left of what fails."""
        if self.is_over or self._passing:
            return
        if self._told is not None:
            self._account.close(self._told)
        elif self._unrepaired:
            found = self._asking.fails_whole(self._plain, self._held, self._unrepaired)
            self._notes.leave(found, f"answers of the API {self._api} are not repaired")

    def _remains(self) -> Iterable[bytes]:
        """What readers still hold where the stream ends without a finish reason."""
        if self._told is None or self.is_over:
            return ()
        rest = self._told.rest()
        if self._told.problem:
            self._notes.leave(self._asked, self._told.problem)
        return rest

    def _block(self, found: Collection[str], number: int | None = None) -> list[bytes]:
        self._blocked = tuple(sorted(found))
        self.is_over, self._held = True, []
        number = self._number if number is None else number
        return [error_event(self._api, BLOCKED, blocked_message(self._blocked, self._id), number=number)]

    def _give_up(self, reason: str) -> list[bytes]:
        """Nothing more is looked at: what is held goes out, and the rest as it comes."""
        if self.is_over:
            return []
        self._notes.leave(self._asked | self._blocking, reason)
        out = [*self._release(), *self._remains(), self._splitter.rest()]
        self._passing = True
        self._told, self._plain = None, History(None, keeps_bytes=False)
        return out


def _is_odd(told: Stream, piece: Piece) -> bool:
    calls = (call for part in piece.parts for call in items(part.said.get("tool_calls")))
    return bool(told.declared) and any(map(told.is_odd, calls))


def _joined(out: Iterable[bytes]) -> list[bytes]:
    data = b"".join(out)
    return [data] if data else []
