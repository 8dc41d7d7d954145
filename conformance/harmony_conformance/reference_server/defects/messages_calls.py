"""Defects of Messages in calls, their results, and unusual requests."""

from collections.abc import Callable, Iterator
from functools import partial

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    drop_members,
    for_type,
    in_list,
    in_member,
    on_request,
)
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnJson, OnOutage, OnRequest, OnStream
from harmony_conformance.reference_server.requests.errors import server_failure

_LEAST_TEMPERATURE, _MOST_TEMPERATURE = 0, 1


def _with_ids(identify: Callable[[int], str]) -> tuple[OnJson, OnStream]:
    """Replace the ids of the calls of each message. `identify` returns the id of a call by its number."""

    def in_message(body: JsonObject) -> JsonObject:
        number, blocks = 0, list[Json]()
        for block in map(members, items(body.get("content"))):
            is_call = block.get("type") == "tool_use"
            blocks.append({**block, "id": identify(number)} if is_call else block)
            number += is_call
        return {**body, "content": blocks} if number else body

    def in_stream(stream: Iterator[Json]) -> Iterator[Json]:
        number = 0
        for event in stream:
            block = members(value_at(event, "content_block"))
            is_call = block.get("type") == "tool_use"
            yield {**members(event), "content_block": {**block, "id": identify(number)}} if is_call else event
            number += is_call

    return OnJson(for_type("message", in_message), ApiFamily.MESSAGES), OnStream(in_stream, ApiFamily.MESSAGES)


def _calls_twice(message: JsonObject) -> JsonObject:
    """Append each call with a second id."""
    blocks = items(message.get("content"))
    calls = (members(block) for block in blocks if value_at(block, "type") == "tool_use")
    again: list[Json] = [{**call, "id": f"{text(call['id'])}x"} for call in calls]
    return {**message, "content": [*blocks, *again]} if again else message


def _with_first_call(body: JsonObject) -> JsonObject:
    """Give results with a missing or unknown id the id of the first call of the history."""
    blocks = (block for message in items(body.get("messages")) for block in items(value_at(message, "content")))
    calls = [value_at(block, "id") for block in blocks if value_at(block, "type") == "tool_use"]
    if not calls:
        return body

    def named(block: JsonObject) -> JsonObject:
        return block if block.get("tool_use_id") in calls else {**block, "tool_use_id": calls[0]}

    return in_list("messages", in_list("content", for_type("tool_result", named)))(body)


def _fails_out_of_range(body: JsonObject) -> JsonObject:
    value = body.get("temperature")
    if isinstance(value, int | float) and not _LEAST_TEMPERATURE <= value <= _MOST_TEMPERATURE:
        raise server_failure("AssertionError: temperature has to be between 0 and 1")
    return body


def _cut_as_end_turn(ending: JsonObject) -> JsonObject:
    return {**ending, "stop_reason": "end_turn"} if ending.get("stop_reason") == "max_tokens" else ending


_request = partial(on_request, ApiFamily.MESSAGES)

DEFECTS = (
    _request(
        "messages-parallel-calls-unasked",
        "`disable_parallel_tool_use` is ignored.",
        in_member("tool_choice", drop_members("disable_parallel_tool_use")),
    ),
    Defect(
        "messages-call-ids-from-zero",
        "The ids of calls start at `toolu_0` in each message.",
        _with_ids(lambda number: f"toolu_{number}"),
    ),
    Defect(
        "messages-call-ids-repeated", "All calls of a message have the same id.", _with_ids(lambda _number: "toolu_0")
    ),
    Defect(
        "messages-calls-returned-twice",
        "Each call of a whole message is returned twice, with two ids.",
        OnJson(for_type("message", _calls_twice), ApiFamily.MESSAGES),
    ),
    Defect(
        "messages-input-as-text",
        "The `input` of a call in a whole message is a text with the JSON, and no object.",
        OnJson(
            in_list("content", for_type("tool_use", lambda block: {**block, "input": dumps(block["input"])})),
            ApiFamily.MESSAGES,
        ),
    ),
    _request(
        "messages-orphan-result-to-first-call",
        "A result with a missing or unknown `tool_use_id` is assigned to the first call, answered or not.",
        _with_first_call,
    ),
    Defect(
        "messages-end-turn-when-cut",
        "An answer that the limit cut has the stop reason `end_turn`.",
        (
            OnJson(for_type("message", _cut_as_end_turn), ApiFamily.MESSAGES),
            OnStream(
                lambda stream: (in_member("delta", _cut_as_end_turn)(members(event)) for event in stream),
                ApiFamily.MESSAGES,
            ),
        ),
    ),
    Defect(
        "messages-out-of-range-500",
        "A temperature above 1 fails with a 500 (an assertion).",
        OnRequest(_fails_out_of_range, ApiFamily.MESSAGES),
    ),
    Defect(
        "messages-engine-down-after-empty-stop",
        "An empty stop sequence crashes the engine: every later request gets a 500.",
        OnOutage(lambda body: "" in items(body.get("stop_sequences")), ApiFamily.MESSAGES),
    ),
)
