"""Views of an answer of the Responses API: the response object, its items, and the events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import LiteralString

from harmony_conformance.apis.registry import RESPONSES
from harmony_conformance.evidence.emitted_ids import strip_endoftext
from harmony_conformance.evidence.exchange import Exchange
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at
from harmony_conformance.judge import conditions as on
from harmony_conformance.judge.condition import condition, only_on
from harmony_ref import HarmonyError, Message, Role, parse

STATUS_BY_FINAL_EVENT: dict[str, LiteralString] = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
    "response.cancelled": "cancelled",
}
"""The events that end a stream, with the corresponding status."""

ITEM_ADDED = "response.output_item.added"
"""The event that announces an item."""
ITEM_DONE = "response.output_item.done"
"""The event that finishes an item."""

TEXT_KIND_BY_EVENT: dict[str, LiteralString] = {
    "response.output_text": "output_text",
    "response.refusal": "refusal",
    "response.reasoning_text": "reasoning_text",
    "response.reasoning_summary_text": "summary_text",
    "response.mcp_call_arguments": "arguments",
    "response.function_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
    "response.code_interpreter_call_code": "code",
}
"""The kind of text by the prefix of its `.delta` and `.done` events."""

CLAUSE_BY_EVENT: dict[str, str] = {
    "response.output_text": "responses#text-done",
    "response.refusal": "responses#refusal-done",
    "response.reasoning_text": "responses#reasoning-text-done",
    "response.reasoning_summary_text": "responses#summary-events",
    "response.mcp_call_arguments": "responses#mcp-arguments-done",
    "response.function_call_arguments": "responses#arguments-done",
    "response.custom_tool_call_input": "responses#custom-input-done",
    "response.code_interpreter_call_code": "responses#code-done",
}
"""The clause on the end of a text by the same prefix."""

VISIBLE_TEXT_KINDS = frozenset({"output_text", "refusal"})
"""The kinds of text of an answer. Only they need deltas: reasoning may be hidden or summarised, and arguments may come whole."""

TEXT_MEMBER_BY_KIND = {"refusal": "refusal", "arguments": "arguments", "input": "input", "code": "code"}
"""The member with the complete text by kind, if it is not `text`."""


@only_on(RESPONSES.name)
@condition
def is_responses(x: Exchange) -> bool:
    """ordinary exchanges on the Responses API"""
    return x.api == RESPONSES.name and on.is_conversation.holds(x)


STREAM_CONDITIONS = (is_responses, on.has_full_api_stream, on.is_complete_answer)


@condition
def has_response_object(x: Exchange) -> bool:
    """answers that are a response object, or a stream whose last event has one"""
    return bool(response(x))


def response(x: Exchange) -> JsonObject:
    """Return the response object, in a stream that of the last event; empty without one."""
    if x.events is None:
        return members(x.response_json)
    ends = [event for event in json_events(x) if text(event.get("type")) in STATUS_BY_FINAL_EVENT]
    return members(ends[-1].get("response")) if ends else {}


def output(x: Exchange) -> list[Json]:
    """Return the items of the response object."""
    return items(response(x).get("output"))


def json_events(x: Exchange) -> list[JsonObject]:
    """Return the JSON events in order, as they were on the wire."""
    return [members(event.value) for event in x.events.events if event.value is not None] if x.events else []


def events_by_item(x: Exchange) -> list[tuple[JsonObject, int | str | None]]:
    """Return the JSON events, each with the index of its item in the output, else the item's id; None without an item.

    If no item was announced at an event's index, but one with its id elsewhere, the event belongs to that item.
    A separate check reports the wrong index.
    """
    announced: dict[str, int] = {}
    placed: list[tuple[JsonObject, int | str | None]] = []
    for event in json_events(x):
        index, name = integer(event.get("output_index")), id_of(event)
        if index is not None and name and text(event.get("type")) == ITEM_ADDED:
            announced[name] = index
        if index is not None and index not in announced.values():
            index = announced.get(name, index)
        placed.append((event, index if index is not None else name or None))
    return placed


def output_messages(x: Exchange) -> tuple[Message, ...]:
    """Return the messages of the model's output; empty if it is malformed."""
    try:
        return tuple(parse(strip_endoftext(x.output.ids or ()), role=Role.ASSISTANT))
    except HarmonyError:
        return ()


def id_of(event: JsonObject) -> str:
    """Return the item id of an event, or the `call_id` of a call without an id; empty without both."""
    item = event.get("item")
    return text(event.get("item_id")) or text(value_at(item, "id")) or text(value_at(item, "call_id"))


def part_of(event: JsonObject) -> int:
    """Return the index of the item's part that an event is about."""
    indexes = (integer(event.get(name)) for name in ("content_index", "summary_index"))
    return next((index for index in indexes if index is not None), 0)


def text_kind(event: JsonObject, ending: str) -> LiteralString | None:
    """Return the kind of text of an event with this ending (`.delta`, `.done`), None for other events."""
    kind = text(event.get("type"))
    return TEXT_KIND_BY_EVENT.get(kind.removesuffix(ending)) if kind.endswith(ending) else None


def texts_of(item: Json) -> Iterator[tuple[str, int, str]]:
    """Yield the texts of an item: the kind, the index of the part, and the text."""
    for member in ("content", "summary"):
        for place, part in enumerate(items(value_at(item, member))):
            kind = text(value_at(part, "type"))
            yield kind, place, text(value_at(part, TEXT_MEMBER_BY_KIND.get(kind, "text")))
    for member in ("arguments", "input", "code"):
        if isinstance(value_at(item, member), str):
            yield member, 0, text(value_at(item, member))
