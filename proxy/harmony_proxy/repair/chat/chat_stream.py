"""Rewriting of streams of chunks with one or more choices (Chat Completions, TGI, Ollama)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, items, text, value_at
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.answer.fixes import derive_finish_reason
from harmony_proxy.repair.answer.whole_answer import rename_reasoning
from harmony_proxy.repair.request_facts import RequestFacts
from harmony_proxy.repair.stream_parts.delta_writer import DeltaWriter
from harmony_proxy.repair.stream_parts.emitted_history import EmittedHistory
from harmony_proxy.repair.stream_parts.event_matching import EventTemplates, Key
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.repair_accounting import FINISH_CHECK
from harmony_proxy.repair.stream_parts.rewriter import StreamRewriter, TextKey
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge, delta_of
from harmony_proxy.repair.stream_parts.text_tracker import Status
from harmony_proxy.repair.text.annotations import AnnotationMover
from harmony_proxy.repair.text.api_dialects import ChoiceContent, Dialect, default_kind, with_reasoning_tokens
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind
from harmony_proxy.repair.text.logprobs import LogprobRewriter

_FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})


class ChatStream(StreamRewriter):
    """Rewrites one stream. Stores for each choice the writer of its deltas, its annotations and its log probabilities."""

    def __init__(  # noqa: PLR0913 - the settings of a stream
        self,
        dialect: Dialect,
        facts: RequestFacts,
        judge: StreamJudge,
        notes: ActionNotes,
        *,
        body: bytes,
        reasoning_field: str | None,
        repairs_finish: bool,
        keeps_bytes: bool,
    ) -> None:
        super().__init__(dialect, facts, judge, notes)
        self.is_rewriting = reasoning_field is not None
        self._emission = EmittedHistory(dialect, keeps_bytes=keeps_bytes)
        self._writers: dict[int, DeltaWriter] = {}
        self._annotation_movers: dict[int, AnnotationMover] = {}
        self._logprob_rewriters: dict[int, LogprobRewriter] = {}
        self._endings: list[JsonObject] = []
        self._usage = b""
        self._body, self._field, self._repairs_finish = body, reasoning_field, repairs_finish

    @property
    def emission(self) -> EmittedHistory:
        """Return the emitted part of the stream."""
        return self._emission

    def parts(self, piece: RawEvent) -> Sequence[ChoiceContent]:
        """Return the content of an event by choice."""
        return self.dialect.parts(piece.value)

    def is_plain(self, part: ChoiceContent) -> bool:
        """Return True if a part only continues texts of a known choice."""
        return part.finish is None and "tool_calls" not in part.message and part.choice in self._writers

    def is_end(self, piece: RawEvent) -> bool:
        """Return True for the last line of a stream of lines."""
        return piece.is_line and value_at(piece.value, "done") is True

    def probe(self, place: TextKey, fragment: str) -> JsonObject:
        """Return an event that continues a text."""
        return self.dialect.delta(place[0], delta_of(place[1], fragment), ())

    def record_emitted(self, piece: RawEvent) -> None:
        """Record an event that was emitted unchanged."""
        if not piece.parts and value_at(piece.value, "usage") is not None:
            self._usage = piece.raw
        self._emission.add(piece.raw, piece.parts)

    def learn(self, piece: RawEvent, templates: EventTemplates) -> None:
        """Learn a template from an event that was emitted unchanged, if it only continues one text of one choice."""
        (part, *others), texts = piece.parts, [*self.dialect.texts(piece.parts[0])]
        if others or part.ids or len(texts) != 1:
            return
        member, fragment = texts[0]

        def is_same(value: Json, other: str) -> bool:
            return self.dialect.parts(value) == (replace(part, message={**part.message, member: other}),)

        templates.learn(piece.raw, fragment, (part.choice, member, 0), self.texts[part.choice, member], is_same)

    def grow(self, raw: bytes, key: Key, fragment: str, number: int | None) -> None:
        """Record an event that matched a template and was emitted unchanged."""
        del number
        self._emission.grow(raw, key[0], key[1], fragment)

    def create_rollback(self) -> Callable[[], None]:
        """Return a function that restores the current state."""
        writers = {choice: one.copy() for choice, one in self._writers.items()}
        cleans_names, is_rewriting, emission = self.cleans_names, self.is_rewriting, self._emission.copy()
        endings, usage = list(self._endings), self._usage
        annotations = {choice: one.copy() for choice, one in self._annotation_movers.items()}
        logprobs = {choice: one.copy() for choice, one in self._logprob_rewriters.items()}

        def roll_back() -> None:
            self._annotation_movers, self._logprob_rewriters = annotations, logprobs
            self._endings, self._usage = list(endings), usage
            self._writers, self._emission = writers, emission
            self.cleans_names, self.is_rewriting = cleans_names, is_rewriting

        return roll_back

    def begin(self, statuses: Mapping[TextKey, Status]) -> None:
        """Rewrite the leaking texts from here on.

        Raises:
            NoDestinationError: the leaking message began before.
        """
        super().begin(statuses)
        for (choice, _), tracked in self.texts.items():
            if tracked.parser is not None and choice not in self._annotation_movers:
                content = self._emission.emitted_text(choice, self.dialect.content)
                self._annotation_movers[choice] = AnnotationMover(initial_content=content)
                self._logprob_rewriters[choice] = LogprobRewriter()

    def rewrite_event(self, piece: RawEvent) -> list[bytes]:
        """Return the bytes to emit for an event: the original bytes unless a part of it changes."""
        parts = piece.parts
        if not parts:
            return [self._without_choices(piece)]
        changed: dict[int, list[JsonObject]] = {}
        reasons: dict[int, str] = {}
        value = piece.value
        for part in parts:
            deltas = self._deltas(part)
            value = self._with_entries(value, part.choice, deltas)
            if deltas != [part.message]:
                changed[part.choice] = deltas
            if part.finish is not None and (reason := self._corrected_finish_reason(part, piece)) is not None:
                reasons[part.choice] = reason
        has_end = any(part.finish is not None for part in parts)
        if not changed and not reasons and value is piece.value:
            self._endings += self.dialect.end_events(piece.value) if has_end else ()
            self._emission.add(piece.raw, parts)
            return [piece.raw]
        out: list[bytes] = []
        for one in self.dialect.rewrite(value, changed, reasons):
            self._endings += self.dialect.end_events(one) if has_end else ()
            out.append(piece.encode_value(self._counted(one)))
            self._emission.add(out[-1], self.dialect.parts(one))
        return out

    def rest(self) -> list[bytes]:
        """Return events with the text that parsers still buffer, if the stream ends without a finish reason."""
        out: list[bytes] = []
        for choice, writer in self._writers.items():
            deltas = self._write(writer, self.rest_of(choice), is_over=True)
            deltas = self._with_annotations(choice, deltas, is_over=True)
            out += [self.judge.frame_event(self.dialect.delta(choice, delta, ())) for delta in deltas]
        return out

    def unrewritten_events(self) -> bytes:
        """Return events with emitted members that are never rewritten."""
        return b"".join(map(self.judge.frame_event, self._emission.unrewritten_events()))

    def ending(self) -> bytes:
        """Return events with the finish reasons and the usage."""
        return b"".join((*map(self.judge.frame_event, self._endings), self._usage))

    def _without_choices(self, piece: RawEvent) -> bytes:
        """Return an event without choices, with its usage corrected for the rewritten text."""
        value = self._counted(piece.value)
        raw = piece.raw if value is piece.value else piece.encode_value(value)
        self._usage = raw if value_at(value, "usage") is not None else self._usage
        self._emission.add(raw, ())
        return raw

    def _counted(self, value: Json) -> Json:
        """Return the value with the parsed reasoning counted in its usage."""
        if not self.is_rewriting or value_at(value, "usage") is None:
            return value
        return with_reasoning_tokens(
            value, "".join(fragment for writer in self._writers.values() for fragment in writer.reasoning_fragments)
        )

    def _corrected_finish_reason(self, part: ChoiceContent, piece: RawEvent) -> str | None:
        """Return the correct finish reason in place of a wrong one; None if it stays."""
        writer = self._writers[part.choice]
        has_calls, reason, has_call_reason = writer.calls > 0, part.finish, self.dialect.finishes_with_calls
        if writer.new_calls and reason == "stop" and has_call_reason:
            return "tool_calls"
        contradiction = "stop" if has_calls else "tool_calls"
        is_unexpected = reason not in _FINISH_REASONS or (has_call_reason and reason == contradiction)
        if not (is_unexpected and self._repairs_finish):
            return None
        if FINISH_CHECK not in self.judge.find_failures(self._emission, (), (FINISH_CHECK,), piece.raw):
            return None
        corrected = derive_finish_reason(reason, calls=has_calls)
        if corrected is None:
            self.notes.record_unrepaired((FINISH_CHECK,), "the correct finish reason is unknown")
        else:
            self.notes.count((FINISH_CHECK,))
        return corrected

    def _deltas(self, part: ChoiceContent) -> list[JsonObject]:
        """Return the deltas of a choice in an event, rewritten where it leaks."""
        writer = self._writer_of(part)
        calls = items(part.message.get("tool_calls"))
        writer.calls += sum(1 for call in calls if text(value_at(call, "function", "name")))
        if not self.is_rewriting:
            return [part.message]
        cleaned = [self.clean_call(part.choice, call) for call in calls]
        bare: JsonObject = {**part.message, "tool_calls": cleaned} if cleaned != calls else part.message
        parsed, removed = self.parse_leaks(part)
        mover = self._annotation_movers.get(part.choice)
        removed = removed if mover is None else removed | mover.add_message(part.message, self.dialect.content)
        bare = {name: one for name, one in bare.items() if name not in removed}
        written = self._write(writer, parsed, is_over=part.finish is not None)
        deltas = self._with_annotations(part.choice, [bare, *written], is_over=part.finish is not None)[1:]
        if self._field is not None:
            deltas = [rename_reasoning(one, self.dialect, self._field) for one in deltas]
            bare = rename_reasoning(bare, self.dialect, self._field)
        if not deltas:
            is_empty = bare != part.message and not bare.keys() - {"role"}
            return [] if is_empty else [bare]
        first, *others = deltas
        return [{**bare, **first}, *others] if not bare.keys() & first.keys() else [bare, first, *others]

    def _write(self, writer: DeltaWriter, parsed: Sequence[ParsedText], *, is_over: bool) -> list[JsonObject]:
        writer.is_final = not self.can_roll_back
        deltas = writer.deltas(parsed, is_over=is_over)
        self.problem = self.problem or writer.problem
        return deltas

    def _with_annotations(self, choice: int, deltas: list[JsonObject], *, is_over: bool) -> list[JsonObject]:
        """Return the deltas of a choice, followed by its annotations if it is complete."""
        mover = self._annotation_movers.get(choice)
        if mover is None:
            return deltas
        mover.emitted_fragments += (text(one.get(self.dialect.content)) for one in deltas)
        mover.is_over = mover.is_over or is_over
        return [*deltas, *mover.final_deltas()]

    def _with_entries(self, value: Json, choice: int, deltas: list[JsonObject]) -> Json:
        """Return the event with the log probabilities of the emitted content."""
        rewriter = self._logprob_rewriters.get(choice)
        if rewriter is None:
            return value
        entries = self.dialect.entries(value, choice)
        remaining = rewriter.match_entries(entries, self._texts(choice, deltas)) if entries or rewriter.pending else []
        return value if remaining == entries else self.dialect.with_entries(value, choice, remaining)

    def _texts(self, choice: int, deltas: list[JsonObject]) -> Iterator[ParsedText]:
        for one in deltas:
            for member, fragment in self.dialect.texts(ChoiceContent(choice=choice, message=one)):
                yield ParsedText(kind=default_kind(self.dialect, member), text=fragment)
            for call in items(one.get("tool_calls")):
                yield ParsedText(kind=TextKind.CALL, text=text(value_at(call, "function", "arguments")))

    def _writer_of(self, part: ChoiceContent) -> DeltaWriter:
        writer = self._writers.get(part.choice)
        if writer is None:
            writer = self._writers[part.choice] = DeltaWriter(
                dialect=self.dialect, body=self._body, choice=part.choice, reasoning=self.dialect.reasoning[0]
            )
        for name in part.message:
            if name in self.dialect.reasoning and part.message[name]:
                writer.reasoning = name
        return writer
