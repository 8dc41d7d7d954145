"""Defects of the system message, the order of instructions, the response format and assistant prefills."""

from dataclasses import replace
from itertools import takewhile

from harmony_conformance.json_value import JsonObject, items, value_at
from harmony_conformance.reference_server.defects.changes.conversation import each_part_of
from harmony_conformance.reference_server.defects.stages import Defect, OnConversation, OnRequest
from harmony_conformance.reference_server.requests.chat_messages import INSTRUCTING
from harmony_ref import DeveloperContent, SystemContent


def _system_last(body: JsonObject) -> JsonObject:
    """Sort the leading instructions: developer messages first, then system messages."""
    messages = items(body.get("messages"))
    leading = list(takewhile(lambda entry: value_at(entry, "role") in INSTRUCTING, messages))
    ordered = sorted(leading, key=lambda entry: value_at(entry, "role") == "system")
    return {**body, "messages": [*ordered, *messages[len(leading) :]]} if leading else body


def _with_prefill(count: int) -> OnRequest:
    """Repeat a prefill, an assistant message at the end of the request, `count` times."""

    def changed(body: JsonObject) -> JsonObject:
        messages = items(body.get("messages"))
        is_prefilled = len(messages) > 1 and value_at(messages[-1], "role") == "assistant"
        return {**body, "messages": [*messages[:-1], *messages[-1:] * count]} if is_prefilled else body

    return OnRequest(changed)


def _schema_without_required(part: DeveloperContent) -> DeveloperContent:
    formats = (
        replace(one, schema={name: one.schema[name] for name in one.schema if name != "required"})
        if isinstance(one.schema, dict)
        else one
        for one in part.response_formats
    )
    return replace(part, response_formats=tuple(formats))


DEFECTS = (
    Defect(
        "system-after-developer",
        "System messages are rendered after developer messages, regardless of their order in the request.",
        OnRequest(_system_last),
    ),
    Defect(
        "date-of-the-epoch",
        "The current date in the system message is 1970-01-01.",
        OnConversation(each_part_of(SystemContent, lambda part: replace(part, conversation_start_date="1970-01-01"))),
    ),
    Defect(
        "answer-schema-damaged",
        "The schema of the answer appears in the prompt without `required`.",
        OnConversation(each_part_of(DeveloperContent, _schema_without_required)),
    ),
    Defect(
        "prefill-dropped",
        "An assistant message at the end of the request is dropped without an error.",
        _with_prefill(0),
    ),
    Defect(
        "prefill-doubled",
        "An assistant message at the end of the request appears twice: as history and as the start of the answer.",
        _with_prefill(2),
    ),
)
