"""Defects of the Responses API: of the JSON and the events that only it has.

What is wrong between request and answer (prompt, sampling, reading) is wrong in every API and stands in the other modules.
"""

from collections.abc import Iterator
from dataclasses import replace

from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text
from harmony_conformance.reference_server.defects.body_changes import (
    Body,
    in_list,
    in_member,
    on_json,
    on_request,
    where,
    without,
)
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnConversation, OnJson, OnStream
from harmony_conformance.reference_server.requests.errors import server_failure
from harmony_ref import Message, Role


def _zero(usage: JsonObject) -> JsonObject:
    return {name: 0 if number(value) is not None else value for name, value in usage.items()}


def _no_output_when_cut(body: JsonObject) -> JsonObject:
    return {**body, "output": []} if body.get("status") == "incomplete" else body


def _as_output_text(item: JsonObject) -> JsonObject:
    parts: list[Json] = [{**members(part), "type": "output_text"} for part in items(item.get("content"))]
    return {**item, "role": "assistant", "content": parts}


def _only_with_content(item: JsonObject) -> JsonObject:
    if not items(item.get("content")):
        raise server_failure("item['content'] is not an array")
    return item


def _error(message: str) -> JsonObject:
    return {"type": "error", "code": None, "message": message, "param": None}


def _calls_break_the_stream(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        if at(event, "item", "type") == "function_call":
            yield _error("list index out of range")
            return
        yield event


def _nameless_calls(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        if at(event, "item", "type") == "function_call":
            yield {**members(event), "item": {**members(at(event, "item")), "name": None}}
            yield _error("1 validation error for ResponseFunctionToolCallItem: name")
            return
        yield event


def _without_channel_or_type(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple(_bare(message) if message.author.role is Role.ASSISTANT else message for message in messages)


def _bare(message: Message) -> Message:
    channel = None if message.channel == "analysis" else message.channel
    return replace(message, channel=channel, content_type=None)


def _always_completed(body: JsonObject) -> JsonObject:
    return {**body, "status": "completed", "incomplete_details": None} if body.get("status") == "incomplete" else body


def _ends_completed(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        is_incomplete = at(event, "type") == "response.incomplete"
        yield {**members(event), "type": "response.completed"} if is_incomplete else event


def _one_id(item: JsonObject) -> JsonObject:
    return {**item, "id": "item_0"}


def _numbered_from_one(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        yield {**members(event), "sequence_number": (number(at(event, "sequence_number")) or 0) + 1}


def _without_events(*kinds: str) -> OnStream:
    """Streams without events of some types, numbered as if there were none; the ids of tokens that they show come with the next."""

    def left(stream: Iterator[Json]) -> Iterator[Json]:
        place, ids = 0, list[Json]()
        for event in stream:
            ids = [*ids, *items(at(event, "token_ids"))]
            if at(event, "type") not in kinds:
                yield {**members(event), "sequence_number": place, **({"token_ids": ids} if ids else {})}
                place, ids = place + 1, []

    return OnStream(left, ApiFamily.RESPONSES)


def _in_events(change: Body) -> OnStream:
    return OnStream(lambda stream: (change(members(event)) for event in stream), ApiFamily.RESPONSES)


def _one_place_before(event: JsonObject) -> JsonObject:
    index = number(event.get("output_index"))
    is_end = text(event.get("type")).endswith(".done")
    return event if index is None or is_end else {**event, "output_index": index - 1}


def _last_piece_as_text(stream: Iterator[Json]) -> Iterator[Json]:
    last = ""
    for event in stream:
        kind = text(at(event, "type"))
        if kind == "response.content_part.added":
            last = ""
        elif kind == "response.output_text.delta":
            last = text(at(event, "delta"))
        yield {**members(event), "text": last} if kind == "response.output_text.done" else event


def _another_call_id(event: JsonObject) -> JsonObject:
    """The call, when it is added, by an id that it does not keep."""
    item = members(event.get("item"))
    is_call = event.get("type") == "response.output_item.added" and item.get("type") == "function_call"
    return {**event, "item": {**item, "call_id": f"{text(item.get('call_id'))}0"}} if is_call else event


def _another_response_id(event: JsonObject) -> JsonObject:
    is_first = event.get("type") == "response.created"
    told = members(event.get("response"))
    return {**event, "response": {**told, "id": f"{text(told.get('id'))}0"}} if is_first else event


def _ends_empty(event: JsonObject) -> JsonObject:
    is_end = event.get("type") in ("response.completed", "response.incomplete")
    return {**event, "response": {**members(event["response"]), "output": []}} if is_end else event


def _thoughts_last(body: JsonObject) -> JsonObject:
    told = items(body.get("output"))
    thoughts = [item for item in told if at(item, "type") == "reasoning"]
    return {**body, "output": [*(item for item in told if item not in thoughts), *thoughts]} if thoughts else body


def _no_calls_of_its_own(body: JsonObject) -> JsonObject:
    kept: list[Json] = [
        item
        for item in items(body.get("output"))
        if at(item, "type") not in ("web_search_call", "code_interpreter_call")
    ]
    return {**body, "output": kept}


def _without_logprobs(body: JsonObject) -> JsonObject:
    included = items(body.get("include"))
    return {**body, "include": [one for one in included if one != _LOGPROBS]} if _LOGPROBS in included else body


_LOGPROBS = "message.output_text.logprobs"


def _first_lost(part: JsonObject) -> JsonObject:
    return {**part, "logprobs": items(part["logprobs"])[1:]} if items(part.get("logprobs")) else part


DEFECTS = (
    on_request(
        ApiFamily.RESPONSES,
        "responses-logprobs-ignored",
        [],
        "Log probabilities that `include` lists are not told.",
        _without_logprobs,
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-logprobs-shifted",
        [],
        "The log probabilities of a text lack the first.",
        in_list("output", in_list("content", _first_lost)),
    ),
    Defect(
        id="responses-stream-breaks-at-calls",
        catalogue=("V11",),
        summary="A stream ends with an error event where a call begins; no event tells of the call.",
        change=OnStream(_calls_break_the_stream, ApiFamily.RESPONSES),
    ),
    Defect(
        id="responses-items-bare",
        catalogue=("V18",),
        summary="Reasoning that comes back is rendered without a channel, calls without a content type.",
        change=OnConversation(_without_channel_or_type),
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-usage-zero",
        ["V26"],
        "Every count in `usage` is 0.",
        in_member("usage", _zero),
    ),
    Defect(
        id="responses-call-without-name",
        catalogue=("V35",),
        summary="The item of a call is announced without a name, and the stream ends with an error event.",
        change=OnStream(_nameless_calls, ApiFamily.RESPONSES),
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-output-empty-when-cut",
        ["V39"],
        "An answer that the limit cut has no output, not even the reasoning.",
        _no_output_when_cut,
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-reasoning-as-output-text",
        ["P07"],
        "The parts of reasoning items are of type `output_text`, and the item has the role assistant.",
        in_list("output", where("reasoning", _as_output_text)),
    ),
    on_request(
        ApiFamily.RESPONSES,
        "responses-reasoning-text-unread",
        ["O15"],
        "Of a reasoning item only `encrypted_content` and `summary` are read, not the `content` that it was returned with.",
        in_list("input", where("reasoning", without("content"))),
    ),
    on_request(
        ApiFamily.RESPONSES,
        "responses-summary-500",
        ["L10"],
        "A reasoning item without `content` is answered with a 500.",
        in_list("input", where("reasoning", _only_with_content)),
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-reasoning-tokens-zero",
        ["S09"],
        "`reasoning_tokens` is 0 although there is reasoning.",
        in_member("usage", in_member("output_tokens_details", _zero)),
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-object-bare",
        [],
        "The response does not say what it is, and when it was made.",
        without("object", "created_at"),
    ),
    Defect(
        id="responses-completed-when-cut",
        catalogue=(),
        summary="The status is always `completed`, also where the limit cut the answer.",
        change=(OnJson(_always_completed, ApiFamily.RESPONSES), OnStream(_ends_completed, ApiFamily.RESPONSES)),
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-ids-repeated",
        [],
        "All items of a response have the same id.",
        in_list("output", _one_id),
    ),
    Defect(
        id="responses-numbered-from-one",
        catalogue=(),
        summary="The events of a stream are numbered from 1.",
        change=OnStream(_numbered_from_one, ApiFamily.RESPONSES),
    ),
    Defect(
        id="responses-parts-not-announced",
        catalogue=(),
        summary="No event announces a part of an item; its deltas come at once.",
        change=_without_events("response.content_part.added"),
    ),
    Defect(
        id="responses-texts-not-ended",
        catalogue=(),
        summary="No event ends a text; the item is done after its last delta.",
        change=_without_events(
            "response.output_text.done", "response.reasoning_text.done", "response.function_call_arguments.done"
        ),
    ),
    Defect(
        id="responses-output-index-missing",
        catalogue=(),
        summary="No event says which item of the output it is about (`output_index`).",
        change=_in_events(without("output_index")),
    ),
    Defect(
        id="responses-announced-one-before",
        catalogue=(),
        summary="Items are announced, and their deltas told, one place before the one at which they are finished.",
        change=_in_events(_one_place_before),
    ),
    Defect(
        id="responses-last-piece-as-text",
        catalogue=(),
        summary="The event that ends a text has its last piece alone.",
        change=OnStream(_last_piece_as_text, ApiFamily.RESPONSES),
    ),
    Defect(
        id="responses-last-output-empty",
        catalogue=(),
        summary="The response of the last event has no output.",
        change=_in_events(_ends_empty),
    ),
    Defect(
        id="responses-call-id-changes",
        catalogue=(),
        summary="A call is added with another `call_id` than it is finished with.",
        change=_in_events(_another_call_id),
    ),
    Defect(
        id="responses-id-changes",
        catalogue=(),
        summary="The event that begins a stream has another id of the response than the others.",
        change=_in_events(_another_response_id),
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-thoughts-last",
        [],
        "Thoughts are listed behind the answer or the call that they led to.",
        _thoughts_last,
    ),
    on_request(
        ApiFamily.RESPONSES,
        "responses-previous-unread",
        [],
        "`previous_response_id` is ignored: the model is shown the new input alone.",
        without("previous_response_id"),
    ),
    on_json(
        ApiFamily.RESPONSES,
        "responses-built-in-left-out",
        [],
        "Calls of the browser and of Python are left out of the output.",
        _no_calls_of_its_own,
    ),
)
