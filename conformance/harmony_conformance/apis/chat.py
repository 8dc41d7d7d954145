"""Chat Completions. The adapter returns everything unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from harmony_conformance.apis.api import CHAT, Api
from harmony_conformance.json_value import Json, JsonObject


def _write_request(request: JsonObject) -> JsonObject:
    return request


def _read(value: Json) -> Json:
    return value


def _read_events(values: Iterable[Json]) -> Iterator[Json]:
    yield from values


CHAT_COMPLETIONS = Api(
    name="chat",
    title="Chat Completions",
    path=CHAT,
    write_request=_write_request,
    read_request=_read,
    read_response=_read,
    read_events=_read_events,
    answer_member="choices: […]",
)
