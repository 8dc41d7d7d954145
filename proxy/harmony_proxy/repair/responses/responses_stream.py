"""Rewriting of streams of the Responses API, which number their events and items, and repeat every text at its end.

Before the first leak, events pass unchanged and their content is recorded. From there on, items with leaking texts are rewritten:
each kind of text becomes an item, with all events that the API requires. Other items pass with new indexes and numbers.
The last response lists the emitted items.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from harmony_conformance.checks.responses.views import STATUS_BY_FINAL_EVENT
from harmony_conformance.json_value import Json, JsonObject, dumps, items, members, text, value_at
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.request_facts import RequestFacts
from harmony_proxy.repair.responses.emitted_items import FIRST_TEXT_KEYS, EmittedItem, EmittedItems, item_of
from harmony_proxy.repair.responses.item_writer import ItemWriter
from harmony_proxy.repair.responses.repeated_texts import may_leak, replace_item_texts, replace_repeated_text
from harmony_proxy.repair.responses.server_events import FUNCTION_CALL, ITEM_ADDED, ITEM_DONE, ServerEvents
from harmony_proxy.repair.stream_parts.event_matching import EventTemplates, Key
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.rewriter import StreamRewriter, TextKey
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge, delta_of
from harmony_proxy.repair.stream_parts.text_tracker import Status
from harmony_proxy.repair.text.api_dialects import ChoiceContent, default_kind, with_reasoning_tokens
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind
from harmony_proxy.repair.text.responses_answer import ANSWER_DIALECTS, with_status

STATUS_CHECK = "responses.status_says_how_it_ended"
_ANNOTATED = "response.output_text.annotation.added"
_ANNOUNCING = frozenset({ITEM_ADDED, "response.content_part.added", "response.reasoning_summary_part.added"})
_FURTHER = 1_000_000
"""An index that no item has."""


class ResponsesStream(StreamRewriter):
    """Rewrites one stream. Stores the items of the server, the emitted items, and whether events have an `event:` line."""

    ends_with_choices = False

    def __init__(  # noqa: PLR0913 - the settings of a stream
        self,
        facts: RequestFacts,
        judge: StreamJudge,
        notes: ActionNotes,
        *,
        body: bytes,
        repairs_status: bool,
        keeps_bytes: bool,
    ) -> None:
        super().__init__(ANSWER_DIALECTS["responses"], facts, judge, notes)
        self._sources = ServerEvents()
        self._writer = ItemWriter(self._sources, body, keeps_bytes=keeps_bytes)
        self._rewritten_sources: set[int] = set()
        self._token_ids: list[Json] = []
        self._repairs_status = repairs_status
        self._has_event_lines = False
        self._last_event = b""

    @property
    def _items(self) -> EmittedItems:
        return self._writer.items

    @property
    def number(self) -> int:
        """Return the sequence number of the next event."""
        return self._items.number

    @property
    def emission(self) -> ResponsesStream:
        """Return this object, which is its own emission."""
        return self

    @property
    def raw(self) -> list[bytes]:
        """Return the emitted bytes, if they are recorded."""
        return self._items.raw

    def events(self) -> Iterator[JsonObject]:
        """Yield events with the emitted content, with the server's indexes for unfinished items."""
        return self._items.events(
            {source.place: source.index for source in self._sources.server_items if not source.is_done}
        )

    def parts(self, piece: RawEvent) -> Sequence[ChoiceContent]:
        """Return the content of an event by item."""
        source, parts = self._sources.read(piece.value)
        piece.source = source.place if source is not None else None
        return parts

    def is_plain(self, part: ChoiceContent) -> bool:
        """Return True if a part only continues a known text."""
        return part.finish is None and "tool_calls" not in part.message and (part.choice, *part.message) in self.texts

    def announces(self, piece: RawEvent) -> bool:
        """Return True if an event announces an item or a part. It waits for the first text, which may belong to another item."""
        return value_at(piece.value, "type") in _ANNOUNCING and not piece.parts

    def is_end(self, piece: RawEvent) -> bool:
        """Return True if this event has the complete response."""
        return value_at(piece.value, "type") in STATUS_BY_FINAL_EVENT

    def must_be_judged(self, piece: RawEvent) -> bool:
        """Return True if an event must be judged regardless of its deltas: an error, or a repeated text that may leak and is not rewritten."""
        return piece.is_error or (not self.is_rewriting and may_leak(piece))

    def probe(self, place: TextKey, fragment: str) -> JsonObject:
        """Return an event that continues a text."""
        source = self._sources.server_items[place[0]]
        kind = "message" if default_kind(self.dialect, place[1]) is TextKind.CONTENT else "reasoning"
        kind = FUNCTION_CALL if "tool_calls" in delta_of(place[1], fragment) else kind
        item = EmittedItems(keeps_bytes=False).add(source.place, {"type": kind, "id": source.id})
        event = item.delta(fragment)
        return event if source.index is None else {**event, "output_index": source.index}

    def next_text_events(self) -> Iterable[JsonObject]:
        """Return the text of another message: the end of a message is then in the middle of the answer."""
        message = EmittedItem(
            index=_FURTHER,
            source=-1,
            value={"type": "message", "id": "msg_further"},
            text_key=FIRST_TEXT_KEYS["message"],
        )
        return (message.delta(" x"),)

    def record_emitted(self, piece: RawEvent) -> None:
        """Record an event that was emitted unchanged."""
        event = members(piece.value)
        self._items.record_bytes(piece.raw)
        self._items.record_event(event, piece.source)
        for part in piece.parts if text(event.get("type")) in STATUS_BY_FINAL_EVENT else ():
            self._items.record_final_item(self._item_of_part(part, members(event.get("response"))), part.choice)

    def learn(self, piece: RawEvent, templates: EventTemplates) -> None:
        """Learn a template from a delta that was emitted unchanged."""
        event, part = members(piece.value), piece.parts[0]
        item, texts = self._items.find_by_source(part.choice), [*self.dialect.texts(part)]
        if item is None or part.ids or len(texts) != 1 or event.get("delta") != texts[0][1]:
            return
        member, fragment = texts[0]

        def is_same(value: Json, other: str) -> bool:
            return value == {**event, "delta": other}

        templates.learn(piece.raw, fragment, (part.choice, *item.text_key), self.texts[part.choice, member], is_same)

    def grow(self, raw: bytes, key: Key, fragment: str, number: int | None) -> None:
        """Record an event that matched a template and was emitted unchanged."""
        item = self._items.find_by_source(key[0])
        if item is not None:
            self._items.grow(raw, item, key[1:], fragment, number)

    def create_rollback(self) -> Callable[[], None]:
        """Return a function that restores the current state."""
        writer, changed, ids = self._writer.copy(), set(self._rewritten_sources), list(self._token_ids)
        cleans_names, is_rewriting = self.cleans_names, self.is_rewriting

        def roll_back() -> None:
            self._writer, self._rewritten_sources, self._token_ids = writer, changed, ids
            self.cleans_names, self.is_rewriting = cleans_names, is_rewriting

        return roll_back

    def begin(self, statuses: Mapping[TextKey, Status]) -> None:
        """Rewrite the leaking texts from here on.

        Raises:
            NoDestinationError: the leaking message began before.
        """
        super().begin(statuses)
        for (source, _), tracked in self.texts.items():
            if tracked.parser is not None and source not in self._rewritten_sources:
                self._rewritten_sources.add(source)
                self._writer.start_rewriting(source)

    def rewrite_event(self, piece: RawEvent) -> list[bytes]:
        """Return the bytes to emit for an event: the original bytes unless a part of it changes."""
        event = members(piece.value)
        self._has_event_lines = self._has_event_lines or b"event:" in piece.raw[:6] or b"\nevent:" in piece.raw
        if text(event.get("type")) in STATUS_BY_FINAL_EVENT:
            return self._rewrite_end(piece, event)
        if not self.is_rewriting or not event:
            self.record_emitted(piece)
            return [piece.raw]
        if piece.source is not None and piece.source in self._rewritten_sources:
            self._token_ids += items(event.get("token_ids"))
            return [self._emit(one) for one in self._rewrite(piece, piece.source, event)]
        return self._pass_on(piece, event)

    def rest(self) -> list[bytes]:
        """Return events with the text that parsers still buffer, if the stream ends early."""
        return [self._emit(event) for source in sorted(self._rewritten_sources) for event in self._flush(source)]

    def unrewritten_events(self) -> bytes:
        """Return nothing: the last response has all content."""
        return b""

    def ending(self) -> bytes:
        """Return the event with the last response."""
        return self._last_event

    # items that pass

    def _pass_on(self, piece: RawEvent, event: JsonObject) -> list[bytes]:
        """Return an event of an item that does not leak, with its new index and number."""
        item = self._items.find_by_source(piece.source) if piece.source is not None else None
        mapped = event
        if "output_index" in event:
            is_new = event.get("type") == ITEM_ADDED or item is None
            mapped = {**event, "output_index": self._items.next_index if is_new or item is None else item.index}
        if piece.source is not None and self._sources.server_items[piece.source].kind == FUNCTION_CALL:
            mapped = self._with_call(piece, piece.source, mapped)
            if mapped.get("delta") == "" and event.get("delta"):
                self._token_ids += items(event.get("token_ids"))
                return []
        mapped = self._with_number(mapped if item is None else replace_repeated_text(mapped, item))
        self._items.record_event(mapped, piece.source)
        raw = piece.raw if mapped == event else piece.encode_value(mapped)
        self._items.record_bytes(raw)
        return [raw]

    def _with_call(self, piece: RawEvent, source: int, event: JsonObject) -> JsonObject:
        """Return an event of a call with its name and id cleaned, and its arguments truncated after their JSON."""
        calls = [call for part in piece.parts for call in items(part.message.get("tool_calls"))]
        cleaned = [self.clean_call(source, call) for call in calls]
        if "delta" in event and cleaned:
            event = {**event, "delta": value_at(cleaned[0], "function", "arguments")}
        if isinstance(event.get("item"), dict):
            return {**event, "item": self._clean_item(source, members(event["item"]), cleaned)}
        if "arguments" not in event:
            return event
        item: JsonObject = {"name": event.get("name"), "call_id": "", "arguments": event["arguments"]}
        clean = self._clean_item(source, item, cleaned)
        return {**event, **{name: clean[name] for name in ("name", "arguments") if name in event}}

    def _clean_item(self, source: int, item: JsonObject, cleaned: Sequence[Json]) -> JsonObject:
        call: JsonObject = {"id": item.get("call_id"), "function": {"name": item.get("name")}}
        clean = self.clean_call(source, call)
        changed: JsonObject = {"name": value_at(clean, "function", "name"), "call_id": value_at(clean, "id")}
        emitted = self._items.find_by_source(source)
        if item.get("arguments"):
            arguments = "".join(text(value_at(one, "function", "arguments")) for one in cleaned)
            changed["arguments"] = (
                arguments or (emitted.emitted_text() if emitted is not None else "") or item["arguments"]
            )
        return {**item, **{name: value for name, value in changed.items() if name in item}}

    # items that are rewritten

    def _rewrite(self, piece: RawEvent, source: int, event: JsonObject) -> Iterator[JsonObject]:
        kind = text(event.get("type"))
        if kind == ITEM_ADDED:
            self._writer.announced[source] = members(event.get("item"))
        elif kind in _ANNOUNCING:
            self._writer.parts[source] = members(event.get("part"))
        elif kind == _ANNOTATED:
            self._writer.annotations.setdefault(source, []).append(event.get("annotation"))
        for part in piece.parts:
            self._writer.server_fragments.setdefault(source, []).append(text(part.message.get("content")))
            yield from self._writer.write_texts(source, self._parse_part(part))
        if kind == ITEM_DONE:
            yield from self._flush(source)
            yield from self._writer.close(source, members(event.get("item")))

    def _parse_part(self, part: ChoiceContent) -> list[ParsedText]:
        parsed, parsed_members = self.parse_leaks(part)
        plain = [
            ParsedText(kind=default_kind(self.dialect, member), text=fragment)
            for member, fragment in self.dialect.texts(part)
            if member not in parsed_members
        ]
        return [*plain, *parsed]

    def _flush(self, source: int) -> Iterator[JsonObject]:
        yield from self._writer.write_texts(source, self.rest_of(source))

    # the end

    def _rewrite_end(self, piece: RawEvent, event: JsonObject) -> list[bytes]:
        response = members(event.get("response"))
        out: list[bytes] = []
        final_event: JsonObject = event
        if self.is_rewriting:
            end: JsonObject = {"status": "incomplete" if response.get("status") == "incomplete" else "completed"}
            for part in piece.parts:
                self._rewritten_sources.add(part.choice)
                self._writer.announced[part.choice] = self._item_of_part(part, response)
                out += [self._emit(one) for one in self._writer.write_texts(part.choice, self._parse_part(part))]
            for source in sorted(self._rewritten_sources):
                out += [self._emit(one) for one in (*self._flush(source), *self._writer.close(source, end))]
            output: Json = [self._final_item(item, response) for item in self._items.emitted_items]
            response = members(
                with_reasoning_tokens({**response, "output": output}, "".join(self._writer.moved_reasoning))
            )
            final_event = {**self._with_number(event), "response": response}
        if self._repairs_status:
            final_event = self._with_status(final_event, response)
        if final_event == event:
            self._last_event = piece.raw
            self.record_emitted(piece)
            return [*out, piece.raw]
        self._items.count(final_event)
        self._last_event = self._frame(final_event)
        self._items.record_bytes(self._last_event)
        return [*out, self._last_event]

    def _final_item(self, item: EmittedItem, response: JsonObject) -> Json:
        """Return the form of an item in the last response."""
        finished = None if item.is_rewritten or item.kind == FUNCTION_CALL else item_of(response, item.id, item.kind)
        return replace_item_texts(finished, item) if finished else item.end or item.value

    def _item_of_part(self, part: ChoiceContent, response: JsonObject) -> JsonObject:
        """Return the item of the last response that a part belongs to."""
        source = self._sources.server_items[part.choice]
        for index, item in enumerate(map(members, items(response.get("output")))):
            if text(item.get("id")) == source.id if source.id else index == source.index:
                return item
        return {"type": source.kind, "id": source.id}

    def _with_status(self, event: JsonObject, response: JsonObject) -> JsonObject:
        """Return the last event with the status that the emitted tokens show."""
        x = self.judge.exchange(self, (), self.judge.frame_event(event))
        if not (x.hit_token_limit or x.reached_stop) or STATUS_CHECK not in self.judge.failing_checks(
            x, (STATUS_CHECK,)
        ):
            return event
        self.notes.count((STATUS_CHECK,))
        fixed = with_status(response, is_cut=x.hit_token_limit)
        return {**event, "type": f"response.{fixed['status']}", "response": fixed}

    # output

    def _with_number(self, event: JsonObject) -> JsonObject:
        return {**event, "sequence_number": self._items.number} if self._items.is_numbered else event

    def _emit(self, event: JsonObject) -> bytes:
        """Record a new event, and return its bytes with its number and the pending token ids."""
        ids: JsonObject = {"token_ids": [*self._token_ids]} if self._token_ids else {}
        self._token_ids = []
        numbered: JsonObject = {**self._with_number({"type": event["type"]}), **event, **ids}
        self._items.count(numbered)
        raw = self._frame(numbered)
        self._items.record_bytes(raw)
        return raw

    def _frame(self, event: JsonObject) -> bytes:
        data = dumps(event).encode("utf-8", "backslashreplace")
        name = b"event: " + text(event.get("type")).encode("ascii", "replace") + b"\n" if self._has_event_lines else b""
        return name + b"data: " + data + b"\n\n"
