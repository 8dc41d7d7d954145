"""Streams of chunks, each with a choice or more (Chat Completions, TGI, Ollama): read, and told anew."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, at, items, text
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.answer.fixes import finish_of
from harmony_proxy.repair.answer.whole_answer import renamed
from harmony_proxy.repair.stream_parts.delta_writer import DeltaWriter
from harmony_proxy.repair.stream_parts.emitted_history import EmittedHistory
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.event_templates import EventTemplates, Key
from harmony_proxy.repair.stream_parts.repair_accounting import FINISH
from harmony_proxy.repair.stream_parts.rewriter import Place, StreamRewriter
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge, delta_of
from harmony_proxy.repair.stream_parts.text_tracker import Status
from harmony_proxy.repair.text.annotations import AnnotationMover
from harmony_proxy.repair.text.api_dialects import ChoiceContent, Dialect, counted, home_of
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind
from harmony_proxy.repair.text.logprobs import LogprobRewriter

_WORDS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})


class ChatStream(StreamRewriter):
    """State: what each choice was told, besides what all have."""

    def __init__(  # noqa: PLR0913 - all that a stream is told anew by
        self,
        dialect: Dialect,
        declared: frozenset[str],
        asking: StreamJudge,
        notes: ActionNotes,
        *,
        body: bytes,
        reasoning_field: str | None,
        mends_finish: bool,
        keeps_bytes: bool,
    ) -> None:
        super().__init__(dialect, declared, asking, notes)
        self.is_at_work = reasoning_field is not None
        self.went = EmittedHistory(dialect, keeps_bytes=keeps_bytes)
        self._tellings: dict[int, DeltaWriter] = {}
        self._citing: dict[int, AnnotationMover] = {}
        self._spelling: dict[int, LogprobRewriter] = {}
        self._ended: list[JsonObject] = []
        self._usage = b""
        self._body, self._field, self._mends_finish = body, reasoning_field, mends_finish

    def parts(self, piece: RawEvent) -> Sequence[ChoiceContent]:
        """What each choice says in an event."""
        return self.dialect.parts(piece.value)

    def is_plain(self, part: ChoiceContent) -> bool:
        """Whether a part is nothing but text of a choice that was told before."""
        return part.finish is None and "tool_calls" not in part.said and part.choice in self._tellings

    def announces(self, piece: RawEvent) -> bool:
        """Nothing does."""
        del piece
        return False

    def is_end(self, piece: RawEvent) -> bool:
        """Whether this is the last line."""
        return piece.is_line and at(piece.value, "done") is True

    def probe(self, place: Place, said: str) -> JsonObject:
        """An event in which a text goes on."""
        return self.dialect.delta(place[0], delta_of(place[1], said), ())

    def passed(self, piece: RawEvent) -> None:
        """An event went out as it came."""
        if not piece.parts and at(piece.value, "usage") is not None:
            self._usage = piece.raw
        self.went.add(piece.raw, piece.parts)

    def learn(self, piece: RawEvent, moulds: EventTemplates) -> None:
        """Make a mould of an event that went out as it came, if it is nothing but more of one text of one choice."""
        (part, *others), told = piece.parts, [*self.dialect.texts(piece.parts[0])]
        if others or part.ids or len(told) != 1:
            return
        member, said = told[0]

        def is_same(value: Json, other: str) -> bool:
            return self.dialect.parts(value) == (replace(part, said={**part.said, member: other}),)

        moulds.learn(piece.raw, said, (part.choice, member, 0), self.texts[part.choice, member], is_same)

    def grow(self, raw: bytes, key: Key, said: str, number: int | None) -> None:
        """An event that fits a mould went out as it came."""
        del number
        self.went.grow(raw, key[0], key[1], said)

    def saved(self) -> Callable[[], None]:
        """What takes it back to where it is now."""
        tellings = {choice: one.copy() for choice, one in self._tellings.items()}
        cleans_names, is_at_work, went = self.cleans_names, self.is_at_work, self.went.copy()
        ended, usage = list(self._ended), self._usage
        citing = {choice: one.copy() for choice, one in self._citing.items()}
        spelling = {choice: one.copy() for choice, one in self._spelling.items()}

        def go_back() -> None:
            self._citing, self._spelling = citing, spelling
            self._ended, self._usage = list(ended), usage
            self._tellings, self.cleans_names, self.is_at_work, self.went = tellings, cleans_names, is_at_work, went

        return go_back

    def begin(self, statuses: Mapping[Place, Status]) -> None:
        """From here on, what leaks is told anew.

        Raises:
            NoPlace: it began before.
        """
        super().begin(statuses)
        for (choice, _), tracked in self.texts.items():
            if tracked.reader is not None and choice not in self._citing:
                self._citing[choice] = AnnotationMover(begun=self.went.said(choice, self.dialect.content))
                self._spelling[choice] = LogprobRewriter()

    def tell(self, piece: RawEvent) -> list[bytes]:
        """What goes out for an event: the very bytes, unless something of it is told anew."""
        parts = piece.parts
        if not parts:
            return [self._unsaid(piece)]
        said: dict[int, list[JsonObject]] = {}
        finish: dict[int, str] = {}
        value = piece.value
        for part in parts:
            deltas = self._deltas(part)
            value = self._with_entries(value, part.choice, deltas)
            if deltas != [part.said]:
                said[part.choice] = deltas
            if part.finish is not None and (mended := self._mended(part, piece)) is not None:
                finish[part.choice] = mended
        ends = any(part.finish is not None for part in parts)
        if not said and not finish and value is piece.value:
            self._ended += self.dialect.ended(piece.value) if ends else ()
            self.went.add(piece.raw, parts)
            return [piece.raw]
        out: list[bytes] = []
        for one in self.dialect.told(value, said, finish):
            self._ended += self.dialect.ended(one) if ends else ()
            out.append(piece.told(self._counted(one)))
            self.went.add(out[-1], self.dialect.parts(one))
        return out

    def rest(self) -> list[bytes]:
        """Events with what readers still hold where the stream ends without a finish reason."""
        return [self.asking.framed(event) for event in self._rest()]

    def others(self) -> bytes:
        """What is said in members that are not told anew."""
        return b"".join(map(self.asking.framed, self.went.others()))

    def ending(self) -> bytes:
        """How each choice ended, and the usage."""
        return b"".join((*map(self.asking.framed, self._ended), self._usage))

    def _rest(self) -> Iterator[JsonObject]:
        for choice, telling in self._tellings.items():
            told = self._told_by(telling, self.rest_of(choice), is_over=True)
            for said in self._with_annotations(choice, told, is_over=True):
                yield self.dialect.delta(choice, said, ())

    def _unsaid(self, piece: RawEvent) -> bytes:
        """An event that says nothing, with the usage that goes with what was told anew."""
        value = self._counted(piece.value)
        raw = piece.raw if value is piece.value else piece.told(value)
        self._usage = raw if at(value, "usage") is not None else self._usage
        self.went.add(raw, ())
        return raw

    def _counted(self, value: Json) -> Json:
        """A value whose usage counts the reasoning that was found."""
        if not self.is_at_work or at(value, "usage") is None:
            return value
        return counted(value, "".join(piece for telling in self._tellings.values() for piece in telling.thought))

    def _mended(self, part: ChoiceContent, piece: RawEvent) -> str | None:
        """The finish reason in place of one that is wrong."""
        telling = self._tellings[part.choice]
        calls, said, has_word = telling.calls > 0, part.finish, self.dialect.finishes_with_calls
        if telling.made and said == "stop" and has_word:
            return "tool_calls"
        is_odd = said not in _WORDS or (has_word and said == ("stop" if calls else "tool_calls"))
        if not (is_odd and self._mends_finish):
            return None
        if FINISH not in self.asking.fails(self.went, (), (FINISH,), piece.raw):
            return None
        mended = finish_of(said, calls=calls)
        if mended is None:
            self.notes.leave((FINISH,), "nobody can tell what the finish reason should be")
        else:
            self.notes.count((FINISH,))
        return mended

    def _deltas(self, part: ChoiceContent) -> list[JsonObject]:
        """What a choice says in an event, told anew where it leaks."""
        telling = self._telling(part)
        calls = items(part.said.get("tool_calls"))
        telling.calls += sum(1 for call in calls if text(at(call, "function", "name")))
        if not self.is_at_work:
            return [part.said]
        bare = self._with_calls(part, calls)
        spoken, read = self.spoken(part)
        citing = self._citing.get(part.choice)
        elsewhere = read if citing is None else read | citing.hear(part.said, self.dialect.content)
        bare = {name: one for name, one in bare.items() if name not in elsewhere}
        told = self._told_by(telling, spoken, is_over=part.finish is not None)
        deltas = self._with_annotations(part.choice, [bare, *told], is_over=part.finish is not None)[1:]
        if self._field is not None:
            deltas = [renamed(one, self.dialect, self._field) for one in deltas]
            bare = renamed(bare, self.dialect, self._field)
        if not deltas:
            says_nothing = bare != part.said and not bare.keys() - {"role"}
            return [] if says_nothing else [bare]
        first, *others = deltas
        return [{**bare, **first}, *others] if not bare.keys() & first.keys() else [bare, first, *others]

    def _told_by(self, telling: DeltaWriter, said: Sequence[ParsedText], *, is_over: bool) -> list[JsonObject]:
        telling.is_final = not self.is_trying
        told = telling.deltas(said, is_over=is_over)
        self.problem = self.problem or telling.problem
        return told

    def _with_annotations(self, choice: int, deltas: list[JsonObject], *, is_over: bool) -> list[JsonObject]:
        """The deltas of a choice, and behind them the annotations that hold for all of its text, once it is over."""
        citing = self._citing.get(choice)
        if citing is None:
            return deltas
        citing.told += (text(one.get(self.dialect.content)) for one in deltas)
        citing.is_over = citing.is_over or is_over
        return [*deltas, *citing.due()]

    def _with_entries(self, value: Json, choice: int, deltas: list[JsonObject]) -> Json:
        """The event with those log probabilities that are of the content as it is told."""
        spelling = self._spelling.get(choice)
        if spelling is None:
            return value
        entries = self.dialect.entries(value, choice)
        kept = spelling.due(entries, self._said(choice, deltas)) if entries or spelling.waiting else []
        return value if kept == entries else self.dialect.with_entries(value, choice, kept)

    def _said(self, choice: int, deltas: list[JsonObject]) -> Iterator[ParsedText]:
        """What deltas say, in order."""
        for one in deltas:
            for member, said in self.dialect.texts(ChoiceContent(choice=choice, said=one)):
                yield ParsedText(kind=home_of(self.dialect, member), text=said)
            for call in items(one.get("tool_calls")):
                yield ParsedText(kind=TextKind.CALL, text=text(at(call, "function", "arguments")))

    def _telling(self, part: ChoiceContent) -> DeltaWriter:
        found = self._tellings.get(part.choice)
        if found is None:
            found = self._tellings[part.choice] = DeltaWriter(
                dialect=self.dialect, body=self._body, choice=part.choice, reasoning=self.dialect.reasoning[0]
            )
        for name in part.said:
            if name in self.dialect.reasoning and part.said[name]:
                found.reasoning = name
        return found

    def _with_calls(self, part: ChoiceContent, calls: list[Json]) -> JsonObject:
        """A delta with the names of its calls cleaned, and their arguments cut."""
        changed = [self.cleaned(part.choice, call) for call in calls]
        return {**part.said, "tool_calls": changed} if changed != calls else part.said
