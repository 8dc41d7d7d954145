"""Chat Completions, which is read as it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harmony_conformance.apis.api import CHAT, Api
from harmony_conformance.json_value import Json, JsonObject


def _same(value: Json) -> Json:
    return value


def _spelled(request: JsonObject) -> JsonObject:
    return request


def _each(values: Iterable[Json]) -> Iterator[Json]:
    yield from values


CHAT_COMPLETIONS = Api(
    name="chat",
    title="Chat Completions",
    path=CHAT,
    write_request=_spelled,
    read_request=_same,
    read_response=_same,
    read_events=_each,
    answer_member="choices: […]",
)
