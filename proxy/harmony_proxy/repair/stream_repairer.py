"""One streamed answer that is acted on as it goes by.

Every event goes out at once as the bytes it came as, unless something that is not out yet may become a leak. Needles say when to ask, the checks say
whether it is one, on the exchange so far; what a check says and further text could undo (an open code fence, a marker that more text follows) is waited
for, within bounds. From where a check failed on, the text is read as the Harmony it is, and told anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain

from harmony_conformance.apis.api import Framing
from harmony_conformance.apis.registry import api_named
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.transport.messages import Request, Response
from harmony_proxy.guard.error_bodies import (
    BLOCKED,
    BROKEN_OFF,
    NOT_EXAMINED,
    blocked_message,
    error_event,
    unexamined_message,
)
from harmony_proxy.policy.actions import Actions
from harmony_proxy.policy.policy import Action, FailMode
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.answer.repair_table import NO_REPAIR, REPAIRS
from harmony_proxy.repair.responses.repeated_texts import stand_beside
from harmony_proxy.repair.stream_handlers import says_it_ends, stream_of
from harmony_proxy.repair.stream_parts.emitted_history import EmittedHistory
from harmony_proxy.repair.stream_parts.event_splitter import LineSplitter, RawEvent, Splitter, SseSplitter
from harmony_proxy.repair.stream_parts.event_templates import EventTemplates
from harmony_proxy.repair.stream_parts.hold_buffer import HOLD_LIMIT, HoldBuffer, joined
from harmony_proxy.repair.stream_parts.repair_accounting import FINISH, TOO_LATE, RepairAccount
from harmony_proxy.repair.stream_parts.rewriter import Place, StreamHandler
from harmony_proxy.repair.stream_parts.stream_judge import PROBES, Emission, StreamJudge
from harmony_proxy.repair.stream_parts.text_tracker import Status
from harmony_proxy.repair.text.api_dialects import ChoiceContent
from harmony_proxy.repair.text.leaked_text_parser import NoDestinationError

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


class StreamRepairer:
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
        fail: FailMode = FailMode.OPEN,
        reasoning_field: str | None = None,
    ) -> None:
        self.is_over = False
        x = Exchange(id=request_id, request=request, response=response, api=api)
        acting = {check for check, action in actions.items() if action is not Action.OBSERVE}
        self._api, self._id = api, request_id
        self._is_closed = fail is FailMode.CLOSED
        self._withholds = False
        self._is_answer = response.is_success
        self._actions, self._fallback, self._limit = actions, fallback, limit
        self._is_lines = api_named(api).framing is Framing.LINES and response.is_line_stream
        self._splitter: Splitter = LineSplitter(limit=limit) if self._is_lines else SseSplitter(limit=limit)
        self._asked = acting & TEXTS
        self._blocking = frozenset(
            check for check in acting if fallback is Action.BLOCK or actions[check] is Action.BLOCK
        )
        self._asking = StreamJudge(x, is_lines=self._is_lines)
        self._notes = ActionNotes()
        self._moulds = EventTemplates()
        repairs = {check for check in acting & REPAIRS.keys() if actions[check] is Action.REPAIR}
        self._account = RepairAccount(self._asking, self._notes, repairs)
        asked, keeps = {check: actions[check] for check in acting}, bool(self._blocking)
        self._told = stream_of(x, asked, self._asking, self._notes, keeps_bytes=keeps, reasoning_field=reasoning_field)
        self._unrepaired = repairs & {FINISH} if self._told is None and response.is_success else frozenset[str]()
        self._plain = EmittedHistory(None, keeps_bytes=bool(self._blocking or self._unrepaired))
        self._held = HoldBuffer(limit=limit)
        self._size = 0
        self._seen: set[int] = set()
        self._over: set[int] = set()
        self._passing = False
        self._blocked: tuple[str, ...] = ()

    @property
    def _went(self) -> Emission:
        return self._plain if self._told is None else self._told.went

    @property
    def actions(self) -> Actions:
        """What was done so far."""
        return self._notes.acted(self._blocked)

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
        return joined(out)

    def close(self) -> list[bytes]:
        """The answer is complete; the rest of what goes to the client."""
        if self.is_over or self._passing:
            return []
        last, rest = self._splitter.last(), self._splitter.rest()
        is_read = last is not None and (last.value is not None or last.is_done)
        out: list[bytes] = []
        if is_read:  # clients read a last event that does not end
            out = [one for piece in self._splitter.feed(self._splitter.end) for one in self._take(piece)]
        elif last is not None:
            out = self._unread(last)
        out += [*self._conclude(), *self._remains()]
        self._close_account()
        if self.is_over:
            return joined(out)
        data = b"".join([*out, self._splitter.rest()])
        is_open = is_read and (self._is_lines or data.endswith(rest + self._splitter.end))
        return joined([data.removesuffix(self._splitter.end) if is_open else data])

    def abort(self) -> list[bytes]:
        """The server broke off. What was held goes out, told anew where it leaks, or not, as `fail` says; half an event does not."""
        if self.is_over:
            return []
        self._withholds = self._is_closed
        out = [] if self._passing else [*self._resolve(is_last=True), *self._remains()]
        self._close_account()
        if not self.is_over:
            message = f"The server broke off its answer (request {self._id})"
            out.append(error_event(self._api, BROKEN_OFF, message, number=self._number))
        return joined(out)

    # what has to wait

    def _take(self, piece: RawEvent) -> list[bytes]:
        if self.is_over or self._passing:
            return [] if self.is_over else [piece.raw]
        told = self._told
        if told is not None and self._is_quick(piece.raw):
            return [piece.raw]
        if error := self._unread(piece):
            return error
        if told is None:
            return self._take_plain(piece)
        piece.parts = told.parts(piece)
        if not self._held.pieces and not piece.is_done and self._passes(told, piece):
            told.passed(piece)
            if len(piece.parts) == 1:
                told.learn(piece, self._moulds)
            return [piece.raw]
        self._hold(piece)
        for part in piece.parts:
            self._track(told, part)
        if piece.is_done or told.is_end(piece):
            return self._conclude()
        if told.announces(piece) and not self._held.is_full:
            return []
        waits = told.ends_with_choices and self._blocking and self._seen and self._seen == self._over
        return [] if waits else self._resolve(is_last=False)

    def _is_quick(self, raw: bytes) -> bool:
        """Whether an event is one that passed before with another text, in which nothing begins a needle. It counts as gone then."""
        told = self._told
        if told is None or self._held.pieces or told.is_at_work:
            return False
        found = self._moulds.fit(raw)
        if found is None or not found[0].tracked.passes(found[1]):
            return False
        told.grow(raw, found[0].key, found[1], found[2])
        return True

    def _take_plain(self, piece: RawEvent) -> list[bytes]:
        """An event of an answer that is only blocked: its end waits until all of it was judged."""
        if piece.is_done:
            self._hold(piece)
            return self._conclude()
        if self._held.pieces or (self._blocking and says_it_ends(piece.value)):
            self._hold(piece)
            return self._no_verdict() if self._held.is_full else []
        self._plain.add(piece.raw, ())
        return [piece.raw]

    def _unread(self, piece: RawEvent) -> list[bytes]:
        """The end of the answer, where an event cannot be read and may not pass."""
        if not (piece.is_unread and self._is_answer):
            return []
        self._notes.leave(("*",), "an event that is no JSON object")
        return self._unexamined() if self._is_closed else []

    def _hold(self, piece: RawEvent) -> None:
        self._account.came(piece)
        told = self._told
        is_suspect = told is not None and told.is_suspect(piece)
        self._held.add(piece, told.is_odd if told is not None and told.declared else None, is_suspect=is_suspect)

    def _passes(self, told: StreamHandler, piece: RawEvent) -> bool:
        """Whether an event is nothing but text without a needle."""
        if told.is_at_work or told.announces(piece) or told.is_end(piece) or told.is_suspect(piece):
            return False
        for part in piece.parts:
            if not told.is_plain(part):
                return False
            if not all(tracked.passes(said) for tracked, said in told.texts_of(part)):
                return False
        return True

    def _track(self, told: StreamHandler, part: ChoiceContent) -> None:
        self._seen.add(part.choice)
        if part.finish is not None:
            self._over.add(part.choice)
        for tracked, said in told.texts_of(part):
            tracked.add(said)

    def _resolve(self, *, is_last: bool) -> list[bytes]:
        """What can go out of what is held."""
        told = self._told
        if told is None or not self._asked:
            return self._unresolved()
        statuses = {place: tracked.status() for place, tracked in told.texts.items()}
        may_leak = [place for place, status in statuses.items() if status is not Status.CLEAR]
        is_odd = self._held.is_odd and not told.cleans_names
        if not is_odd and not may_leak and not self._held.is_suspect:
            return self._release()
        is_over = not all(map(self._may_grow, may_leak))
        if is_odd or is_last or is_over or self._held.is_suspect or Status.READY in statuses.values():
            if not (is_last or self._asking.may_ask(self._size)):
                return self._too_much()
            found = self._asking.fails(told.went, self._held.pieces, self._asked)
            if not found and (is_last or not any(self._goes_on(told, place) for place in statuses)):
                return self._unresolved()
            if not (is_odd := is_odd or (self._held.is_suspect and stand_beside(found))) and not may_leak:
                return self._release()
            ready = (place for place, status in statuses.items() if status is Status.READY and self._may_grow(place))
            more = (told.probe(place, said) for place in ready for said in PROBES)
            probes = chain(told.further() if is_over else (), more)
            if not (is_last or is_odd):
                found = self._asking.final(found, told.went, self._held.pieces, probes)
            if found:
                return self._act(told, found, told.concerned(statuses, found), is_last=is_last)
        return self._too_much()

    def _may_grow(self, place: Place) -> bool:
        return place[0] not in self._over

    def _goes_on(self, told: StreamHandler, place: Place) -> bool:
        tracked = told.texts[place]
        return self._may_grow(place) and not tracked.is_read and bool(tracked.unsent) and tracked.goes_on

    def _too_much(self) -> list[bytes]:
        """Nothing, as long as there is room for what is held."""
        return self._no_verdict() if self._held.is_full else []

    def _no_verdict(self) -> list[bytes]:
        """What is held passes, and nothing more is looked at of its texts; or nothing passes any more."""
        self._notes.leave(self._asked, f"no verdict within {HOLD_LIMIT} bytes")
        if self._is_closed:
            return self._unexamined()
        for tracked in self._told.texts.values() if self._told is not None else ():
            tracked.is_given_up = tracked.is_given_up or (tracked.reader is None and bool(tracked.unsent))
        return self._release()

    def _unresolved(self) -> list[bytes]:
        """What is held, in which nothing was found; or nothing, where there was more to come of it."""
        if not (self._withholds and self._held.pieces):
            return self._release()
        self._held.take()
        self._notes.leave(("*",), "it broke off before all of it could be examined")
        return []

    # what goes out

    def _act(
        self, told: StreamHandler, found: Collection[str], statuses: Mapping[Place, Status], *, is_last: bool
    ) -> list[bytes]:
        """Repair or block what fails. A repair is judged before it goes out."""
        if blocked := [check for check in found if self._actions[check] is Action.BLOCK]:
            return self._block(blocked)
        held, go_back, done = self._held.pieces, told.saved(), dict(self._notes.repaired)
        errors = [piece for piece in held if piece.is_error]  # which stay as they are
        before = self._account.before(told.went, held)
        told.is_trying = True
        try:
            told.begin(statuses)
            out = self._release(() if is_last and not self._withholds else self._waiting(told, statuses))
        except NoDestinationError as problem:
            reason = f"the model wrote {problem}"
        else:
            late = NO_REPAIR if b"".join(out) == b"".join(piece.raw for piece in held) else TOO_LATE
            reason = told.problem or (late if Status.READY in statuses.values() or errors else _NO_NAME)
            stays = told.problem and self._fallback is Action.BLOCK
            if not stays and not self._asking.fails(told.went, errors, found):
                self._notes.count(found)
                self._account.begin(before)
                return out
        finally:
            told.is_trying = False
        self._notes.repaired = done
        self._held.put_back(held)
        go_back()
        told.forget(statuses)
        self._notes.leave(found, reason)
        return self._block(found) if self._fallback is Action.BLOCK else self._release()

    def _waiting(self, told: StreamHandler, statuses: Mapping[Place, Status]) -> frozenset[int]:
        """The choices that wait on while another one is told anew: of theirs there is no verdict yet."""
        of = {status: {place[0] for place, one in statuses.items() if one is status} for status in Status}
        return frozenset(of[Status.OPEN] - of[Status.READY] - self._over if told.ends_with_choices else ())

    def _release(self, waiting: Collection[int] = ()) -> list[bytes]:
        """What is held goes out, but for choices that wait: the very bytes, unless something of it is told anew."""
        held = self._held.take(waiting)
        if (told := self._told) is None:
            for piece in held:
                self._plain.add(piece.raw, ())
            return [piece.raw for piece in held]
        out = [one for piece in held for one in told.tell(piece)]
        for place, tracked in told.texts.items():
            if tracked.unsent and place[0] not in waiting:
                tracked.settle()
        return out if not told.problem or told.is_trying else self._with_problem(told, out)

    def _with_problem(self, told: StreamHandler, out: list[bytes]) -> list[bytes]:
        """What goes out where something behind a leak cannot be told anew: it stands where it stood, or the answer is blocked."""
        self._notes.leave(self._asked, told.problem)
        if self._fallback is not Action.BLOCK:
            return out
        return self._block(self._asking.fails(told.went, (), self._asked) or self._notes.repaired.keys() & self._asked)

    def _conclude(self) -> list[bytes]:
        """The answer is complete: what fails now fails for good."""
        number = self._number  # of the next event, if none of what is held goes out
        out = self._resolve(is_last=True)
        if not self.is_over and self._blocking:
            found = self._asking.fails_whole(self._went, self._held.pieces, self._blocking)
            return self._block(found, number) if found else out
        return out

    def _close_account(self) -> None:
        """Say what is left of what fails."""
        if self.is_over or self._passing:
            return
        if self._told is not None:
            self._account.close(self._told)
        elif self._unrepaired:
            reason = f"answers of the API {self._api} are not repaired"
            self._notes.leave(self._asking.fails_whole(self._plain, self._held.pieces, self._unrepaired), reason)

    def _remains(self) -> Iterable[bytes]:
        """What readers still hold where the stream ends without a finish reason."""
        if self._told is None or self.is_over:
            return ()
        rest = self._told.rest()
        return self._with_problem(self._told, rest) if self._told.problem else rest

    def _block(self, found: Collection[str], number: int | None = None) -> list[bytes]:
        self._blocked = tuple(sorted(found))
        self.is_over = True
        self._held.take()
        number = self._number if number is None else number
        return [error_event(self._api, BLOCKED, blocked_message(self._blocked, self._id), number=number)]

    def _unexamined(self) -> list[bytes]:
        self.is_over = True
        self._held.take()
        return [error_event(self._api, NOT_EXAMINED, unexamined_message(self._id), number=self._number)]

    def _give_up(self, reason: str) -> list[bytes]:
        """Nothing more is looked at: what is held goes out, and the rest as it comes."""
        if self.is_over:
            return []
        self._notes.leave(self._asked | self._blocking, reason)
        if self._is_closed:
            return self._unexamined()
        out = [*self._release(), *self._remains(), self._splitter.rest()]
        self._passing = True
        self._told, self._plain = None, EmittedHistory(None, keeps_bytes=False)
        return out
