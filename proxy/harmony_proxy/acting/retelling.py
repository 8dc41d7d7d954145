"""The events of a stream told anew, from where a check failed on: state by state what each choice says, and nothing about why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, at, items, number, text
from harmony_proxy.acting.asking import CALL
from harmony_proxy.acting.dialect import Dialect, Part, home_of
from harmony_proxy.acting.mending import clean_name
from harmony_proxy.acting.needles import MARKER, SEAM
from harmony_proxy.acting.reading import Kind, NoPlace, Reader, Said
from harmony_proxy.acting.telling import Telling
from harmony_proxy.acting.tracking import Status, Tracked, TrackedArguments
from harmony_proxy.acting.whole import renamed

Place = tuple[int, str]
"""A choice, and the member of it that holds a text (`call/0`: the arguments of its first call)."""


class Retelling:
    """State: the texts of each choice, who reads those that leak, and whether the names of calls are cleaned.

    `problem` says what had no place in the answer, since it was asked last.
    """

    def __init__(self, dialect: Dialect, declared: frozenset[str], body: bytes, reasoning_field: str | None) -> None:
        self.dialect = dialect
        self.declared = declared
        self.texts: dict[Place, Tracked] = {}
        self.tellings: dict[int, Telling] = {}
        self.cleans_names = False
        self.is_at_work = reasoning_field is not None
        self.problem = ""
        self._body = body
        self._field = reasoning_field

    @property
    def thought(self) -> str:
        """The reasoning that was found in other places."""
        return "".join(piece for telling in self.tellings.values() for piece in telling.thought)

    def texts_of(self, part: Part) -> Iterator[tuple[Tracked, str]]:
        """The texts of a part, each with the piece that it goes on with."""
        for member, said in self.dialect.texts(part):
            yield self._text((part.choice, member)), said
        if not self.dialect.calls_are_whole and "tool_calls" in part.said:
            for call in items(part.said["tool_calls"]):
                yield self._text((part.choice, place_of(call))), text(at(call, "function", "arguments"))

    def _text(self, place: Place) -> Tracked:
        found = self.texts.get(place)
        if found is None:
            found = self.texts[place] = TrackedArguments() if place[1].startswith(CALL) else Tracked()
        return found

    def saved(self) -> tuple[dict[int, Telling], bool, bool]:
        """What to go back to."""
        return {choice: replace(one) for choice, one in self.tellings.items()}, self.cleans_names, self.is_at_work

    def go_back(self, saved: tuple[dict[int, Telling], bool, bool], statuses: Mapping[Place, Status]) -> None:
        """What was begun is given up: these texts stay as they are."""
        self.tellings, self.cleans_names, self.is_at_work = saved
        for place, status in statuses.items():
            if status is Status.READY:
                tracked = self.texts[place]
                tracked.reader, tracked.is_given_up = None, True
                if isinstance(tracked, TrackedArguments):
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
            if isinstance(tracked, TrackedArguments):
                tracked.is_cut = True
                continue
            home = home_of(self.dialect, place[1])
            if home is Kind.CONTENT and not tracked.is_start and _ends_a_thought(tracked.unsent):
                raise NoPlace("its thought as content, which went out before its end showed it")
            tracked.reader = Reader(home, self.declared, before=tracked.before, glued=tracked.is_glued)

    def deltas(self, part: Part) -> list[JsonObject]:
        """What a choice says in an event, told anew where it leaks."""
        telling = self._telling(part)
        calls = items(part.said.get("tool_calls"))
        telling.calls += sum(1 for call in calls if text(at(call, "function", "name")))
        if not self.is_at_work:
            return [part.said]
        bare = self._with_calls(part, calls)
        spoken: list[Said] = []
        for member, said in self.dialect.texts(part):
            tracked = self.texts.get((part.choice, member))
            if tracked is not None and tracked.reader is not None:
                bare = {name: one for name, one in bare.items() if name != member}
                spoken += self._read(tracked, said, home_of(self.dialect, member))
        if part.finish is not None:
            spoken += self._rest_of(part.choice)
        deltas = telling.deltas(spoken, is_over=part.finish is not None)
        if self._field is not None:
            deltas = [renamed(one, self.dialect, self._field) for one in deltas]
            bare = renamed(bare, self.dialect, self._field)
        if not deltas:
            says_nothing = bare != part.said and not bare.keys() - {"role"}
            return [] if says_nothing else [bare]
        first, *others = deltas
        return [{**bare, **first}, *others] if not bare.keys() & first.keys() else [bare, first, *others]

    def rest(self) -> Iterator[JsonObject]:
        """Events with what readers still hold where the stream ends without a finish reason."""
        for choice, telling in self.tellings.items():
            for said in telling.deltas(self._rest_of(choice), is_over=True):
                yield self.dialect.delta(choice, said, ())

    def _telling(self, part: Part) -> Telling:
        found = self.tellings.get(part.choice)
        if found is None:
            found = self.tellings[part.choice] = Telling(
                dialect=self.dialect, body=self._body, choice=part.choice, reasoning=self.dialect.reasoning[0]
            )
        for name in part.said:
            if name in self.dialect.reasoning and part.said[name]:
                found.reasoning = name
        return found

    def _read(self, tracked: Tracked, said: str, home: Kind) -> list[Said]:
        """What a piece of a leaking text says; where a message has no place, it stays where it stands, and nothing more is read."""
        if tracked.reader is None:
            return [Said(kind=home, text=said)]
        try:
            return tracked.reader.feed(said)
        except NoPlace as problem:
            return self._given_up(tracked, tracked.reader, home, problem)

    def _rest_of(self, choice: int) -> list[Said]:
        """What the readers of a choice have not told yet."""
        rest: list[Said] = []
        for (of, member), tracked in self.texts.items():
            if of != choice or tracked.reader is None:
                continue
            home = home_of(self.dialect, member)
            try:
                rest += tracked.reader.close()
            except NoPlace as problem:
                rest += self._given_up(tracked, tracked.reader, home, problem)
            tracked.reader, tracked.is_given_up = None, True
        return rest

    def _given_up(self, tracked: Tracked, reader: Reader, home: Kind, problem: NoPlace) -> list[Said]:
        self.problem = f"the model wrote {problem}"
        tracked.reader, tracked.is_given_up = None, True
        return [*reader.told(), Said(kind=home, text=reader.unread)]

    def _with_calls(self, part: Part, calls: list[Json]) -> JsonObject:
        """A delta with the names of its calls cleaned, and their arguments cut."""
        changed = [self._call(part.choice, call) for call in calls]
        return {**part.said, "tool_calls": changed} if changed != calls else part.said

    def _call(self, choice: int, call: Json) -> Json:
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
        if isinstance(tracked, TrackedArguments) and isinstance(function.get("arguments"), str):
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
    """Whether what is held only shows that what stood before it was a thought."""
    found = SEAM.search(held)
    return found is not None and found["channel"] != "commentary" and "<" not in held[: found.start()]
