"""One streamed answer that is acted on as it goes by.

Every event goes out at once as the bytes it came as, unless something that is not out yet may become a leak. Needles say when to ask, the checks say
whether it is one, on the exchange so far; what a check says and further text could undo (an open code fence, a marker that more text follows) is waited
for, within bounds. From where a check failed on, the text is read as the Harmony it is, and told anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from harmony_conformance.apis import api_named
from harmony_conformance.apis.api import Framing
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, at, items, text
from harmony_conformance.wire import Request, Response
from harmony_proxy.acted import Acted
from harmony_proxy.acting.asking import Asking
from harmony_proxy.acting.dialect import DIALECTS, Part, counted
from harmony_proxy.acting.events import LineSplitter, Piece, Splitter, SseSplitter
from harmony_proxy.acting.history import History
from harmony_proxy.acting.mending import declared_by, finish_of
from harmony_proxy.acting.reading import NoPlace
from harmony_proxy.acting.repairs import REPAIRS
from harmony_proxy.acting.retelling import Place, Retelling
from harmony_proxy.acting.tracking import Status
from harmony_proxy.policy import Action
from harmony_proxy.refusal import BLOCKED, BROKEN_OFF, blocked_message, error_event

HOLD_LIMIT = 64 * 1024
"""The most bytes that are held for one verdict; beyond it they pass."""

FINISH = "tool_calls.finish_reason_agrees"
TEXTS = frozenset(
    {
        "channels.no_marker_leak",
        "channels.no_channel_words",
        "channels.no_reasoning_in_content",
        "tool_calls.name_is_declared",
    }
)
"""The checks that are asked while the stream goes on."""

_WORDS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_ENDINGS = ("response.completed", "response.incomplete", "response.failed")
_NO_NAME = "what was left of the name is no function that the request declares"
_TOO_LATE = "what leaks went out before it showed"


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
        dialect = DIALECTS.get(api) if response.is_success else None
        self._api, self._id = api, request_id
        self._actions, self._fallback, self._limit = actions, fallback, limit
        self._is_lines = api_named(api).framing is Framing.LINES and response.is_line_stream
        self._splitter: Splitter = LineSplitter(limit=limit) if self._is_lines else SseSplitter(limit=limit)
        self._told = (
            Retelling(dialect, declared_by(x), request.body, reasoning_field)
            if dialect is not None and (acting & REPAIRS.keys() or reasoning_field is not None)
            else None
        )
        self._asked = acting & TEXTS
        self._mends_finish = actions.get(FINISH) is Action.REPAIR
        self._blocking = frozenset(
            check for check in acting if fallback is Action.BLOCK or actions[check] is Action.BLOCK
        )
        self._asking = Asking(x, dialect, is_lines=self._is_lines)
        self._went = History(dialect if self._told is not None else None, keeps_bytes=bool(self._blocking))
        self._held: list[Piece] = []
        self._held_size = self._size = 0
        self._seen: set[int] = set()
        self._over: set[int] = set()
        self._passing = False
        self._repaired: dict[str, int] = {}
        self._left: dict[str, str] = {}
        self._blocked: tuple[str, ...] = ()

    @property
    def acted(self) -> Acted:
        """What was done so far."""
        repaired, left = MappingProxyType(dict(self._repaired)), MappingProxyType(dict(self._left))
        return Acted(repaired=repaired, blocked=self._blocked, left=left)

    def feed(self, data: bytes) -> list[bytes]:
        """More of the body; what goes to the client now."""
        if self.is_over or not data:
            return []
        if self._passing:
            return [data]
        self._size += len(data)
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
        out = [*self._conclude(), *self._remains()]
        return _joined(out if self.is_over else [*out, self._splitter.rest()])

    def abort(self) -> list[bytes]:
        """The server broke off. What was held goes out, told anew where it leaks; half an event does not."""
        if self.is_over:
            return []
        out = [] if self._passing else [*self._resolve(is_last=True), *self._remains()]
        if not self.is_over:
            out.append(error_event(self._api, BROKEN_OFF, f"The server broke off its answer (request {self._id})"))
        return _joined(out)

    # what has to wait

    def _take(self, piece: Piece) -> list[bytes]:
        if self.is_over or self._passing:
            return [] if self.is_over else [piece.raw]
        value = piece.value
        parts = self._told.dialect.parts(value) if self._told is not None else ()
        if not self._held and not piece.is_done and self._passes(parts) and not self._ends_with(value):
            self._went.add(piece.raw, parts)
            return [piece.raw]
        self._held.append(piece)
        self._held_size += len(piece.raw)
        if piece.is_done:
            return self._conclude()
        for part in parts:
            self._track(part)
        if self._is_lines and at(value, "done") is True:
            return self._conclude()
        waits = self._blocking and (self._ends_with(value) or (self._seen == self._over and bool(self._seen)))
        return [] if waits else self._resolve(is_last=False)

    def _passes(self, parts: Sequence[Part]) -> bool:
        """Whether an event is nothing but text without a needle."""
        told = self._told
        if told is None:
            return True
        if told.is_at_work:
            return False
        for part in parts:
            if part.finish is not None or "tool_calls" in part.said or part.choice not in told.tellings:
                return False
            if not all(tracked.passes(said) for tracked, said in told.texts_of(part)):
                return False
        return True

    def _ends_with(self, value: Json) -> bool:
        """Whether the server says with this event that the answer is complete, in an API whose answers are only blocked."""
        if self._told is not None or not self._blocking:
            return False
        is_last = at(value, "generated_text") is not None or at(value, "done") is True
        ends = any(at(choice, "finish_reason") is not None for choice in items(at(value, "choices")))
        return is_last or ends or text(at(value, "type")) in _ENDINGS

    def _track(self, part: Part) -> None:
        self._seen.add(part.choice)
        if part.finish is not None:
            self._over.add(part.choice)
        if self._told is not None:
            for tracked, said in self._told.texts_of(part):
                tracked.add(said)

    def _resolve(self, *, is_last: bool) -> list[bytes]:
        """What can go out of what is held."""
        told = self._told
        if told is None or not self._asked:
            return self._release()
        statuses = {place: tracked.status() for place, tracked in told.texts.items()}
        is_odd = not told.cleans_names and any(map(self._is_odd, self._held))
        if not is_odd and not any(status is not Status.CLEAR for status in statuses.values()):
            return self._release()
        if is_odd or Status.READY in statuses.values() or is_last or self._over:
            if not is_last and not self._asking.may_ask(self._size):
                return self._too_much()
            found = self._asking.fails(self._went, self._held, self._asked)
            if not found and (is_last or not any(map(self._goes_on, statuses))):
                return self._release()
            ready = [place for place, status in statuses.items() if status is Status.READY and self._may_grow(place)]
            if found and (is_last or is_odd or self._asking.is_final(found, self._went, self._held, ready)):
                return self._act(found, statuses)
        return self._too_much()

    def _may_grow(self, place: Place) -> bool:
        return place[0] not in self._over

    def _goes_on(self, place: Place) -> bool:
        tracked = self._told.texts[place] if self._told is not None else None
        return (
            tracked is not None
            and self._may_grow(place)
            and not tracked.is_read
            and bool(tracked.unsent)
            and tracked.goes_on
        )

    def _is_odd(self, piece: Piece) -> bool:
        told = self._told
        if told is None or not told.declared:
            return False
        parts = told.dialect.parts(piece.value)
        return any(told.is_odd(call) for part in parts for call in items(part.said.get("tool_calls")))

    def _too_much(self) -> list[bytes]:
        """Nothing, as long as there is room for what is held."""
        if self._held_size <= min(HOLD_LIMIT, self._limit) or self._told is None:
            return []
        self._leave(self._asked, f"no verdict within {HOLD_LIMIT} bytes")
        for tracked in self._told.texts.values():
            tracked.is_given_up = tracked.is_given_up or (tracked.reader is None and bool(tracked.unsent))
        return self._release()

    # what goes out

    def _act(self, found: Collection[str], statuses: Mapping[Place, Status]) -> list[bytes]:
        """Repair or block what fails. A repair is judged before it goes out."""
        blocked = [check for check in found if self._actions[check] is Action.BLOCK]
        if blocked or self._told is None:
            return self._block(blocked)
        held, went, saved, done = self._held, self._went.copy(), self._told.saved(), dict(self._repaired)
        try:
            self._told.begin(statuses)
            out = self._release()
        except NoPlace as problem:
            reason = f"the model wrote {problem}"
        else:
            if self.is_over:
                return out
            reason = self._told.problem or (_TOO_LATE if Status.READY in statuses.values() else _NO_NAME)
            if not self._asking.fails(self._went, (), found):
                self._count(found)
                return out
        self._went, self._repaired = went, done
        self._held, self._held_size = held, sum(len(piece.raw) for piece in held)
        self._told.go_back(saved, statuses)
        self._leave(found, reason)
        return self._block(found) if self._fallback is Action.BLOCK else self._release()

    def _release(self) -> list[bytes]:
        """What is held goes out: the very bytes, unless something of it is told anew."""
        held, self._held, self._held_size = self._held, [], 0
        out: list[bytes] = []
        for piece in held:
            out += self._tell(piece)
        for tracked in self._told.texts.values() if self._told is not None else ():
            if tracked.unsent:
                tracked.settle()
        return out

    def _tell(self, piece: Piece) -> list[bytes]:
        told = self._told
        parts = told.dialect.parts(piece.value) if told is not None else ()
        if told is None or not parts:
            return [self._unsaid(piece)]
        said: dict[int, list[JsonObject]] = {}
        finish: dict[int, str] = {}
        for part in parts:
            deltas = told.deltas(part)
            if deltas != [part.said]:
                said[part.choice] = deltas
            if part.finish is not None and (mended := self._mended(told, part, piece)) is not None:
                finish[part.choice] = mended
        if told.problem:
            self._leave(self._asked, told.problem)
        if not said and not finish:
            self._went.add(piece.raw, parts)
            return [piece.raw]
        out: list[bytes] = []
        for value in told.dialect.told(piece.value, said, finish):
            out.append(piece.told(self._counted(value)))
            self._went.add(out[-1], told.dialect.parts(value))
        return out

    def _unsaid(self, piece: Piece) -> bytes:
        """An event that says nothing, with the usage that goes with what was told anew."""
        value = self._counted(piece.value)
        raw = piece.raw if value is piece.value else piece.told(value)
        self._went.add(raw, ())
        return raw

    def _counted(self, value: Json) -> Json:
        """A value whose usage counts the reasoning that was found."""
        is_due = self._told is not None and self._told.is_at_work and at(value, "usage") is not None
        return counted(value, self._told.thought) if self._told is not None and is_due else value

    def _mended(self, told: Retelling, part: Part, piece: Piece) -> str | None:
        """The finish reason in place of one that is wrong."""
        telling = told.tellings[part.choice]
        calls, said, has_word = telling.calls > 0, part.finish, told.dialect.finishes_with_calls
        if telling.made and said == "stop" and has_word:
            return "tool_calls"
        is_odd = said not in _WORDS or (has_word and said == ("stop" if calls else "tool_calls"))
        if not (is_odd and self._mends_finish):
            return None
        if FINISH not in self._asking.fails(self._went, (), (FINISH,), piece.raw):
            return None
        mended = finish_of(said, calls=calls)
        if mended is None:
            self._leave((FINISH,), "nobody can tell what the finish reason should be")
        else:
            self._count((FINISH,))
        return mended

    def _conclude(self) -> list[bytes]:
        """The answer is complete: what fails now fails for good."""
        out = self._resolve(is_last=True)
        if not self.is_over and self._blocking:
            found = self._asking.fails_whole(self._went, self._held, self._blocking)
            return self._block(found) if found else out
        return out

    def _remains(self) -> Iterable[bytes]:
        """What readers still hold where the stream ends without a finish reason."""
        if self._told is None or self.is_over:
            return ()
        return [self._asking.framed(event) for event in self._told.rest()]

    def _block(self, found: Collection[str]) -> list[bytes]:
        self._blocked = tuple(sorted(found))
        self.is_over, self._held = True, []
        return [error_event(self._api, BLOCKED, blocked_message(self._blocked, self._id))]

    def _give_up(self, reason: str) -> list[bytes]:
        """Nothing more is looked at: what is held goes out, and the rest as it comes."""
        if self.is_over:
            return []
        self._leave(self._asked | self._blocking, reason)
        out = [*self._release(), *self._remains(), self._splitter.rest()]
        self._passing = True
        self._went = History(None, keeps_bytes=False)
        return out

    def _count(self, checks: Iterable[str]) -> None:
        for check in checks:
            self._repaired[check] = self._repaired.get(check, 0) + 1

    def _leave(self, checks: Iterable[str], reason: str) -> None:
        for check in checks:
            self._left.setdefault(check, reason)


def _joined(out: Iterable[bytes]) -> list[bytes]:
    data = b"".join(out)
    return [data] if data else []
