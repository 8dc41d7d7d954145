"""Defects of Messages in delivery: streams that differ from the whole message, usage, ids and errors."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, integer, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    BodyChange,
    all_zero,
    as_ping,
    drop_members,
    for_type,
    in_list,
    in_member,
    on_request,
)
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnJson, OnReply, OnStream
from harmony_conformance.reference_server.requests.errors import Reply

_START, _DELTA, _STOP = "content_block_start", "content_block_delta", "content_block_stop"


def _is_delta(event: Json, kind: str) -> bool:
    return value_at(event, "type") == _DELTA and value_at(event, "delta", "type") == kind


def _second_text_lost(stream: Iterator[Json]) -> Iterator[Json]:
    seen = 0
    for event in stream:
        seen += _is_delta(event, "text_delta")
        is_lost = _is_delta(event, "text_delta") and seen == 2  # noqa: PLR2004 - the second
        yield as_ping(event) if is_lost else event


def _inputs_lost(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        yield as_ping(event) if _is_delta(event, "input_json_delta") else event


def _text_again(stream: Iterator[Json]) -> Iterator[Json]:
    """Repeat the whole text of a block before the block ends."""
    shown = ""
    for event in stream:
        if value_at(event, "type") == _START:
            shown = ""
        if _is_delta(event, "text_delta"):
            shown += text(value_at(event, "delta", "text"))
        if value_at(event, "type") == _STOP and shown:
            yield {"type": _DELTA, "index": value_at(event, "index"), "delta": {"type": "text_delta", "text": shown}}
        yield event


def _end_turn(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        if value_at(event, "delta", "stop_reason") == "tool_use":
            yield {**members(event), "delta": {**members(value_at(event, "delta")), "stop_reason": "end_turn"}}
        else:
            yield event


def _events_counted(stream: Iterator[Json]) -> Iterator[Json]:
    for count, event in enumerate(stream):
        usage = members(value_at(event, "usage"))
        yield {**members(event), "usage": {**usage, "output_tokens": count}} if usage else event


def _thinking_after_text(stream: Iterator[Json]) -> Iterator[Json]:
    """Send the blocks of thinking when the other blocks are over. Each block keeps its index."""
    kept, is_kept = list[Json](), False
    for event in stream:
        if value_at(event, "type") == _START:
            is_kept = value_at(event, "content_block", "type") == "thinking"
        if is_kept and integer(value_at(event, "index")) is not None:
            kept.append(event)
            continue
        if value_at(event, "type") == "message_delta":
            yield from kept
        yield event


def _streamed_by_default(body: JsonObject) -> JsonObject:
    return {"stream": True, **body}


def _as_success(reply: Reply) -> Reply:
    return replace(reply, status=HTTPStatus.OK) if reply.status >= HTTPStatus.BAD_REQUEST else reply


def _unexplained(reply: Reply) -> Reply:
    is_error = reply.status >= HTTPStatus.BAD_REQUEST
    return replace(reply, body={"type": "error", "request_id": "req_1"}) if is_error else reply


def _in_both(change: BodyChange, in_event: BodyChange) -> tuple[OnJson, OnStream]:
    """Apply a change to a whole message, and another one to each event of a stream."""
    return (
        OnJson(change, ApiFamily.MESSAGES),
        OnStream(lambda stream: (in_event(members(event)) for event in stream), ApiFamily.MESSAGES),
    )


def _effort_of_streams_dropped(body: JsonObject) -> JsonObject:
    return drop_members("output_config")(body) if body.get("stream") is True else body


_request = partial(on_request, ApiFamily.MESSAGES)
_ONE_ID = for_type("message", lambda message: {**message, "id": "msg_123"})
_USAGE_ZERO = in_member("usage", all_zero)
_NAMELESS = for_type("tool_use", drop_members("name"))

DEFECTS = (
    _request(
        "messages-streams-unasked", "A request without `stream` is answered by an event stream.", _streamed_by_default
    ),
    _request("messages-answered-whole", "`stream: true` is answered by a whole message.", drop_members("stream")),
    _request("messages-stream-ignores-effort", "A stream ignores `output_config`.", _effort_of_streams_dropped),
    Defect(
        "messages-all-at-once",
        "All events of a stream are sent together after the last token.",
        OnStream(lambda stream: iter(tuple(stream)), ApiFamily.MESSAGES),
    ),
    Defect(
        "messages-text-lost", "One delta of a streamed text is lost.", OnStream(_second_text_lost, ApiFamily.MESSAGES)
    ),
    Defect(
        "messages-text-again",
        "At the end of a streamed text, one delta repeats all of it.",
        OnStream(_text_again, ApiFamily.MESSAGES),
    ),
    Defect("messages-input-lost", "The input of a streamed call is lost.", OnStream(_inputs_lost, ApiFamily.MESSAGES)),
    Defect(
        "messages-stream-end-turn",
        "A stream with a call ends with `end_turn`; the whole message ends with `tool_use`.",
        OnStream(_end_turn, ApiFamily.MESSAGES),
    ),
    Defect(
        "messages-usage-counts-events",
        "The `output_tokens` of a stream are the number of its events.",
        OnStream(_events_counted, ApiFamily.MESSAGES),
    ),
    Defect(
        "messages-thinking-after-text",
        "The thinking of a stream comes after its text.",
        OnStream(_thinking_after_text, ApiFamily.MESSAGES),
    ),
    Defect(
        "messages-usage-zero",
        "All counts of the usage are 0.",
        _in_both(_USAGE_ZERO, lambda event: in_member("message", _USAGE_ZERO)(_USAGE_ZERO(event))),
    ),
    Defect(
        "messages-same-id-for-all", "Every message has the same id.", _in_both(_ONE_ID, in_member("message", _ONE_ID))
    ),
    Defect(
        "messages-call-without-name",
        "A `tool_use` block has no name.",
        _in_both(in_list("content", _NAMELESS), in_member("content_block", _NAMELESS)),
    ),
    Defect(
        "messages-errors-with-status-200",
        "Errors are answered with HTTP 200.",
        OnReply(_as_success, ApiFamily.MESSAGES),
    ),
    Defect(
        "messages-errors-unexplained",
        "An error has no `error` with a reason.",
        OnReply(_unexplained, ApiFamily.MESSAGES),
    ),
)
