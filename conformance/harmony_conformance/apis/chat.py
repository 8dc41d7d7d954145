"""Chat Completions. The adapter returns everything unchanged."""

from __future__ import annotations

from harmony_conformance.apis.api import CHAT_PATH, Api
from harmony_conformance.json_value import Json, JsonObject


def _write_request(request: JsonObject) -> JsonObject:
    return request


def _read(value: Json) -> Json:
    return value


CHAT_COMPLETIONS = Api(
    name="chat",
    title="Chat Completions",
    path=CHAT_PATH,
    write_request=_write_request,
    read_request=_read,
    read_response=_read,
    read_events=iter,
    answer_member="choices: […]",
)
