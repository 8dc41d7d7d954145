"""Streams of the Responses API, whose events number themselves and the items, and tell every text again when it is done: read, and told anew.

As long as nothing leaks, events pass as they came, and what they say is noted. From where something does, the items whose texts leak are told anew: each
kind of text in an item of its own, announced, told and finished as the API wants it. All other items are passed on, under the index and the numbers that
are theirs now. The last response has the items that were told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from harmony_conformance.checks.responses.views import ENDS
from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members, text
from harmony_proxy.repair.answer.action_notes import ActionNotes
from harmony_proxy.repair.responses.emitted_items import FIRST, EmittedItem, EmittedItems, item_of
from harmony_proxy.repair.responses.item_writer import ItemWriter
from harmony_proxy.repair.responses.repeated_texts import as_told, item_as_told, may_leak
from harmony_proxy.repair.responses.server_events import ADDED, CALL, DONE, ServerEvents
from harmony_proxy.repair.stream_parts.event_splitter import RawEvent
from harmony_proxy.repair.stream_parts.event_templates import EventTemplates, Key
from harmony_proxy.repair.stream_parts.rewriter import Place, StreamRewriter
from harmony_proxy.repair.stream_parts.stream_judge import StreamJudge, delta_of
from harmony_proxy.repair.stream_parts.text_tracker import Status
from harmony_proxy.repair.text.api_dialects import ChoiceContent, counted, home_of
from harmony_proxy.repair.text.leaked_text_parser import ParsedText, TextKind
from harmony_proxy.repair.text.responses_answer import WHOLE, with_status

STATUS = "responses.status_says_how_it_ended"
_ANNOTATED = "response.output_text.annotation.added"
_ANNOUNCING = frozenset({ADDED, "response.content_part.added", "response.reasoning_summary_part.added"})
_FURTHER = 1_000_000
"""An index that no item has."""


class ResponsesStream(StreamRewriter):
    """State: the items as the server tells them, and as the client was told of them; whether events are named."""

    ends_with_choices = False

    def __init__(  # noqa: PLR0913 - all that a stream is told anew by
        self,
        declared: frozenset[str],
        asking: StreamJudge,
        notes: ActionNotes,
        *,
        body: bytes,
        mends_status: bool,
        keeps_bytes: bool,
    ) -> None:
        super().__init__(WHOLE["responses"], declared, asking, notes)
        self._sources = ServerEvents()
        self._telling = ItemWriter(self._sources, body, keeps_bytes=keeps_bytes)
        self._changed: set[int] = set()
        self._ids: list[Json] = []
        self._mends_status = mends_status
        self._is_named = False
        self._last = b""

    @property
    def _items(self) -> EmittedItems:
        return self._telling.items

    @property
    def number(self) -> int:  # type: ignore[override]
        """Which number the next event has."""
        return self._items.number

    @property
    def went(self) -> ResponsesStream:
        """What went out."""
        return self

    @property
    def raw(self) -> list[bytes]:
        """The bytes that went out, where they are kept."""
        return self._items.raw

    def events(self) -> Iterator[JsonObject]:
        """Events that say what went out, under the indices that the server uses for what goes on."""
        return self._items.events({source.place: source.index for source in self._sources.all if not source.is_done})

    def parts(self, piece: RawEvent) -> Sequence[ChoiceContent]:
        """What an event says."""
        source, parts = self._sources.read(piece.value)
        piece.source = source.place if source is not None else None
        return parts

    def is_plain(self, part: ChoiceContent) -> bool:
        """Whether a part is nothing but more of a text."""
        return part.finish is None and "tool_calls" not in part.said and (part.choice, *part.said) in self.texts

    def announces(self, piece: RawEvent) -> bool:
        """Whether an event says that an item or a part begins: it waits for the first text, which may have to stand elsewhere."""
        return at(piece.value, "type") in _ANNOUNCING and not piece.parts

    def is_end(self, piece: RawEvent) -> bool:
        """Whether this event has the whole response."""
        return at(piece.value, "type") in ENDS

    def is_suspect(self, piece: RawEvent) -> bool:
        """Whether an event is to be judged whatever its deltas held: an error, or one that tells again what may leak, as long as it is not told anew."""
        return piece.is_error or (not self.is_at_work and may_leak(piece))

    def probe(self, place: Place, said: str) -> JsonObject:
        """An event in which a text goes on."""
        source = self._sources.all[place[0]]
        kind = "message" if home_of(self.dialect, place[1]) is TextKind.CONTENT else "reasoning"
        kind = CALL if "tool_calls" in delta_of(place[1], said) else kind
        shown = EmittedItems(keeps_bytes=False).add(source.place, {"type": kind, "id": source.id})
        event = shown.delta(said)
        return event if source.index is None else {**event, "output_index": source.index}

    def further(self) -> Iterable[JsonObject]:
        """A text of another message: what stands at the end of one is in the middle of the answer then."""
        message = EmittedItem(
            index=_FURTHER, source=-1, value={"type": "message", "id": "msg_further"}, what=FIRST["message"]
        )
        return (message.delta(" x"),)

    def passed(self, piece: RawEvent) -> None:
        """An event went out as it came."""
        event = members(piece.value)
        self._items.keep(piece.raw)
        self._items.note(event, piece.source)
        for part in piece.parts if text(event.get("type")) in ENDS else ():
            self._items.note_last(self._untold(part, members(event.get("response"))), part.choice)

    def learn(self, piece: RawEvent, moulds: EventTemplates) -> None:
        """Make a mould of an event that went out as it came: a delta."""
        event, part = members(piece.value), piece.parts[0]
        item, told = self._items.of(part.choice), [*self.dialect.texts(part)]
        if item is None or part.ids or len(told) != 1 or event.get("delta") != told[0][1]:
            return
        member, said = told[0]

        def is_same(value: Json, other: str) -> bool:
            return value == {**event, "delta": other}

        moulds.learn(piece.raw, said, (part.choice, *item.what), self.texts[part.choice, member], is_same)

    def grow(self, raw: bytes, key: Key, said: str, number: int | None) -> None:
        """An event that fits a mould went out as it came."""
        item = self._items.of(key[0])
        if item is not None:
            self._items.grow(raw, item, key[1:], said, number)

    def saved(self) -> Callable[[], None]:
        """What takes it back to where it is now."""
        telling, changed, ids = self._telling.copy(), set(self._changed), list(self._ids)
        cleans_names, is_at_work = self.cleans_names, self.is_at_work

        def go_back() -> None:
            self._telling, self._changed, self._ids = telling, changed, ids
            self.cleans_names, self.is_at_work = cleans_names, is_at_work

        return go_back

    def begin(self, statuses: Mapping[Place, Status]) -> None:
        """From here on, what leaks is told anew.

        Raises:
            NoPlace: it began before.
        """
        super().begin(statuses)
        for (source, _), tracked in self.texts.items():
            if tracked.reader is None or source in self._changed:
                continue
            self._changed.add(source)
            self._telling.take_over(source)

    def tell(self, piece: RawEvent) -> list[bytes]:
        """What goes out for an event: the very bytes, unless something of it is told anew."""
        event = members(piece.value)
        self._is_named = self._is_named or b"event:" in piece.raw[:6] or b"\nevent:" in piece.raw
        if text(event.get("type")) in ENDS:
            return self._end(piece, event)
        if not self.is_at_work or not event:
            self.passed(piece)
            return [piece.raw]
        if piece.source is not None and piece.source in self._changed:
            self._ids += items(event.get("token_ids"))
            return [self._sent(one) for one in self._anew(piece, piece.source, event)]
        return self._passed_on(piece, event)

    def rest(self) -> list[bytes]:
        """What readers still hold where the stream breaks off."""
        return [self._sent(event) for source in sorted(self._changed) for event in self._flushed(source)]

    def others(self) -> bytes:
        """Nothing: the last response has all."""
        return b""

    def ending(self) -> bytes:
        """The event with the last response."""
        return self._last

    # items that are passed on

    def _passed_on(self, piece: RawEvent, event: JsonObject) -> list[bytes]:
        """An event of an item that does not leak, under its new index and number."""
        told = self._items.of(piece.source) if piece.source is not None else None
        mapped = event
        if "output_index" in event:
            is_new = event.get("type") == ADDED or told is None
            mapped = {**event, "output_index": self._items.next_index if is_new or told is None else told.index}
        if piece.source is not None and self._sources.all[piece.source].kind == CALL:
            mapped = self._with_call(piece, piece.source, mapped)
            if mapped.get("delta") == "" and event.get("delta"):
                self._ids += items(event.get("token_ids"))
                return []
        mapped = self._numbered(mapped if told is None else as_told(mapped, told))
        self._items.note(mapped, piece.source)
        raw = piece.raw if mapped == event else piece.told(mapped)
        self._items.keep(raw)
        return [raw]

    def _with_call(self, piece: RawEvent, source: int, event: JsonObject) -> JsonObject:
        """An event of a call with its name and id cleaned, and its arguments cut."""
        calls = [call for part in piece.parts for call in items(part.said.get("tool_calls"))]
        cleaned = [self.cleaned(source, call) for call in calls]
        now: JsonObject = event
        if "delta" in event and cleaned:
            now = {**event, "delta": at(cleaned[0], "function", "arguments")}
        if isinstance(event.get("item"), dict):
            now = {**now, "item": self._clean_item(source, members(event["item"]), cleaned)}
        elif "arguments" in event:
            named: JsonObject = {"name": event.get("name"), "call_id": "", "arguments": event["arguments"]}
            clean = self._clean_item(source, named, cleaned)
            said: JsonObject = {name: clean[name] for name in ("name", "arguments") if name in event}
            now = {**event, **said}
        return now

    def _clean_item(self, source: int, item: JsonObject, cleaned: Sequence[Json]) -> JsonObject:
        call: JsonObject = {"id": item.get("call_id"), "function": {"name": item.get("name")}}
        clean = self.cleaned(source, call)
        said: JsonObject = {"name": at(clean, "function", "name"), "call_id": at(clean, "id")}
        told = self._items.of(source)
        if item.get("arguments"):
            now = "".join(text(at(one, "function", "arguments")) for one in cleaned)
            said["arguments"] = now or (told.said() if told is not None else "") or item["arguments"]
        return {**item, **{name: value for name, value in said.items() if name in item}}

    # items that are told anew

    def _anew(self, piece: RawEvent, source: int, event: JsonObject) -> Iterator[JsonObject]:
        kind = text(event.get("type"))
        if kind == ADDED:
            self._telling.announced[source] = members(event.get("item"))
        elif kind in _ANNOUNCING:
            self._telling.parts[source] = members(event.get("part"))
        elif kind == _ANNOTATED:
            self._telling.annotations.setdefault(source, []).append(event.get("annotation"))
        for part in piece.parts:
            self._telling.heard.setdefault(source, []).append(text(part.said.get("content")))
            yield from self._telling.say(source, self._all_of(part))
        if kind == DONE:
            yield from self._flushed(source)
            yield from self._telling.close(source, members(event.get("item")))

    def _all_of(self, part: ChoiceContent) -> list[ParsedText]:
        spoken, read = self.spoken(part)
        plain = [
            ParsedText(kind=home_of(self.dialect, member), text=said)
            for member, said in self.dialect.texts(part)
            if member not in read
        ]
        return [*plain, *spoken]

    def _flushed(self, source: int) -> Iterator[JsonObject]:
        yield from self._telling.say(source, self.rest_of(source))

    # the end

    def _end(self, piece: RawEvent, event: JsonObject) -> list[bytes]:
        response = members(event.get("response"))
        out: list[bytes] = []
        now: JsonObject = event
        if self.is_at_work:
            ended: JsonObject = {"status": "incomplete" if response.get("status") == "incomplete" else "completed"}
            for part in piece.parts:
                self._changed.add(part.choice)
                self._telling.announced[part.choice] = self._untold(part, response)
                out += [self._sent(one) for one in self._telling.say(part.choice, self._all_of(part))]
            for source in sorted(self._changed):
                out += [self._sent(one) for one in (*self._flushed(source), *self._telling.close(source, ended))]
            output: Json = [self._final(item, response) for item in self._items.all]
            response = members(counted({**response, "output": output}, "".join(self._telling.thought)))
            now = {**self._numbered(event), "response": response}
        if self._mends_status:
            now = self._with_status(now, response)
        if now == event:
            self._last = piece.raw
            self.passed(piece)
            return [*out, piece.raw]
        self._items.count(now)
        self._last = self._framed(now)
        out.append(self._last)
        self._items.keep(out[-1])
        return out

    def _final(self, item: EmittedItem, response: JsonObject) -> Json:
        """An item as the last response has it."""
        theirs = None if item.is_ours or item.kind == CALL else item_of(response, item.id, item.kind)
        return item_as_told(theirs, item) if theirs else item.end or item.value

    def _untold(self, part: ChoiceContent, response: JsonObject) -> JsonObject:
        """The item that a part of the last response is."""
        source = self._sources.all[part.choice]
        output = [members(item) for item in items(response.get("output"))]
        return next(
            (
                item
                for index, item in enumerate(output)
                if (text(item.get("id")) == source.id if source.id else index == source.index)
            ),
            {"type": source.kind, "id": source.id},
        )

    def _with_status(self, event: JsonObject, response: JsonObject) -> JsonObject:
        """The last event with the status that the emitted tokens show."""
        x = self.asking.exchange(self, (), self.asking.framed(event))
        if not (x.hit_token_limit or x.reached_stop) or STATUS not in self.asking.failing(x, (STATUS,)):
            return event
        self.notes.count((STATUS,))
        mended = with_status(response, is_cut=x.hit_token_limit)
        return {**event, "type": f"response.{mended['status']}", "response": mended}

    # what is sent

    def _numbered(self, event: JsonObject) -> JsonObject:
        if not self._items.is_numbered:
            return event
        return {**event, "sequence_number": self._items.number}

    def _sent(self, event: JsonObject) -> bytes:
        """The bytes of an event of ours."""
        kind, told = event["type"], {name: value for name, value in event.items() if name != "type"}
        numbered = self._numbered({"type": kind})
        ids: JsonObject = {"token_ids": [*self._ids]} if self._ids else {}
        self._ids = []
        whole: JsonObject = {**numbered, **told, **ids}
        self._items.count(whole)
        raw = self._framed(whole)
        self._items.keep(raw)
        return raw

    def _framed(self, event: JsonObject) -> bytes:
        data = dumps(event).encode("utf-8", "backslashreplace")
        name = b"event: " + text(event.get("type")).encode("ascii", "replace") + b"\n" if self._is_named else b""
        return name + b"data: " + data + b"\n\n"
