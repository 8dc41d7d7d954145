"""Defects of what frames a conversation: the system message, the order of instructions, the form of the answer, an answer that was begun."""

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from harmony_conformance.json_value import Json, JsonObject, items, members
from harmony_conformance.reference_server.defects.stages import Defect, OnConversation, OnRequest
from harmony_conformance.reference_server.requests.chat_messages import INSTRUCTING
from harmony_ref import Content, DeveloperContent, Message, SystemContent


def _role(entry: Json) -> Json:
    return members(entry).get("role")


def _system_last(body: JsonObject) -> JsonObject:
    """The leading system and developer messages with the developer's first."""
    messages = items(body.get("messages"))
    leading = list(takewhile(lambda entry: _role(entry) in INSTRUCTING, messages))
    ordered = sorted(leading, key=lambda entry: _role(entry) == "system")
    return {**body, "messages": [*ordered, *messages[len(leading) :]]} if leading else body


def _without_prefill(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    is_prefilled = len(messages) > 1 and _role(messages[-1]) == "assistant"
    return {**body, "messages": messages[:-1]} if is_prefilled else body


def _prefill_twice(body: JsonObject) -> JsonObject:
    messages = items(body.get("messages"))
    is_prefilled = len(messages) > 1 and _role(messages[-1]) == "assistant"
    return {**body, "messages": [*messages, messages[-1]]} if is_prefilled else body


def _each_part(change: Callable[[Content], Content]) -> Callable[[tuple[Message, ...]], tuple[Message, ...]]:
    def changed(message: Message) -> Message:
        return replace(message, content=tuple(map(change, message.content)))

    return lambda messages: tuple(map(changed, messages))


def _at_the_epoch(part: Content) -> Content:
    return replace(part, conversation_start_date="1970-01-01") if isinstance(part, SystemContent) else part


def _schema_without_required(part: Content) -> Content:
    if not isinstance(part, DeveloperContent):
        return part
    formats = (
        replace(one, schema={name: value for name, value in one.schema.items() if name != "required"})
        if isinstance(one.schema, dict)
        else one
        for one in part.response_formats
    )
    return replace(part, response_formats=tuple(formats))


DEFECTS = (
    Defect(
        id="system-after-developer",
        catalogue=(),
        summary="System messages are rendered after the developer's, whatever their order in the request.",
        change=OnRequest(_system_last),
    ),
    Defect(
        id="date-of-the-epoch",
        catalogue=(),
        summary="The model is told that today is 1970-01-01.",
        change=OnConversation(_each_part(_at_the_epoch)),
    ),
    Defect(
        id="answer-schema-damaged",
        catalogue=(),
        summary="The schema of the answer stands in the prompt without its list of required members.",
        change=OnConversation(_each_part(_schema_without_required)),
    ),
    Defect(
        id="prefill-dropped",
        catalogue=(),
        summary="An assistant message at the end of the request is dropped without an error.",
        change=OnRequest(_without_prefill),
    ),
    Defect(
        id="prefill-doubled",
        catalogue=(),
        summary="An assistant message at the end of the request stands in the prompt twice: as history, and as the beginning of the answer.",
        change=OnRequest(_prefill_twice),
    ),
)
