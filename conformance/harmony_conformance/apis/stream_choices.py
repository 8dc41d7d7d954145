"""The choices of a stream, chunk by chunk; and one choice of several, cut out as a separate response."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, value_at
from harmony_conformance.transport.messages import Chunk, Response
from harmony_conformance.transport.sse import Event, EventStream


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
    return tuple(
        ChunkChoice(position, place, integer(choice.get("index")), choice, choice.get("delta"))
        for position, chunk in enumerate(chunks)
        for place, choice in enumerate(map(members, items(members(chunk).get("choices"))))
    )


def extract_choice(body: Json, stream: EventStream | None, response: Response, place: int) -> tuple[Chunk, ...]:
    """Return the body chunks of a response that has only the choice of index `position`, as its first one.

    The formats of several choices differ. SGLang's `/generate` returns a list of complete responses, and its events have an `index`.
    TGI's `/generate` lists further choices in `details.best_of_sequences` of the first.
    """
    if stream is not None:
        return tuple(_events_of(stream, place))
    last = response.chunks[-1].arrival_time if response.chunks else 0.0
    return (Chunk(arrival_time=last, data=dumps(_choice_alone(body, place)).encode("utf-8", "backslashreplace")),)


def _choice_alone(body: Json, place: int) -> Json:
    first = value_at(body, 0) if isinstance(body, list) else body
    if sequences := items(value_at(first, "details", "best_of_sequences")):
        details = dict(members(sequences[place - 1]))
        return {"generated_text": details.pop("generated_text", None), "details": details}
    if isinstance(body, list):
        return body[place]
    return {**members(body), "choices": [{**members(items(value_at(body, "choices"))[place]), "index": 0}]}


def _events_of(stream: EventStream, place: int) -> Iterator[Chunk]:
    for event in stream.events:
        if isinstance(value_at(event.value, "meta_info"), dict):
            if integer(value_at(event.value, "index")) == place:
                yield _event(event, dumps({**members(event.value), "index": 0}))
            continue
        choices = items(value_at(event.value, "choices"))
        own: list[Json] = [{**members(one), "index": 0} for one in choices if integer(value_at(one, "index")) == place]
        if own or not choices:
            yield _event(event, dumps({**members(event.value), "choices": own}) if choices else event.data)


def _event(event: Event, data: str) -> Chunk:
    return Chunk(arrival_time=event.arrival_time, data=f"data: {data}\n\n".encode("utf-8", "backslashreplace"))
