"""The choices of a stream, chunk by chunk; and one choice of several, cut out as a separate response."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import NamedTuple

from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    JsonObject,
    ascii_dumps,
    dumps,
    integer,
    items,
    loads,
    members,
    string_at,
    value_at,
)
from harmony_conformance.prompts.request_members import REASONING_FIELDS
from harmony_conformance.transport.messages import Chunk, Response
from harmony_conformance.transport.sse import Event, EventStream

MOST_FURTHER_CHOICES = 128
"""The most choices after the first one of a response that are judged. OpenAI's API allows 128 choices."""
LARGEST_COPIES = 64 * 1024 * 1024
"""The most bytes of all further choices of a response. Each is copied with the members that it shares with the others."""
MOST_COPIED_VALUES = 4_000_000
"""The most JSON values of all further choices of a response. A parsed value takes about 72 bytes, whatever its length."""
_CHUNK_OVERHEAD = 256
_VALUE_STARTS = (b",", b"[", b"{")
"""Each value of a JSON text but the first follows one of these."""


class ChunkChoice(NamedTuple):
    """One choice in one chunk: index of the chunk, position in its `choices`, the choice's `index` (None if that is no whole number)."""

    chunk_index: int
    position: int
    choice_index: int | None
    choice: JsonObject
    delta: Json

    @property
    def is_first(self) -> bool:
        """True if it belongs to the first choice of the response."""
        return not self.choice_index


def read_chunk_choices(chunks: Iterable[Json]) -> tuple[ChunkChoice, ...]:
    """Return all choices of a stream of `chat.completion.chunk` objects. A choice that is no object is read as an empty one."""
    found: list[ChunkChoice] = []
    for position, chunk in enumerate(chunks):
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        for place, choice in enumerate(choices if isinstance(choices, list) else ()):
            if isinstance(choice, dict):
                found.append(ChunkChoice(position, place, integer(choice.get("index")), choice, choice.get("delta")))
            else:
                found.append(ChunkChoice(position, place, None, {}, None))
    return tuple(found)


class JoinedEvents(NamedTuple):
    """The chunks of a stream, those joined that differ in a piece of text alone, and the indexes of the events without a value."""

    chunks: tuple[Json, ...]
    without_value: tuple[int, ...]


def join_events(events: Iterable[Event]) -> JoinedEvents:
    """Return the chunks of a stream, with consecutive ones joined whose only difference is a piece of text.

    Most chunks of a stream are such pieces: a server sends one for each token. The joined chunks make the same answer.
    If only the piece differs between the texts of two events, the second one is not parsed.
    """
    joined: list[Json | _TextRun] = []
    without_value: list[int] = []
    run: _TextRun | None = None
    for index, event in enumerate(events):
        if run is not None and run.add_data(event.data):
            continue
        chunk = event.value
        if chunk is None:
            without_value.append(index)
        elif run is None or not run.add(chunk):
            run = _TextRun.of(chunk, event.data)
            joined.append(chunk if run is None else run)
    chunks = tuple([one.chunk() if isinstance(one, _TextRun) else one for one in joined])
    return JoinedEvents(chunks, tuple(without_value))


class _TextRun:
    """Chunks that are equal but for a piece of text. State: their pieces, and what surrounds a piece in the data of an event."""

    def __init__(self, chunk: JsonObject, choice: JsonObject, name: str, piece: str, data: str) -> None:
        self._first = chunk
        self._shell = {**chunk, **_NO_CHOICES}
        self._choice_shell = {**choice, **_NO_DELTA}
        self._name = name
        self._pieces = [piece]
        self._data = data
        self._around: tuple[str, str] | None = None

    @classmethod
    def of(cls, chunk: Json, data: str) -> _TextRun | None:
        """Return the run that begins with a chunk. None if the chunk has more than one choice with one text."""
        if not isinstance(chunk, dict) or _has_more(chunk):
            return None
        choices = chunk.get("choices")
        choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
        delta = choice.get("delta") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(delta, dict) or len(delta) != 1:
            return None
        ((name, piece),) = delta.items()
        if name not in _TEXTS or not isinstance(piece, str) or type(choice.get("index")) is not int:
            return None
        if any(value is not None for member, value in choice.items() if member not in _OF_PIECES):
            return None
        return cls(chunk, choice, name, piece, data)

    def add_data(self, data: str) -> bool:
        """Add the piece of an event whose data differs from that of the first one in the piece alone. Return False for any other."""
        before, after = self._around = self._around or self._find_around()
        if not before or not data.startswith(before):
            return False
        piece, end = string_at(data, len(before))
        if piece is None or data[end:] != after:
            return False
        self._pieces.append(piece)
        return True

    def _find_around(self) -> tuple[str, str]:
        """Return the data of the first event before its piece and after it. Empty if that is not certain."""
        for written in (dumps(self._pieces[0]), ascii_dumps(self._pieces[0])):
            before, found, after = self._data.rpartition(written)
            # more letters in this place must change the piece, and nothing else
            if found and self._is_with_text(f"{before}{written[:-1]}{_MORE}{after}", self._pieces[0] + _MORE[:-1]):
                return before, after
        return "", ""

    def _is_with_text(self, data: str, content: str) -> bool:
        try:
            return loads(data) == self._with_text(content)
        except InvalidJsonError:
            return False

    def add(self, chunk: Json) -> bool:
        """Add the piece of a chunk. Return False if another member differs too."""
        if type(chunk) is not dict or type(choices := chunk.get("choices")) is not list or len(choices) != 1:
            return False
        if type(choice := choices[0]) is not dict or type(choice.get("index")) is not int:
            return False
        if type(delta := choice.get("delta")) is not dict or len(delta) != 1:
            return False
        if type(piece := delta.get(self._name)) is not str:
            return False
        if choice | _NO_DELTA != self._choice_shell or chunk | _NO_CHOICES != self._shell:
            return False
        self._pieces.append(piece)
        return True

    def chunk(self) -> JsonObject:
        """Return one chunk with the whole text."""
        if len(self._pieces) == 1:
            return self._first
        return self._with_text("".join(self._pieces))

    def _with_text(self, content: str) -> JsonObject:
        choice: JsonObject = {**self._choice_shell, "delta": {self._name: content}}
        return {**self._shell, "choices": [choice]}


