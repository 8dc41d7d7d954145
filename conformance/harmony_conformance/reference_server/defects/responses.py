"""Defects in the JSON and the events of the Responses API.

Defects of the stages that all APIs share (prompt, sampling, parsing) are in other modules.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    BodyChange,
    all_zero,
    drop_members,
    for_type,
    in_list,
    in_member,
    on_json,
    on_request,
    without_events,
)
from harmony_conformance.reference_server.defects.changes.conversation import each_message
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnConversation, OnJson, OnStream
from harmony_conformance.reference_server.requests.errors import server_failure
from harmony_ref import Message, Role


def _as_assistant_message(item: JsonObject) -> JsonObject:
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
        if value_at(event, "item", "type") == "function_call":
            yield _error("list index out of range")
            return
        yield event


def _nameless_calls(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        if value_at(event, "item", "type") == "function_call":
            yield {**members(event), "item": {**members(value_at(event, "item")), "name": None}}
            yield _error("1 validation error for ResponseFunctionToolCallItem: name")
            return
        yield event


def _without_channel_or_type(message: Message) -> Message:
    if message.author.role is not Role.ASSISTANT:
        return message
    channel = None if message.channel == "analysis" else message.channel
    return replace(message, channel=channel, content_type=None)


def _always_completed(body: JsonObject) -> JsonObject:
    return {**body, "status": "completed", "incomplete_details": None} if body.get("status") == "incomplete" else body


def _ends_completed(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        is_incomplete = value_at(event, "type") == "response.incomplete"
        yield {**members(event), "type": "response.completed"} if is_incomplete else event


def _numbered_from_one(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        yield {**members(event), "sequence_number": (integer(value_at(event, "sequence_number")) or 0) + 1}


def _without_events(*kinds: str) -> OnStream:
    """Drop events of some types. Their token ids move to the next event."""

    def is_dropped(event: Json) -> bool:
        return value_at(event, "type") in kinds

    def ids_moved(stream: Iterator[Json]) -> Iterator[Json]:
        ids = list[Json]()
        for event in stream:
            ids = [*ids, *items(value_at(event, "token_ids"))]
            yield {**members(event), "token_ids": ids} if ids else event
            ids = ids if is_dropped(event) else []

    return OnStream(lambda stream: without_events(ids_moved(stream), is_dropped), ApiFamily.RESPONSES)


def _in_events(change: BodyChange) -> OnStream:
    return OnStream(lambda stream: (change(members(event)) for event in stream), ApiFamily.RESPONSES)


def _one_place_before(event: JsonObject) -> JsonObject:
    index = integer(event.get("output_index"))
    is_end = text(event.get("type")).endswith(".done")
    return event if index is None or is_end else {**event, "output_index": index - 1}


def _last_piece_as_text(stream: Iterator[Json]) -> Iterator[Json]:
    last = ""
    for event in stream:
        kind = text(value_at(event, "type"))
        if kind == "response.content_part.added":
            last = ""
        elif kind == "response.output_text.delta":
            last = text(value_at(event, "delta"))
        yield {**members(event), "text": last} if kind == "response.output_text.done" else event


def _another_call_id(event: JsonObject) -> JsonObject:
    """Announce each call with a `call_id` that differs from its final one."""
    item = members(event.get("item"))
    is_call = event.get("type") == "response.output_item.added" and item.get("type") == "function_call"
    return {**event, "item": {**item, "call_id": f"{text(item.get('call_id'))}0"}} if is_call else event


def _another_response_id(event: JsonObject) -> JsonObject:
    is_first = event.get("type") == "response.created"
    response = members(event.get("response"))
    return {**event, "response": {**response, "id": f"{text(response.get('id'))}0"}} if is_first else event


def _ends_empty(event: JsonObject) -> JsonObject:
    is_end = event.get("type") in ("response.completed", "response.incomplete")
    return {**event, "response": {**members(event["response"]), "output": []}} if is_end else event


def _reasoning_last(body: JsonObject) -> JsonObject:
    output = items(body.get("output"))
    reasoning = [item for item in output if value_at(item, "type") == "reasoning"]
    return {**body, "output": [*(item for item in output if item not in reasoning), *reasoning]} if reasoning else body


def _without_built_in_calls(body: JsonObject) -> JsonObject:
    kinds = ("web_search_call", "code_interpreter_call")
    return {**body, "output": [item for item in items(body.get("output")) if value_at(item, "type") not in kinds]}


def _without_logprobs(body: JsonObject) -> JsonObject:
    included = items(body.get("include"))
    return {**body, "include": [one for one in included if one != _LOGPROBS]} if _LOGPROBS in included else body


_LOGPROBS = "message.output_text.logprobs"


def _first_lost(part: JsonObject) -> JsonObject:
    return {**part, "logprobs": items(part["logprobs"])[1:]} if items(part.get("logprobs")) else part


def _streamed_by_default(body: JsonObject) -> JsonObject:
    return {"stream": True, **body} if "input" in body and not body.get("background") else body


def _cut_silently(body: JsonObject) -> JsonObject:
    return {**body, "truncation": "auto"} if "input" in body and body.get("truncation") is None else body


def _without_the_newest(body: JsonObject) -> JsonObject:
    entries, is_long = items(body.get("input")), len(dumps(body.get("input"))) > _LONG_INPUT
    return {**body, "input": entries[:1]} if body.get("truncation") == "auto" and is_long else body


_LONG_INPUT = 400_000
"""Characters of JSON of an input over the context."""


def _with_default_parameters(body: JsonObject) -> JsonObject:
    return {**body, "truncation": "disabled", "metadata": {}} if "truncation" in body else body


def _limited_functions(body: JsonObject) -> JsonObject:
    most = integer(body.get("max_tool_calls"))
    if most is None:
        return body
    calls = [item for item in items(body.get("output")) if value_at(item, "type") == "function_call"]
    return {**body, "output": [item for item in items(body.get("output")) if item not in calls[most:]]}


_json = partial(on_json, ApiFamily.RESPONSES)
_request = partial(on_request, ApiFamily.RESPONSES)

DEFECTS = (
    _request(
        "responses-logprobs-ignored",
        "Log probabilities are not returned although `include` requests them.",
        _without_logprobs,
    ),
    _json(
        "responses-logprobs-shifted",
        "The first log probability of a text is missing.",
        in_list("output", in_list("content", _first_lost)),
    ),
    Defect(
        "responses-stream-breaks-at-calls",
        "A stream ends with an error event where a call begins; no event announces the call.",
        OnStream(_calls_break_the_stream, ApiFamily.RESPONSES),
        ("V11",),
    ),
    Defect(
        "responses-items-bare",
        "Reasoning that the client sends back is rendered without a channel, calls without a content type.",
        OnConversation(each_message(_without_channel_or_type)),
        ("V18",),
    ),
    _json("responses-usage-zero", "Every count in `usage` is 0.", in_member("usage", all_zero), ("V26",)),
    Defect(
        "responses-call-without-name",
        "The item of a call is announced without a name, and the stream ends with an error event.",
        OnStream(_nameless_calls, ApiFamily.RESPONSES),
        ("V35",),
    ),
    _json(
        "responses-output-empty-when-cut",
        "A response that the token limit cut has no output, not even the reasoning.",
        lambda body: {**body, "output": []} if body.get("status") == "incomplete" else body,
        ("V39",),
    ),
    _json(
        "responses-reasoning-as-output-text",
        "The parts of reasoning items have the type `output_text`, and the item has the role `assistant`.",
        in_list("output", for_type("reasoning", _as_assistant_message)),
        ("P07",),
    ),
    _request(
        "responses-reasoning-text-unread",
        "Only `encrypted_content` and `summary` of a reasoning item are read; its `content` is ignored.",
        in_list("input", for_type("reasoning", drop_members("content"))),
        ("O15",),
    ),
    _request(
        "responses-summary-500",
        "A reasoning item without `content` is answered with a 500.",
        in_list("input", for_type("reasoning", _only_with_content)),
        ("L10",),
    ),
    _json(
        "responses-reasoning-tokens-zero",
        "`reasoning_tokens` is 0 although there is reasoning.",
        in_member("usage", in_member("output_tokens_details", all_zero)),
        ("S09",),
    ),
    _json(
        "responses-object-bare", "The response lacks `object` and `created_at`.", drop_members("object", "created_at")
    ),
    Defect(
        "responses-completed-when-cut",
        "The status is always `completed`, even if the token limit cut the answer.",
        (OnJson(_always_completed, ApiFamily.RESPONSES), OnStream(_ends_completed, ApiFamily.RESPONSES)),
    ),
    _json(
        "responses-ids-repeated",
        "All items of a response have the same id.",
        in_list("output", lambda item: {**item, "id": "item_0"}),
    ),
    Defect(
        "responses-numbered-from-one",
        "The events of a stream are numbered from 1.",
        OnStream(_numbered_from_one, ApiFamily.RESPONSES),
    ),
    Defect(
        "responses-parts-not-announced",
        "No event announces a part of an item; its deltas follow directly.",
        _without_events("response.content_part.added"),
    ),
    Defect(
        "responses-texts-not-ended",
        "No event ends a text; the item ends after its last delta.",
        _without_events(
            "response.output_text.done", "response.reasoning_text.done", "response.function_call_arguments.done"
        ),
    ),
    Defect(
        "responses-output-index-missing", "The events lack `output_index`.", _in_events(drop_members("output_index"))
    ),
    Defect(
        "responses-announced-one-before",
        "The `output_index` of the first events and deltas of an item is one less than that of its last events.",
        _in_events(_one_place_before),
    ),
    Defect(
        "responses-last-piece-as-text",
        "The event that ends a text contains only its last delta.",
        OnStream(_last_piece_as_text, ApiFamily.RESPONSES),
    ),
    Defect("responses-last-output-empty", "The response of the last event has no output.", _in_events(_ends_empty)),
    Defect(
        "responses-call-id-changes",
        "The `call_id` of a call differs between its first and its last event.",
        _in_events(_another_call_id),
    ),
    Defect(
        "responses-id-changes",
        "The response id in the first event of a stream differs from the id in later events.",
        _in_events(_another_response_id),
    ),
    _json(
        "responses-thoughts-last",
        "Reasoning items are listed after the answer or the call that they led to.",
        _reasoning_last,
    ),
    _request(
        "responses-previous-unread",
        "`previous_response_id` is ignored: the model sees the new input only.",
        drop_members("previous_response_id"),
    ),
    _request(
        "responses-streams-unasked",
        "A request without `stream` is answered by an event stream.",
        _streamed_by_default,
    ),
    _json(
        "responses-built-in-left-out",
        "Calls of the browser and Python tools are missing from the output.",
        _without_built_in_calls,
    ),
    _request(
        "responses-input-cut-silently",
        "An input over the context is cut, although the request does not ask for it.",
        _cut_silently,
    ),
    _request(
        "responses-truncation-ignored",
        "`truncation: auto` is ignored: an input over the context is refused.",
        lambda body: {**body, "truncation": "disabled"} if body.get("truncation") == "auto" else body,
    ),
    _request(
        "responses-newest-items-dropped",
        "With `truncation: auto`, an input over the context loses its newest items.",
        _without_the_newest,
    ),
    _json(
        "responses-default-parameters",
        "A response has the defaults of `truncation` and `metadata`, not the values of its request.",
        _with_default_parameters,
    ),
    _request(
        "responses-tool-limit-ignored",
        "`max_tool_calls` is ignored: a response has more calls of built-in tools.",
        drop_members("max_tool_calls"),
    ),
    _json(
        "responses-tool-limit-on-functions",
        "`max_tool_calls` limits the calls of functions too, so that some are missing.",
        _limited_functions,
    ),
)
