"""Defects in the JSON and the events of Messages.

Defects of the stages that all APIs share (prompt, sampling, parsing) are in other modules.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from harmony_conformance.json_value import Json, JsonObject, dumps, integer, items, members, text, value_at
from harmony_conformance.reference_server.defects.changes.body import (
    BodyChange,
    as_ping,
    drop_members,
    for_type,
    in_list,
    in_member,
    on_json,
    on_request,
)
from harmony_conformance.reference_server.defects.stages import ApiFamily, Defect, OnJson, OnReply, OnStream
from harmony_conformance.reference_server.requests.errors import ApiError, Reply

_START, _DELTA = "content_block_start", "content_block_delta"
_Change = OnJson | OnStream


def _defect(ident: str, summary: str, *changes: _Change, catalogue: tuple[str, ...] = ()) -> Defect:
    return Defect(ident, summary, changes, catalogue)


def _whole(change: BodyChange) -> OnJson:
    """Apply `change` to a whole message."""
    return OnJson(lambda body: change(body) if body.get("type") == "message" else body, ApiFamily.MESSAGES)


def _events(change: BodyChange) -> OnStream:
    """Apply `change` to each event of a stream."""
    return OnStream(lambda stream: (change(members(event)) for event in stream), ApiFamily.MESSAGES)


def _in_blocks(change: BodyChange) -> BodyChange:
    return in_list("content", change)


def _without_thinking(message: JsonObject) -> JsonObject:
    if not isinstance(message.get("content"), list):
        return message
    return {**message, "content": [one for one in items(message["content"]) if not _is(one, "thinking")]}


def _is(block: Json, kind: str) -> bool:
    return value_at(block, "type") == kind


def _drop_thinking_blocks(stream: Iterator[Json]) -> Iterator[Json]:
    """Drop the events of thinking blocks, and number the others without a gap."""
    dropped, is_hidden = 0, False
    for event in stream:
        index = integer(value_at(event, "index"))
        if value_at(event, "type") == _START:
            is_hidden = value_at(event, "content_block", "type") == "thinking"
            dropped += is_hidden
        if index is not None and is_hidden:
            yield as_ping(event)
        else:
            yield event if index is None else {**members(event), "index": index - dropped}


def _end_turn(ending: JsonObject) -> JsonObject:
    return {**ending, "stop_reason": "end_turn"} if ending.get("stop_reason") == "tool_use" else ending


def _no_stop_sequence(ending: JsonObject) -> JsonObject:
    is_stopped = ending.get("stop_reason") == "stop_sequence"
    return {**ending, "stop_reason": "end_turn", "stop_sequence": None} if is_stopped else ending


def _with_empty_text(message: JsonObject) -> JsonObject:
    has_call = any(_is(block, "tool_use") for block in items(message.get("content")))
    return {**message, "content": [{"type": "text", "text": ""}, *items(message["content"])]} if has_call else message


def _start_with_empty_text(stream: Iterator[Json]) -> Iterator[Json]:
    """Insert an empty text block at the beginning."""
    for event in stream:
        index = integer(value_at(event, "index"))
        yield event if index is None else {**members(event), "index": index + 1}
        if value_at(event, "type") == "message_start":
            yield {"type": _START, "index": 0, "content_block": {"type": "text", "text": ""}}
            yield {"type": "content_block_stop", "index": 0}


def _drop_signatures(stream: Iterator[Json]) -> Iterator[Json]:
    return (as_ping(event) if value_at(event, "delta", "type") == "signature_delta" else event for event in stream)


def _doubled(stream: Iterator[Json]) -> Iterator[Json]:
    """Send each thought once more before its signature."""
    thought = ""
    for event in stream:
        delta = members(value_at(event, "delta"))
        thought += text(delta.get("thinking"))
        if delta.get("type") == "signature_delta":
            again: JsonObject = {"type": "thinking_delta", "thinking": thought}
            yield {"type": _DELTA, "index": value_at(event, "index"), "delta": again}
            thought = ""
        yield event


def _twice_started(stream: Iterator[Json]) -> Iterator[Json]:
    for event in stream:
        yield event
        if value_at(event, "type") == "message_start":
            yield event


def _text_block(event: JsonObject) -> JsonObject:
    if event.get("type") == _START and value_at(event, "content_block", "type") == "thinking":
        return {**event, "content_block": {"type": "text", "text": ""}}
    return event


def _estimated(message: JsonObject) -> JsonObject:
    return in_member("usage", lambda usage: {**usage, "input_tokens": (integer(usage.get("input_tokens")) or 0) // 2})(
        message
    )


def _estimated_count(body: JsonObject) -> JsonObject:
    return {"input_tokens": (integer(body["input_tokens"]) or 0) // 2} if set(body) == {"input_tokens"} else body


def _thinking_last(message: JsonObject) -> JsonObject:
    blocks = items(message.get("content"))
    return {**message, "content": sorted(blocks, key=lambda block: _is(block, "thinking"))}


def _refuse_system(message: JsonObject) -> JsonObject:
    if message.get("role") == "system":
        raise ApiError("Input should be 'user' or 'assistant'", param="messages.role")
    return message


def _without_system(body: JsonObject) -> JsonObject:
    messages: list[Json] = [one for one in items(body.get("messages")) if value_at(one, "role") != "system"]
    return {**body, "messages": messages} if isinstance(body.get("messages"), list) else body


def _as_python(content: Json) -> Json:
    """Return blocks as Python shows them: a list of dictionaries in one text."""
    return str(content) if isinstance(content, list) else content


def _result_as_python(block: JsonObject) -> JsonObject:
    return {**block, "content": _as_python(block["content"])} if "content" in block else block


def _error_of_chat(reply: Reply) -> Reply:
    if value_at(reply.body, "type") != "error":
        return reply
    message = value_at(reply.body, "error", "message")
    return replace(reply, body={"error": {"message": message, "type": "Bad Request", "param": None, "code": 400}})


_json = partial(on_json, ApiFamily.MESSAGES)
_request = partial(on_request, ApiFamily.MESSAGES)
_in_delta = partial(in_member, "delta")

DEFECTS = (
    _defect(
        "messages-thinking-dropped",
        "The reasoning does not become a thinking block.",
        _whole(_without_thinking),
        OnStream(_drop_thinking_blocks, ApiFamily.MESSAGES),
        catalogue=("P13",),
    ),
    _defect(
        "messages-end-turn-with-calls",
        "An answer with a call ends with `end_turn`.",
        _whole(_end_turn),
        _events(_in_delta(_end_turn)),
        catalogue=("P14",),
    ),
    _defect(
        "messages-empty-text",
        "An answer begins with an empty text block.",
        _whole(_with_empty_text),
        OnStream(_start_with_empty_text, ApiFamily.MESSAGES),
        catalogue=("P14",),
    ),
    _defect(
        "messages-thinking-in-a-text-block",
        "The block of the thinking is announced as text.",
        _events(_text_block),
        catalogue=("P15",),
    ),
    _defect(
        "messages-started-twice",
        "`message_start` comes twice.",
        OnStream(_twice_started, ApiFamily.MESSAGES),
        catalogue=("P15",),
    ),
    _defect(
        "messages-thinking-unsigned",
        "Thinking blocks have no signature.",
        _whole(_in_blocks(drop_members("signature"))),
        OnStream(_drop_signatures, ApiFamily.MESSAGES),
        catalogue=("O23", "P16"),
    ),
    _defect(
        "messages-thinking-doubled",
        "The stream repeats the whole thinking before its signature.",
        OnStream(_doubled, ApiFamily.MESSAGES),
        catalogue=("P16",),
    ),
    _json(
        "messages-count-estimated",
        "`/v1/messages/count_tokens` returns an estimate that leaves out the tools and the form.",
        _estimated_count,
        ("P17",),
    ),
    _request(
        "messages-system-role-refused",
        "A message of the role system within the conversation is refused.",
        in_list("messages", _refuse_system),
        ("V43",),
    ),
    _request(
        "messages-system-role-dropped",
        "A message of the role system within the conversation is dropped.",
        _without_system,
        ("L17",),
    ),
    _defect(
        "messages-stop-sequence-as-end-turn",
        "An answer that a stop sequence ended has the stop reason `end_turn`.",
        _whole(_no_stop_sequence),
        _events(_in_delta(_no_stop_sequence)),
        catalogue=("V44",),
    ),
    _request("messages-effort-ignored", "`output_config` is ignored.", drop_members("output_config"), ("V44",)),
    _request(
        "messages-results-as-python",
        "A result in blocks is written as Python shows a list of dictionaries.",
        in_list("messages", _in_blocks(for_type("tool_result", _result_as_python))),
        ("V44",),
    ),
    Defect(
        "messages-errors-of-chat",
        "An error has the form of Chat Completions.",
        OnReply(_error_of_chat, ApiFamily.MESSAGES),
        ("V43", "L16"),
    ),
    _defect(
        "messages-input-estimated",
        "The count of input tokens in `message_start` is an estimate.",
        _events(in_member("message", _estimated)),
        catalogue=("O23",),
    ),
    _request(
        "messages-thinking-unread",
        "The thinking of past messages never reaches the prompt.",
        in_list("messages", _without_thinking),
    ),
    _defect("messages-thinking-last", "The thinking is the last block.", _whole(_thinking_last)),
    _json("messages-id-empty", "A message has an empty id.", for_type("message", lambda body: {**body, "id": ""})),
    _defect(
        "messages-events-unnamed",
        "The events of a stream have no names.",
        OnStream(lambda stream: (dumps(event) for event in stream), ApiFamily.MESSAGES),
    ),
    _defect(
        "messages-blocks-all-zero",
        "Every block of a stream has the index 0.",
        _events(lambda event: {**event, "index": 0} if "index" in event else event),
    ),
    _defect(
        "messages-usage-at-the-start-only",
        "The last `message_delta` has no usage.",
        _events(for_type("message_delta", drop_members("usage"))),
    ),
)
