"""The choices of a stream, one by one as its chunks bring them: walked once for all who ask."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from harmony_conformance import json_value
from harmony_conformance.json_value import Json, JsonObject, items, members


class StreamedChoice(NamedTuple):
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


def streamed_choices(chunks: Iterable[Json]) -> tuple[StreamedChoice, ...]:
    """The choices of a stream of `chat.completion.chunk` objects; what is no object has no members."""
    return tuple(
        StreamedChoice(position, place, json_value.number(choice.get("index")), choice, choice.get("delta"))
        for position, chunk in enumerate(chunks)
        for place, choice in enumerate(map(members, items(members(chunk).get("choices"))))
    )
