"""The rewriting of a stream from its first failure on: its texts, their parsers, and the names of its calls. Common to all APIs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from harmony_conformance.json_value import Json, JsonObject, integer, items, text, value_at
from harmony_conformance.judge.check import Finding
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.answer.check_verdicts import choice_of
from harmony_proxy.repair.answer.fixes import clean_name
from harmony_proxy.repair.request_facts import RequestFacts
from harmony_proxy.repair.stream_parts.event_matching import EventTemplates, Key
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.stream_judge import CALL_PREFIX, Emission, StreamJudge
from harmony_proxy.repair.stream_parts.text_tracker import ArgumentsTracker, Status, TextTracker
from harmony_proxy.repair.text.api_dialects import ChoiceContent, Dialect, default_kind
from harmony_proxy.repair.text.leak_prefixes import MARKER, SEAM
from harmony_proxy.repair.text.leaked_text_parser import LeakedTextParser, NoDestinationError, ParsedText, TextKind

TextKey = tuple[int, str]
"""A choice (Responses API: an item), and its member with a text; `call/0` is the arguments of its first call."""


class StreamRewriter(ABC):
    """Reads and rewrites a streamed answer of one API.

    Attributes:
        texts: Tracker of each text.
        declared_functions: Names of the functions that the request declares.
        may_be_called: Those of them that the request allows the model to call.
        cleans_names: True if names and ids of calls are cleaned.
        is_rewriting: True if events are rewritten.
        can_roll_back: True while a repair can still be rolled back.
        problem: Description of a text without a destination, or an empty string.
        ends_with_choices: True if the answer is complete once all choices are.
    """

    ends_with_choices = True

    def __init__(self, dialect: Dialect, facts: RequestFacts, judge: StreamJudge, notes: ActionNotes) -> None:
        self.dialect = dialect
        self.declared_functions, self.may_be_called = facts.declared_functions, facts.allowed_functions
        self.texts: dict[TextKey, TextTracker] = {}
        self.cleans_names = False
        self.is_rewriting = self.can_roll_back = False
        self.problem = ""
        self.judge = judge
        self.notes = notes

    @property
    @abstractmethod
    def emission(self) -> Emission:
        """Return the emitted part of the stream."""

    @abstractmethod
    def parts(self, piece: RawEvent) -> Sequence[ChoiceContent]:
        """Return the content of an event by choice. Must be called once per event, in order."""

    @abstractmethod
    def is_plain(self, part: ChoiceContent) -> bool:
        """Return True if a part only continues known texts."""

    @abstractmethod
    def is_end(self, piece: RawEvent) -> bool:
        """Return True if this event completes the answer."""

    @abstractmethod
    def probe(self, place: TextKey, fragment: str) -> JsonObject:
        """Return an event that continues a text."""

    @abstractmethod
    def record_emitted(self, piece: RawEvent) -> None:
        """Record an event that was emitted unchanged."""

    @abstractmethod
    def learn(self, piece: RawEvent, templates: EventTemplates) -> None:
        """Learn a template from an event that was emitted unchanged, if it only continues a text."""

    @abstractmethod
    def grow(self, raw: bytes, key: Key, fragment: str, number: int | None) -> None:
        """Record an event that matched a template and was emitted unchanged."""

    @abstractmethod
    def rewrite_event(self, piece: RawEvent) -> list[bytes]:
        """Return the bytes to emit for an event."""

    @abstractmethod
    def rest(self) -> list[bytes]:
        """Return events with the text that parsers still buffer, if the stream ends early."""

    @abstractmethod
    def unrewritten_events(self) -> bytes:
        """Return emitted content that `emission` lacks: members that are never rewritten."""

    @abstractmethod
    def ending(self) -> bytes:
        """Return emitted content that `emission` lacks: the end of the answer."""

    @abstractmethod
    def create_rollback(self) -> Callable[[], None]:
        """Return a function that restores the current state."""

    @property
    def number(self) -> int:
        """Return the sequence number of the next event, for APIs that number events."""
        return 0

    def announces(self, piece: RawEvent) -> bool:
        """Return True if an event only announces an item or a part."""
        del piece
        return False

    def texts_of(self, part: ChoiceContent) -> Iterator[tuple[TextTracker, str]]:
        """Yield the trackers of the texts that a part continues, each with its new fragment."""
        for member, fragment in self.dialect.texts(part):
            yield self._text((part.choice, member)), fragment
        if not self.dialect.calls_are_whole and "tool_calls" in part.message:
            for call in items(part.message["tool_calls"]):
                yield self._text((part.choice, arguments_key(call))), text(value_at(call, "function", "arguments"))

    def _text(self, place: TextKey) -> TextTracker:
        if place not in self.texts:
            self.texts[place] = ArgumentsTracker() if place[1].startswith(CALL_PREFIX) else TextTracker()
        return self.texts[place]

    def next_text_events(self) -> Iterable[JsonObject]:
        """Return events that begin another text after a completed one, for APIs with several texts for the user."""
        return ()

    def must_be_judged(self, piece: RawEvent) -> bool:
        """Return True if an event must be judged regardless of its texts: an error, or a repeated text that may leak."""
        return piece.is_error

    def restrict_to_findings(
        self, statuses: Mapping[TextKey, Status], found: Mapping[str, Iterable[Finding]]
    ) -> Mapping[TextKey, Status]:
        """Return the statuses, with those of choices without findings set back to `OPEN`."""
        if not self.ends_with_choices:
            return statuses
        leaking = {choice_of(finding) for findings in found.values() for finding in findings}
        if leaking == {0} and all(place[0] or status is Status.CLEAR for place, status in statuses.items()):
            return statuses  # the checks give the first choice that they see the number 0
        return {
            place: Status.OPEN if status is Status.READY and place[0] not in leaking else status
            for place, status in statuses.items()
        }

    def forget(self, statuses: Mapping[TextKey, Status]) -> None:
        """Give up a repair: these texts are no longer tracked."""
        for place, status in statuses.items():
            if status is Status.READY:
                tracked = self.texts[place]
                tracked.parser, tracked.is_ignored = None, True
                if isinstance(tracked, ArgumentsTracker):
                    tracked.is_truncated = False

    def begin(self, statuses: Mapping[TextKey, Status]) -> None:
        """Rewrite the leaking texts from here on.

        Raises:
            NoDestinationError: the leaking message began before.
        """
        self.cleans_names = self.is_rewriting = True
        for place, status in statuses.items():
            tracked = self.texts[place]
            if status is not Status.READY or tracked.is_resolved:
                continue
            if isinstance(tracked, ArgumentsTracker):
                tracked.is_truncated = True
                continue
            home = default_kind(self.dialect, place[1])
            if home is TextKind.CONTENT and not tracked.is_start and _ends_a_thought(tracked.pending):
                raise NoDestinationError("reasoning as content, which was emitted before its end identified it")
            tracked.parser = LeakedTextParser(
                home, self.may_be_called, before=tracked.emitted_tail, glued=tracked.is_glued
            )

    def parse_leaks(self, part: ChoiceContent) -> tuple[list[ParsedText], frozenset[str]]:
        """Return the parsed texts of a part that are rewritten, and the names of their members.

        A message without a destination stays in its member, and the rest of its text is not parsed.
        """
        parsed: list[ParsedText] = []
        parsed_members: list[str] = []
        for member, fragment in self.dialect.texts(part):
            tracked = self.texts.get((part.choice, member))
            if tracked is None or tracked.parser is None:
                continue
            parsed_members.append(member)
            try:
                parsed += tracked.parser.feed(fragment)
            except NoDestinationError as problem:
                parsed += self._abandon_parser(tracked, tracked.parser, default_kind(self.dialect, member), problem)
        return parsed + (self.rest_of(part.choice) if part.finish is not None else []), frozenset(parsed_members)

    def rest_of(self, choice: int) -> list[ParsedText]:
        """Close the parsers of a choice, and return their remaining texts."""
        rest: list[ParsedText] = []
        for (owner, member), tracked in self.texts.items():
            if owner != choice or tracked.parser is None:
                continue
            try:
                rest += tracked.parser.close()
            except NoDestinationError as problem:
                rest += self._abandon_parser(tracked, tracked.parser, default_kind(self.dialect, member), problem)
            tracked.parser, tracked.is_ignored = None, True
        return rest

    def _abandon_parser(
        self, tracked: TextTracker, parser: LeakedTextParser, home: TextKind, problem: NoDestinationError
    ) -> list[ParsedText]:
        self.problem = f"the model wrote {problem}"
        tracked.parser, tracked.is_ignored = None, True
        return [*parser.pop_results(), ParsedText(kind=home, text=parser.unparsed_text)]

    def clean_call(self, choice: int, call: Json) -> Json:
        """Return a call with its name and id cleaned, and its arguments truncated after their JSON."""
        function = value_at(call, "function")
        if not isinstance(function, dict) or not isinstance(call, dict):
            return call
        fixed, identity = dict(function), call.get("id")
        name = text(function.get("name"))
        if self.cleans_names and name and name not in self.declared_functions:
            fixed["name"] = clean_name(name, self.declared_functions) or name
        if self.cleans_names and isinstance(identity, str):
            identity = MARKER.sub("", identity) or identity
        tracked = self.texts.get((choice, arguments_key(call)))
        if isinstance(tracked, ArgumentsTracker) and isinstance(function.get("arguments"), str):
            fixed["arguments"] = tracked.truncate(text(function["arguments"]))
        if fixed == function and identity == call.get("id"):
            return call
        return {**call, **({"id": identity} if "id" in call else {}), "function": fixed}

    def is_unexpected_call(self, call: Json) -> bool:
        """Return True if a call names an undeclared function, or has a marker in its id."""
        name = text(value_at(call, "function", "name"))
        return (name != "" and name not in self.declared_functions) or MARKER.search(
            text(value_at(call, "id"))
        ) is not None


def arguments_key(call: Json) -> str:
    """Return the key of a call's arguments among the texts of its choice."""
    return f"{CALL_PREFIX}{integer(value_at(call, 'index')) or 0}"


def _ends_a_thought(buffered: str) -> bool:
    """Return True if the buffered text only shows that the text before it was reasoning, and begins no reasoning itself."""
    match = SEAM.search(buffered)
    return match is not None and match["channel"] == "final" and "<" not in buffered[: match.start()]
