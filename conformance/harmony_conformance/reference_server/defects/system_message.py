"""Defects of the system message, the order of instructions, the response format and assistant prefills."""

from dataclasses import replace
from itertools import takewhile

from harmony_conformance.json_value import JsonObject, at, items
from harmony_conformance.reference_server.defects.message_changes import each_part
from harmony_conformance.reference_server.defects.stages import Defect, OnConversation, OnRequest
from harmony_conformance.reference_server.requests.chat_messages import INSTRUCTING
from harmony_ref import Content, DeveloperContent, SystemContent


def _system_last(body: JsonObject) -> JsonObject:
    """Sort the leading instructions: developer messages first, then system messages."""
    messages = items(body.get("messages"))
    leading = list(takewhile(lambda entry: at(entry, "role") in INSTRUCTING, messages))
    ordered = sorted(leading, key=lambda entry: at(entry, "role") == "system")
    return {**body, "messages": [*ordered, *messages[len(leading) :]]} if leading else body


def _with_prefill(count: int) -> OnRequest:
    """Repeat a prefill, an assistant message at the end of the request, `count` times."""

    def changed(body: JsonObject) -> JsonObject:
        messages = items(body.get("messages"))
        is_prefilled = len(messages) > 1 and at(messages[-1], "role") == "assistant"
        return {**body, "messages": [*messages[:-1], *messages[-1:] * count]} if is_prefilled else body

    return OnRequest(changed)


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
        summary="System messages are rendered after developer messages, regardless of their order in the request.",
        change=OnRequest(_system_last),
    ),
    Defect(
        id="date-of-the-epoch",
        summary="The current date in the system message is 1970-01-01.",
        change=OnConversation(each_part(_at_the_epoch)),
    ),
    Defect(
        id="answer-schema-damaged",
        summary="The schema of the answer appears in the prompt without `required`.",
        change=OnConversation(each_part(_schema_without_required)),
    ),
    Defect(
        id="prefill-dropped",
        summary="An assistant message at the end of the request is dropped without an error.",
        change=_with_prefill(0),
    ),
    Defect(
        id="prefill-doubled",
        summary="An assistant message at the end of the request appears twice: as history and as the start of the answer.",
        change=_with_prefill(2),
    ),
)
