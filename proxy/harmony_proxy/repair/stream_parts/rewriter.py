"""A stream told anew, from where a check failed on: its texts, who reads those that leak, and the names of its calls. What the APIs have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from harmony_conformance.json_value import Json, JsonObject, at, items, number, text
from harmony_conformance.judge.check import Finding
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.answer.check_verdicts import choice_of
from harmony_proxy.repair.answer.fixes import clean_name
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.event_templates import EventTemplates, Key
from harmony_proxy.repair.stream_parts.stream_judge import CALL, Emission, StreamJudge
from harmony_proxy.repair.stream_parts.text_tracker import ArgumentsTracker, Status, TextTracker
from harmony_proxy.repair.text.api_dialects import ChoiceContent, Dialect, home_of
from harmony_proxy.repair.text.leak_prefixes import MARKER, SEAM
from harmony_proxy.repair.text.leaked_text_parser import LeakedTextParser, NoDestinationError, ParsedText, TextKind

Place = tuple[int, str]
"""A choice, or an item of the Responses API, and the member of it that holds a text (`call/0`: the arguments of its first call)."""


class StreamHandler(Protocol):
    """A streamed answer of one API: how it is read, and how it is told anew."""

    texts: dict[Place, TextTracker]
    declared: frozenset[str]
    cleans_names: bool
    is_at_work: bool
    is_trying: bool
    problem: str
    ends_with_choices: bool

    @property
    def number(self) -> int:
        """Which number the next event has, where they are numbered."""
        ...

    @property
    def went(self) -> Emission:
        """What went out."""
        ...

    def parts(self, piece: RawEvent) -> Sequence[ChoiceContent]:
        """What an event says; to be asked once, when it comes."""
        ...

    def texts_of(self, part: ChoiceContent) -> Iterator[tuple[TextTracker, str]]:
        """The texts of a part, each with the piece that it goes on with."""
        ...

    def is_plain(self, part: ChoiceContent) -> bool:
        """Whether a part is nothing but text of something that was told before."""
        ...

    def announces(self, piece: RawEvent) -> bool:
        """Whether an event only says that something will be told."""
        ...

    def is_end(self, piece: RawEvent) -> bool:
        """Whether the server says with this event that the answer is complete."""
        ...

    def is_odd(self, call: Json) -> bool:
        """Whether a call names a function that the request does not declare, or has an id with a marker."""
        ...

    def is_suspect(self, piece: RawEvent) -> bool:
        """Whether an event is to be judged whatever its texts hold: an error, or one that tells again what may leak."""
        ...

    def probe(self, place: Place, said: str) -> JsonObject:
        """An event in which a text goes on."""
        ...

    def further(self) -> Iterable[JsonObject]:
        """Events in which a further text begins where one is over, of an API that has several for the user."""
        ...

    def passed(self, piece: RawEvent) -> None:
        """An event went out as it came."""
        ...

    def learn(self, piece: RawEvent, moulds: EventTemplates) -> None:
        """Make a mould of an event that went out as it came, if it is nothing but more of a text."""
        ...

    def grow(self, raw: bytes, key: Key, said: str, number: int | None) -> None:
        """An event that fits a mould went out as it came."""
        ...

    def tell(self, piece: RawEvent) -> list[bytes]:
        """What goes out for an event."""
        ...

    def rest(self) -> list[bytes]:
        """What readers still hold where the stream breaks off."""
        ...

    def others(self) -> bytes:
        """What `went` does not have: what is said in members that are not told anew."""
        ...

    def ending(self) -> bytes:
        """What `went` does not have: how it ended, as it went out."""
        ...

    def saved(self) -> Callable[[], None]:
        """What takes it back to where it is now."""
        ...

    def forget(self, statuses: Mapping[Place, Status]) -> None:
        """What was begun is given up: these texts stay as they are."""
        ...

    def concerned(
        self, statuses: Mapping[Place, Status], found: Mapping[str, Iterable[Finding]]
    ) -> Mapping[Place, Status]:
        """The same, but of choices in which nothing was found there is no verdict yet."""
        ...

    def begin(self, statuses: Mapping[Place, Status]) -> None:
        """From here on, what leaks is told anew.

        Raises:
            NoPlace: it began before.
        """
        ...


class StreamRewriter:
    """State: the texts of each choice, who reads those that leak, and whether the names of calls are cleaned.

    `is_trying` says that there is a way back. `problem` says what had no place in the answer, since it was asked last. `ends_with_choices`: whether the
    answer is complete once all choices are.
    """

    ends_with_choices = True
    number = 0

    def __init__(self, dialect: Dialect, declared: frozenset[str], asking: StreamJudge, notes: ActionNotes) -> None:
        self.dialect = dialect
        self.declared = declared
        self.may_be_called = frozenset(filter(asking.may_be_called, declared))
        self.texts: dict[Place, TextTracker] = {}
        self.cleans_names = False
        self.is_at_work = self.is_trying = False
        self.problem = ""
        self.asking = asking
        self.notes = notes

    def texts_of(self, part: ChoiceContent) -> Iterator[tuple[TextTracker, str]]:
        """The texts of a part, each with the piece that it goes on with."""
        for member, said in self.dialect.texts(part):
            yield self._text((part.choice, member)), said
        if not self.dialect.calls_are_whole and "tool_calls" in part.said:
            for call in items(part.said["tool_calls"]):
                yield self._text((part.choice, place_of(call))), text(at(call, "function", "arguments"))

    def _text(self, place: Place) -> TextTracker:
        found = self.texts.get(place)
        if found is None:
            found = self.texts[place] = ArgumentsTracker() if place[1].startswith(CALL) else TextTracker()
        return found

    def further(self) -> Iterable[JsonObject]:
        """None."""
        return ()

    def is_suspect(self, piece: RawEvent) -> bool:
        """Whether an event is to be judged whatever its texts hold: an error."""
        return piece.is_error

    def concerned(
        self, statuses: Mapping[Place, Status], found: Mapping[str, Iterable[Finding]]
    ) -> Mapping[Place, Status]:
        """The same, but of choices in which nothing was found there is no verdict yet."""
        if not self.ends_with_choices:
            return statuses
        leaking = {choice_of(finding) for findings in found.values() for finding in findings}
        if leaking == {0} and all(place[0] or status is Status.CLEAR for place, status in statuses.items()):
            return statuses  # of the first that was told of
        return {
            place: Status.OPEN if status is Status.READY and place[0] not in leaking else status
            for place, status in statuses.items()
        }

    def forget(self, statuses: Mapping[Place, Status]) -> None:
        """What was begun is given up: these texts stay as they are."""
        for place, status in statuses.items():
            if status is Status.READY:
                tracked = self.texts[place]
                tracked.reader, tracked.is_given_up = None, True
                if isinstance(tracked, ArgumentsTracker):
                    tracked.is_cut = False

    def begin(self, statuses: Mapping[Place, Status]) -> None:
        """From here on, what leaks is told anew.

        Raises:
            NoPlace: it began before.
        """
        self.cleans_names = self.is_at_work = True
        for place, status in statuses.items():
            tracked = self.texts[place]
            if status is not Status.READY or tracked.is_read:
                continue
            if isinstance(tracked, ArgumentsTracker):
                tracked.is_cut = True
                continue
            home = home_of(self.dialect, place[1])
            if home is TextKind.CONTENT and not tracked.is_start and _ends_a_thought(tracked.unsent):
                raise NoDestinationError("its thought as content, which went out before its end showed it")
            tracked.reader = LeakedTextParser(home, self.may_be_called, before=tracked.before, glued=tracked.is_glued)

    def spoken(self, part: ChoiceContent) -> tuple[list[ParsedText], frozenset[str]]:
        """What the texts of a part say that are told anew, and the members in which they stood."""
        said_: list[ParsedText] = []
        read: list[str] = []
        for member, said in self.dialect.texts(part):
            tracked = self.texts.get((part.choice, member))
            if tracked is not None and tracked.reader is not None:
                read.append(member)
                said_ += self._read(tracked, said, home_of(self.dialect, member))
        return said_ + (self.rest_of(part.choice) if part.finish is not None else []), frozenset(read)

    def _read(self, tracked: TextTracker, said: str, home: TextKind) -> list[ParsedText]:
        """What a piece of a leaking text says; where a message has no place, it stays where it stands, and nothing more is read."""
        if tracked.reader is None:
            return [ParsedText(kind=home, text=said)]
        try:
            return tracked.reader.feed(said)
        except NoDestinationError as problem:
            return self._given_up(tracked, tracked.reader, home, problem)

    def rest_of(self, choice: int) -> list[ParsedText]:
        """What the readers of a choice have not told yet."""
        rest: list[ParsedText] = []
        for (of, member), tracked in self.texts.items():
            if of != choice or tracked.reader is None:
                continue
            home = home_of(self.dialect, member)
            try:
                rest += tracked.reader.close()
            except NoDestinationError as problem:
                rest += self._given_up(tracked, tracked.reader, home, problem)
            tracked.reader, tracked.is_given_up = None, True
        return rest

    def _given_up(
        self, tracked: TextTracker, reader: LeakedTextParser, home: TextKind, problem: NoDestinationError
    ) -> list[ParsedText]:
        self.problem = f"the model wrote {problem}"
        tracked.reader, tracked.is_given_up = None, True
        return [*reader.told(), ParsedText(kind=home, text=reader.unread)]

    def cleaned(self, choice: int, call: Json) -> Json:
        """A call with its name and id cleaned, and its arguments cut."""
        function = at(call, "function")
        if not isinstance(function, dict) or not isinstance(call, dict):
            return call
        mended, identity = dict(function), call.get("id")
        name = text(function.get("name"))
        if self.cleans_names and name and name not in self.declared:
            mended["name"] = clean_name(name, self.declared) or name
        if self.cleans_names and isinstance(identity, str):
            identity = MARKER.sub("", identity) or identity
        tracked = self.texts.get((choice, place_of(call)))
        if isinstance(tracked, ArgumentsTracker) and isinstance(function.get("arguments"), str):
            mended["arguments"] = tracked.kept(text(function["arguments"]))
        if mended == function and identity == call.get("id"):
            return call
        return {**call, **({"id": identity} if "id" in call else {}), "function": mended}

    def is_odd(self, call: Json) -> bool:
        """Whether a call names a function that the request does not declare, or has an id with a marker."""
        name = text(at(call, "function", "name"))
        return (name != "" and name not in self.declared) or MARKER.search(text(at(call, "id"))) is not None


def place_of(call: Json) -> str:
    """The name of the arguments of a call among the texts of its choice."""
    return f"{CALL}{number(at(call, 'index')) or 0}"


def _ends_a_thought(held: str) -> bool:
    """Whether what is held only shows that what stood before it was a thought. Where it begins one, that is what must not go out as well."""
    found = SEAM.search(held)
    return found is not None and found["channel"] == "final" and "<" not in held[: found.start()]
