"""One streamed answer that is acted on as it goes by.

Every event goes out at once as the bytes it came as, unless something that is not out yet may become a leak. Needles say when to ask, the checks say
whether it is one, on the exchange so far; what a check says and further text could undo (an open code fence, a marker that more text follows) is waited
for, within bounds. From where a check failed on, the text is read as the Harmony it is, and told anew.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType

from harmony_conformance.apis import api_named
from harmony_conformance.apis.api import Framing
from harmony_conformance.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, number, text
from harmony_conformance.wire import Chunk, Request, Response
from harmony_proxy.acted import Acted
from harmony_proxy.acting.dialect import DIALECTS, Dialect, Part, home_of
from harmony_proxy.acting.events import LineSplitter, Piece, Splitter, SseSplitter
from harmony_proxy.acting.mending import clean_name, declared_by, finish_of
from harmony_proxy.acting.needles import MARKER, SEAM
from harmony_proxy.acting.reading import Kind, NoPlace, Reader, Said
from harmony_proxy.acting.repairs import REPAIRS
from harmony_proxy.acting.telling import Telling
from harmony_proxy.acting.tracking import Status, Tracked, TrackedArguments
from harmony_proxy.acting.verdicts import fails
from harmony_proxy.acting.whole import renamed
from harmony_proxy.policy import Action
from harmony_proxy.refusal import BLOCKED, BROKEN_OFF, blocked_message, error_event

HOLD_LIMIT = 64 * 1024
"""The most bytes that are held for one verdict; beyond it they pass."""

NAME, FINISH = "tool_calls.name_is_declared", "tool_calls.finish_reason_agrees"
TEXTS = frozenset({"channels.no_marker_leak", "channels.no_channel_words", "channels.no_reasoning_in_content", NAME})
"""The checks that are asked while the stream goes on."""

_PROBES = (" x", "`", '"', "\n```\n", "\n~~~\n", "\u201d ", "' ")
"""What may follow: a verdict that holds whichever does is final."""
_FREE_ASKS = 48
_GROWTH = 1.25
_WORDS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
_ENDINGS = ("response.completed", "response.incomplete", "response.failed")


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
        self._x = Exchange(id=request_id, request=request, response=response, api=api)
        self._response, self._api = response, api
        self._actions, self._fallback, self._limit = actions, fallback, limit
        self._dialect = DIALECTS.get(api) if response.is_success else None
        self._field = reasoning_field
        is_lines = api_named(api).framing is Framing.LINES and response.is_line_stream
        self._splitter: Splitter = LineSplitter(limit=limit) if is_lines else SseSplitter(limit=limit)
        self._is_lines = is_lines
        acting = {check for check, action in actions.items() if action is not Action.OBSERVE}
        self._asked = acting & TEXTS if self._dialect is not None else frozenset[str]()
        self._mends_finish = self._dialect is not None and actions.get(FINISH) is Action.REPAIR
        blocks_all = fallback is Action.BLOCK
        self._blocking = frozenset(check for check in acting if blocks_all or actions[check] is Action.BLOCK)
        self._declared = declared_by(self._x) if self._dialect is not None else frozenset[str]()
        self._sent: list[bytes] = []
        self._held: list[Piece] = []
        self._size = self._held_size = 0
        self._texts: dict[tuple[int, str], Tracked] = {}
        self._tellings: dict[int, Telling] = {}
        self._seen: set[int] = set()
        self._over: set[int] = set()
        self._cleans_names = False
        self._passing = False
        self._asks, self._asked_at = 0, 0
        self._repaired: dict[str, int] = {}
        self._left: dict[str, str] = {}
        self._blocked: tuple[str, ...] = ()

    @property
    def acted(self) -> Acted:
        """What was done so far."""
        return Acted(
            repaired=MappingProxyType(dict(self._repaired)),
            blocked=self._blocked,
            left=MappingProxyType(dict(self._left)),
        )

    def feed(self, data: bytes) -> list[bytes]:
        """More of the body; what goes to the client now."""
        if self.is_over or not data:
            return []
        if self._passing:
            return [data]
        self._size += len(data)
        pieces = self._splitter.feed(data)
        out = [told for piece in pieces for told in self._take(piece)]
        if self._splitter.is_lost or self._size > self._limit:
            out += self._give_up(f"the answer is larger than the {self._limit} bytes that are kept of one")
        return [b"".join(out)] if any(out) else []

    def close(self) -> list[bytes]:
        """The answer is complete; the rest of what goes to the client."""
        if self.is_over or self._passing:
            return []
        out = [*self._conclude(), *self._remains()]
        if not self.is_over:
            out.append(self._splitter.rest())
        return [b"".join(out)] if any(out) else []

    def abort(self) -> list[bytes]:
        """The server broke off. What was held goes out, told anew where it leaks; half an event does not."""
        if self.is_over:
            return []
        out = [] if self._passing else [*self._resolve(is_last=True), *self._release(), *self._remains()]
        if self.is_over:
            return out
        message = f"The server broke off its answer (request {self._x.id})"
        return [b"".join(out), error_event(self._api, BROKEN_OFF, message)]

    # deciding

    def _take(self, piece: Piece) -> list[bytes]:
        if self.is_over:
            return []
        if self._passing:
            return [piece.raw]
        if self._held or piece.data is not None:
            self._hold(piece)
        else:
            self._sent.append(piece.raw)
            return [piece.raw]
        if piece.is_done:
            return self._conclude()
        parts = self._dialect.parts(piece.value) if self._dialect is not None else ()
        for part in parts:
            self._track(part)
        is_end = self._is_end(piece, parts)
        if is_end and self._is_lines:
            return self._conclude()
        if self._blocking and (is_end or self._ends()):
            return []
        return self._resolve(is_last=False)

    def _is_end(self, piece: Piece, parts: Collection[Part]) -> bool:
        """Whether the server says with this event that the answer is complete."""
        if self._is_lines:
            return at(piece.value, "done") is True
        return not parts and (text(at(piece.value, "type")) in _ENDINGS or self._has_finished(piece.value))

    @staticmethod
    def _has_finished(value: Json) -> bool:
        choices = items(at(value, "choices"))
        return at(value, "generated_text") is not None or any(
            at(choice, "finish_reason") is not None for choice in choices
        )

    def _ends(self) -> bool:
        return bool(self._seen) and self._seen == self._over

    def _hold(self, piece: Piece) -> None:
        self._held.append(piece)
        self._held_size += len(piece.raw)

    def _track(self, part: Part) -> None:
        if self._dialect is None:
            return
        self._seen.add(part.choice)
        if part.finish is not None:
            self._over.add(part.choice)
        for member, said in self._dialect.texts(part):
            self._text(part.choice, member).add(said)
        if not self._dialect.calls_are_whole:
            for call in items(part.said.get("tool_calls")):
                self._text(part.choice, _place(call)).add(text(at(call, "function", "arguments")))

    def _text(self, choice: int, member: str) -> Tracked:
        found = self._texts.get((choice, member))
        if found is None:
            found = self._texts[choice, member] = TrackedArguments() if member.startswith(_CALL) else Tracked()
        return found

    def _resolve(self, *, is_last: bool) -> list[bytes]:
        """What can go out of what is held."""
        statuses = {place: tracked.status() for place, tracked in self._texts.items()}
        has_odd_name = not self._cleans_names and any(map(self._is_odd, self._held))
        if not has_odd_name and not any(status is not Status.CLEAR for status in statuses.values()):
            return self._release()
        if not self._asked:
            return self._release()
        if has_odd_name or Status.READY in statuses.values() or is_last or self._over:
            waits = self._may_ask(is_last=is_last)
            found = fails(self._so_far(), self._asked) if waits else None
            if found is None:
                return self._too_much()
            if found and (is_last or has_odd_name or self._is_final(found, statuses)):
                return self._act(found, statuses)
            if not found and (is_last or not any(self._goes_on(place) for place in statuses)):
                return self._release()
        return self._too_much()

    def _goes_on(self, place: tuple[int, str]) -> bool:
        tracked = self._texts[place]
        return place[0] not in self._over and not tracked.is_read and bool(tracked.unsent) and tracked.goes_on

    def _too_much(self) -> list[bytes]:
        if self._held_size <= min(HOLD_LIMIT, self._limit):
            return []
        self._leave(self._asked, f"no verdict within {HOLD_LIMIT} bytes")
        for tracked in self._texts.values():
            tracked.is_given_up = tracked.is_given_up or (tracked.reader is None and bool(tracked.unsent))
        return self._release()

    def _may_ask(self, *, is_last: bool) -> bool:
        """Whether to ask the checks now: often at first, then only once the answer has grown, so that no stream costs more than a few readings of it."""
        if not is_last and self._asks >= _FREE_ASKS and self._size < self._asked_at * _GROWTH:
            return False
        self._asks, self._asked_at = self._asks + 1, self._size
        return True

    def _is_final(self, found: Collection[str], statuses: Mapping[tuple[int, str], Status]) -> bool:
        """Whether the verdict holds whatever text follows."""
        if self._dialect is None:
            return False
        going = [place for place, status in statuses.items() if status is Status.READY and place[0] not in self._over]
        for choice, member in going:
            for probe in _PROBES:
                said = _delta_of(member, probe)
                event = self._event(self._dialect.delta(choice, said))
                if found != fails(self._so_far(event), found).keys() & set(found):
                    return False
        return True

    def _so_far(self, more: bytes = b"") -> Exchange:
        """The exchange as far as it is there: what went out, and what is held."""
        data = b"".join((*self._sent, *(piece.raw for piece in self._held), more))
        return replace(self._x, response=replace(self._response, chunks=(Chunk(at=0.0, data=data),)))

    def _event(self, value: JsonObject) -> bytes:
        data = dumps(value).encode("utf-8", "backslashreplace")
        return data + b"\n" if self._is_lines else b"data: " + data + b"\n\n"

    # acting

    def _act(self, found: Mapping[str, object], statuses: Mapping[tuple[int, str], Status]) -> list[bytes]:
        """Repair or block what fails."""
        blocked = [check for check in found if self._actions[check] is Action.BLOCK]
        if blocked:
            return self._block(blocked)
        held, sent = list(self._held), len(self._sent)
        before = ({choice: replace(one) for choice, one in self._tellings.items()}, self._cleans_names)
        try:
            self._begin(statuses)
            out = self._release()
        except NoPlace as problem:
            reason = f"the model wrote {problem}"
        else:
            if self.is_over:
                return out
            still = fails(self._so_far(), found.keys())
            if not still:
                for check in found:
                    self._repaired[check] = self._repaired.get(check, 0) + 1
                return out
            reason = _NO_NAME if Status.READY not in statuses.values() else _TOO_LATE
        del self._sent[sent:]
        self._held, self._held_size = held, sum(len(piece.raw) for piece in held)
        self._tellings, self._cleans_names = before
        self._leave(found, reason)
        if self._fallback is Action.BLOCK:
            return self._block(found)
        for place, status in statuses.items():
            tracked = self._texts[place]
            if status is Status.READY:
                tracked.reader, tracked.is_given_up = None, True
                if isinstance(tracked, TrackedArguments):
                    tracked.is_cut = False
        return self._release()

    def _begin(self, statuses: Mapping[tuple[int, str], Status]) -> None:
        """From here on, what leaks is told anew.

        Raises:
            NoPlace: it began before.
        """
        if self._dialect is None:
            return
        self._cleans_names = True
        for (choice, member), status in statuses.items():
            tracked = self._texts[choice, member]
            if status is not Status.READY or tracked.is_read:
                continue
            if isinstance(tracked, TrackedArguments):
                tracked.is_cut = True
                continue
            home = home_of(self._dialect, member)
            if home is Kind.CONTENT and not tracked.is_start and _ends_a_thought(tracked.unsent):
                raise NoPlace("its thought as content, which went out before its end showed it")
            tracked.reader = Reader(home, self._declared, before=tracked.before, glued=tracked.is_glued)

    def _release(self) -> list[bytes]:
        """What is held goes out."""
        held, self._held, self._held_size = self._held, [], 0
        out = [told for piece in held for told in self._tell(piece)]
        for tracked in self._texts.values():
            if tracked.unsent:
                tracked.settle()
        return out

    def _tell(self, piece: Piece) -> list[bytes]:
        """An event as it goes out: the very bytes, unless something of it is told anew."""
        if self.is_over:
            return []
        told = self._told(piece) if self._dialect is not None and piece.value is not None else None
        out = [piece.raw] if told is None else told
        self._sent += out
        return out

    def _told(self, piece: Piece) -> list[bytes] | None:
        dialect = self._dialect
        parts = dialect.parts(piece.value) if dialect is not None else ()
        if dialect is None or not parts:
            return None
        said: dict[int, list[JsonObject]] = {}
        finish: dict[int, str] = {}
        for part in parts:
            deltas = self._deltas(dialect, part)
            if deltas != [part.said]:
                said[part.choice] = deltas
            if part.finish is not None and (mended := self._mended(dialect, part, piece)) is not None:
                finish[part.choice] = mended
        if not said and not finish:
            return None
        values = dialect.told(piece.value, said, finish)
        return [piece.told(value) for value in values]

    def _deltas(self, dialect: Dialect, part: Part) -> list[JsonObject]:
        """What a choice says in an event, told anew where it leaks."""
        telling = self._telling(dialect, part)
        bare = self._with_calls(part)
        telling.calls += sum(1 for call in items(part.said.get("tool_calls")) if text(at(call, "function", "name")))
        spoken: list[Said] = []
        problem = ""
        for member, said in dialect.texts(part):
            tracked = self._texts.get((part.choice, member))
            if tracked is None or tracked.reader is None:
                continue
            bare = {name: one for name, one in bare.items() if name != member}
            told, problem = _read(tracked, said, home_of(dialect, member))
            spoken += told
        if part.finish is not None:
            told, late = self._rest_of(part.choice)
            spoken, problem = spoken + told, problem or late
        if problem:
            self._leave(self._asked, problem)
        deltas = telling.deltas(spoken, is_over=part.finish is not None)
        if self._field is not None:
            deltas, bare = [renamed(one, dialect, self._field) for one in deltas], renamed(bare, dialect, self._field)
        if not deltas:
            return [bare] if bare == part.said or bare.keys() - {"role"} or "content" not in part.said else []
        first, *others = deltas
        return [{**bare, **first}, *others] if not bare.keys() & first.keys() else [bare, first, *others]

    def _telling(self, dialect: Dialect, part: Part) -> Telling:
        found = self._tellings.get(part.choice)
        if found is None:
            found = self._tellings[part.choice] = Telling(
                dialect=dialect, body=self._x.request.body, choice=part.choice, reasoning=dialect.reasoning[0]
            )
        named = next((name for name in dialect.reasoning if text(part.said.get(name))), None)
        if named is not None:
            found.reasoning = named
        return found

    def _rest_of(self, choice: int) -> tuple[list[Said], str]:
        """What the readers of a choice have not told yet."""
        rest: list[Said] = []
        problem = ""
        for (of, member), tracked in self._texts.items():
            if of != choice or tracked.reader is None or self._dialect is None:
                continue
            home = home_of(self._dialect, member)
            try:
                rest += tracked.reader.close()
            except NoPlace as found:
                rest.append(Said(kind=home, text=tracked.reader.unread))
                problem = f"the model wrote {found}"
            tracked.reader, tracked.is_given_up = None, True
        return rest, problem

    def _with_calls(self, part: Part) -> JsonObject:
        """A delta with the names of its calls cleaned, and their arguments cut."""
        calls = items(part.said.get("tool_calls"))
        changed = [self._call(part.choice, call) for call in calls]
        return {**part.said, "tool_calls": changed} if changed != calls else part.said

    def _call(self, choice: int, call: Json) -> Json:
        function = at(call, "function")
        if not isinstance(function, dict) or not isinstance(call, dict):
            return call
        mended, identity = dict(function), call.get("id")
        name = text(function.get("name"))
        if self._cleans_names and name and name not in self._declared:
            cleaned = clean_name(name, self._declared)
            if cleaned is not None:
                mended["name"] = cleaned
        if self._cleans_names and isinstance(identity, str):
            identity = MARKER.sub("", identity) or identity
        tracked = self._texts.get((choice, _place(call)))
        if isinstance(tracked, TrackedArguments) and isinstance(function.get("arguments"), str):
            mended["arguments"] = tracked.kept(text(function["arguments"]))
        if mended == function and identity == call.get("id"):
            return call
        return {**call, **({"id": identity} if "id" in call else {}), "function": mended}

    def _is_odd(self, piece: Piece) -> bool:
        """Whether an event names a function that the request does not declare, or a call by an id with a marker."""
        if self._dialect is None or not self._declared:
            return False
        calls = (call for part in self._dialect.parts(piece.value) for call in items(part.said.get("tool_calls")))
        return any(self._is_odd_call(call) for call in calls)

    def _is_odd_call(self, call: Json) -> bool:
        name = text(at(call, "function", "name"))
        return (name != "" and name not in self._declared) or MARKER.search(text(at(call, "id"))) is not None

    def _mended(self, dialect: Dialect, part: Part, piece: Piece) -> str | None:
        """The finish reason in place of one that is wrong."""
        telling = self._tellings[part.choice]
        calls, said = telling.calls > 0, part.finish
        if telling.made and said == "stop" and dialect.finishes_with_calls:
            return "tool_calls"
        is_odd = said not in _WORDS or (dialect.finishes_with_calls and said == ("stop" if calls else "tool_calls"))
        if not (is_odd and self._mends_finish):
            return None
        if FINISH not in fails(self._so_far(piece.raw), (FINISH,)):
            return None
        mended = finish_of(said, calls=calls)
        if mended is None:
            self._leave((FINISH,), "nobody can tell what the finish reason should be")
        else:
            self._repaired[FINISH] = self._repaired.get(FINISH, 0) + 1
        return mended

    # ending

    def _conclude(self) -> list[bytes]:
        """The answer is complete: what fails now fails for good."""
        out = self._resolve(is_last=True)
        if not self.is_over and self._blocking and (found := fails(self._so_far(), self._blocking)):
            return self._block(found)
        return out

    def _remains(self) -> Iterator[bytes]:
        """What readers still hold where the stream ends without a finish reason."""
        if self._dialect is None or self.is_over:
            return
        for choice, telling in self._tellings.items():
            rest, _ = self._rest_of(choice)
            for said in telling.deltas(rest, is_over=True):
                yield self._event(self._dialect.delta(choice, said))

    def _block(self, found: Collection[str]) -> list[bytes]:
        self._blocked = tuple(sorted({*self._blocked, *found}))
        self.is_over = True
        self._held = []
        return [error_event(self._api, BLOCKED, blocked_message(self._blocked, self._x.id))]

    def _give_up(self, reason: str) -> list[bytes]:
        """Nothing more is looked at: what is held goes out, and the rest as it comes."""
        if self.is_over:
            return []
        self._leave(self._asked | self._blocking, reason)
        for tracked in self._texts.values():
            tracked.is_given_up = True
        out = [*self._release(), *self._remains(), self._splitter.rest()]
        self._passing = True
        self._sent = []
        return out

    def _leave(self, checks: Collection[str], reason: str) -> None:
        for check in checks:
            if check in REPAIRS or check in self._blocking:
                self._left.setdefault(check, reason)


_CALL = "call/"
_NO_NAME = "what was left of the name is no function that the request declares"
_TOO_LATE = "what leaks went out before it showed"


def _place(call: Json) -> str:
    return f"{_CALL}{number(at(call, 'index')) or 0}"


def _delta_of(member: str, said: str) -> JsonObject:
    if member.startswith(_CALL):
        return {"tool_calls": [{"index": int(member.removeprefix(_CALL)), "function": {"arguments": said}}]}
    return {member: said}


def _ends_a_thought(held: str) -> bool:
    """Whether what is held only shows that what stood before it was a thought."""
    found = SEAM.search(held)
    return found is not None and found["channel"] != "commentary" and "<" not in held[: found.start()]


def _read(tracked: Tracked, said: str, home: Kind) -> tuple[list[Said], str]:
    """What a piece of a leaking text says; where a message has no place, it stays where it stands, and nothing more is read."""
    if tracked.reader is None:
        return [Said(kind=home, text=said)], ""
    try:
        return tracked.reader.feed(said), ""
    except NoPlace as problem:
        rest = Said(kind=home, text=tracked.reader.unread)
        tracked.reader, tracked.is_given_up = None, True
        return [rest], f"the model wrote {problem}"