def _has_more(chunk: JsonObject) -> bool:
    return any(chunk.get(name) is not None for name in _ENDS_RUN) or chunk.get("object") == "error"


_NO_CHOICES: JsonObject = {"choices": None}
_NO_DELTA: JsonObject = {"delta": None}
_MORE = 'x"'
_TEXTS = frozenset({"content", *REASONING_FIELDS})
_OF_PIECES = ("index", "delta")
_ENDS_RUN = frozenset({"error", "usage", "prompt_token_ids"})
"""Members of chunks that have more than a text."""


def extract_choices(
    body: Json, stream: EventStream | None, response: Response, count: int
) -> Iterator[tuple[Chunk, ...]]:
    """Yield, for each further choice of a response with `count` choices, the body chunks that show it as the only choice.

    The formats of several choices differ. SGLang's `/generate` returns a list of complete responses, and its events have an `index`.
    TGI's `/generate` lists further choices in `details.best_of_sequences` of the first.

    Each copy repeats the members that all choices share. Choices after the first `MOST_FURTHER_CHOICES`, and those whose copies
    together are larger than `LARGEST_COPIES` or have more than `MOST_COPIED_VALUES`, are left out.
    """
    places = range(1, min(count, MOST_FURTHER_CHOICES + 1))
    if not places:  # the choices of a stream are collected for others alone
        return
    last = response.chunks[-1].arrival_time if response.chunks else 0.0
    events = _StreamChoices(stream, places) if stream is not None else None
    remaining, remaining_values = LARGEST_COPIES, MOST_COPIED_VALUES
    for place in places:
        chunks: list[Chunk] = []
        for chunk in events.chunks_of(place) if events is not None else (_body_chunk(body, place, last),):
            remaining -= len(chunk.data) + _CHUNK_OVERHEAD
            remaining_values -= sum(map(chunk.data.count, _VALUE_STARTS))
            if remaining < 0 or remaining_values < 0:
                return
            chunks.append(chunk)
        yield tuple(chunks)


def _body_chunk(body: Json, place: int, arrival_time: float) -> Chunk:
    data = dumps(_choice_alone(body, place)).encode("utf-8", "backslashreplace")
    return Chunk(arrival_time=arrival_time, data=data)


def _choice_alone(body: Json, place: int) -> Json:
    first = value_at(body, 0) if isinstance(body, list) else body
    if sequences := items(value_at(first, "details", "best_of_sequences")):
        details = dict(members(sequences[place - 1]))
        return {"generated_text": details.pop("generated_text", None), "details": details}
    if isinstance(body, list):
        return body[place]
    return {**members(body), "choices": [{**members(items(value_at(body, "choices"))[place]), "index": 0}]}


class _StreamChoices:
    """The events of a stream by choice, with the position of each: those of one choice, and those that belong to all."""

    def __init__(self, stream: EventStream, places: range) -> None:
        self._shared: list[tuple[int, Chunk]] = []
        self._own: defaultdict[int, list[tuple[int, Event, list[Json]]]] = defaultdict(list)
        usage: tuple[int, Event, frozenset[int]] | None = None
        for position, event in enumerate(stream.events):
            if isinstance(value_at(event.value, "meta_info"), dict):
                if (place := integer(value_at(event.value, "index"))) is not None and place in places:
                    self._own[place].append((position, event, []))
                continue
            choices = items(value_at(event.value, "choices"))
            if not choices:
                self._shared.append((position, _event(event, event.data)))
            own: defaultdict[int, list[Json]] = defaultdict(list)
            for choice in choices:
                if (place := integer(value_at(choice, "index"))) is not None and place in places:
                    own[place].append(choice)
            for place, found in own.items():
                self._own[place].append((position, event, found))
            if isinstance(value_at(event.value, "usage"), dict):
                usage = (position, event, frozenset(own)) if choices else None
        if usage is not None:  # the usage of the request, in a chunk with choices
            position, event, has_it = usage
            for place in set(places) - has_it:
                self._own[place].append((position, event, []))

    def chunks_of(self, place: int) -> Iterator[Chunk]:
        """Yield the chunks of one choice, in order of arrival."""
        own = ((position, _event_alone(event, choices)) for position, event, choices in self._own.get(place, ()))
        for _, chunk in merge(self._shared, own, key=itemgetter(0)):
            yield chunk


def _event_alone(event: Event, choices: list[Json]) -> Chunk:
    """Return an event with these choices as the first one. An event of SGLang without `choices` is the choice."""
    value = members(event.value)
    if "choices" not in value:
        return _event(event, dumps({**value, "index": 0}))
    own: list[Json] = [{**members(choice), "index": 0} for choice in choices]
    return _event(event, dumps({**value, "choices": own}))


def _event(event: Event, data: str) -> Chunk:
    return Chunk(arrival_time=event.arrival_time, data=f"data: {data}\n\n".encode("utf-8", "backslashreplace"))
