"""The choices of a stream, one by one as its chunks bring them; and one choice of an answer that has several, as an answer of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members, number
from harmony_conformance.transport.messages import Chunk, Response
from harmony_conformance.transport.sse import Event, EventStream


class ChunkChoice(NamedTuple):
    """A choice of a chunk: which chunk, its place there, the number of the choice (None where that is no whole number), and its delta."""

    chunk: int
    place: int
    number: int | None
    choice: JsonObject
    delta: Json

    @property
    def is_first(self) -> bool:
        """Whether it belongs to the first choice of the answer."""
        return not self.number


def streamed_choices(chunks: Iterable[Json]) -> tuple[ChunkChoice, ...]:
    """The choices of a stream of `chat.completion.chunk` objects; what is no object has no members."""
    return tuple(
        ChunkChoice(position, place, number(choice.get("index")), choice, choice.get("delta"))
        for position, chunk in enumerate(chunks)
        for place, choice in enumerate(map(members, items(members(chunk).get("choices"))))
    )


def only_choice(body: Json, stream: EventStream | None, response: Response, place: int) -> tuple[Chunk, ...]:
    """The bytes of a chat completion, or of a stream of its chunks, that hold one of its choices as the first.

    SGLang's own answers are a list of choices, each of them whole, and an event of its streams is of the choice that its `index` names. TGI's have the
    others in the details of the first.
    """
    if stream is not None:
        return tuple(_events_of(stream, place))
    last = response.chunks[-1].at if response.chunks else 0.0
    return (Chunk(at=last, data=dumps(_alone(body, place)).encode("utf-8", "backslashreplace")),)


def _alone(body: Json, place: int) -> Json:
    told = at(body, 0) if isinstance(body, list) else body
    if sequences := items(at(told, "details", "best_of_sequences")):
        details = dict(members(sequences[place - 1]))
        return {"generated_text": details.pop("generated_text", None), "details": details}
    if isinstance(body, list):
        return body[place]
    return {**members(body), "choices": [{**members(items(at(body, "choices"))[place]), "index": 0}]}


def _events_of(stream: EventStream, place: int) -> Iterator[Chunk]:
    for event in stream.events:
        if isinstance(at(event.value, "meta_info"), dict):
            if number(at(event.value, "index")) == place:
                yield _event(event, dumps({**members(event.value), "index": 0}))
            continue
        held = items(at(event.value, "choices"))
        kept: list[Json] = [{**members(one), "index": 0} for one in held if number(at(one, "index")) == place]
        if held and not kept:
            continue
        data = dumps({**members(event.value), "choices": kept}) if held else event.data
        yield _event(event, data)


def _event(event: Event, data: str) -> Chunk:
    return Chunk(at=event.at, data=f"data: {data}\n\n".encode("utf-8", "backslashreplace"))
