"""Read a request of Messages as a chat request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from harmony_conformance.apis.adapter_helpers import omit_members
from harmony_conformance.json_value import (
    Json,
    JsonObject,
    dumps_as_written,
    items,
    members,
    parse_object,
    text,
    value_at,
)
from harmony_conformance.prompts.request_members import SEALED_REASONING

SCHEMA_NAME = "answer"
"""The name of a response schema, which `output_config.format` lacks."""

_TRANSLATED = frozenset(
    {"system", "messages", "tools", "tool_choice", "stop_sequences", "output_config", "metadata", "max_tokens"}
)
_EFFORTS: Mapping[Json, str] = {"xhigh": "high", "max": "high"}
"""Values of `effort` beyond Harmony's levels."""

_CHOICES: Mapping[Json, str] = {"any": "required", "auto": "auto", "none": "none"}
_ORDER: Mapping[str, int] = {"thinking": 0, "text": 1, "tool_use": 2}
"""The parts of an assistant message, in the order that Chat Completions implies."""


def read_request(request: Json) -> Json:
    """Return the chat request, or the value itself if it is no object.

    Blocks that Chat Completions cannot express (server tools and their results) are omitted. Thinking without a text is a member of its message.
    """
    if not isinstance(request, dict):
        return request
    stops, user = request.get("stop_sequences"), value_at(request, "metadata", "user_id")
    return {
        **omit_members(request, _TRANSLATED),
        **({"stream_options": {"include_usage": True}} if request.get("stream") is True else {}),
        **_conversation(request),
        **({"max_tokens": request["max_tokens"]} if "max_tokens" in request else {}),
        **({"stop": stops} if stops is not None else {}),
        **({"user": user} if user is not None else {}),
        **_tools(request),
        **_output_config(members(request.get("output_config"))),
    }


def _conversation(request: JsonObject) -> JsonObject:
    if "messages" not in request and "system" not in request:
        return {}
    system, content = request.get("system"), _content(request.get("system"))
    first: list[Json] = [{"role": "system", "content": content}] if system else []
    return {"messages": [*first, *(part for one in items(request.get("messages")) for part in _read_message(one))]}


def _read_message(message: Json) -> Iterator[Json]:
    role, content = value_at(message, "role"), value_at(message, "content")
    if not isinstance(content, list):
        yield {"role": role, "content": content if isinstance(content, str) else None}
    elif role == "assistant":
        yield from _assistant_messages(content)
    else:
        yield from _user_messages(role, content)


def _user_messages(role: Json, blocks: list[Json]) -> Iterator[Json]:
    """Yield each result as a message of the role tool, and the blocks between them as one message."""
    for is_result, group in groupby(blocks, key=lambda block: value_at(block, "type") == "tool_result"):
        if is_result:
            for block in group:
                content = value_at(block, "content")
                shown = "" if content is None else _content(content)
                yield {"role": "tool", "tool_call_id": value_at(block, "tool_use_id"), "content": shown}
        else:
            yield {"role": role, "content": _content([*group])}


def _assistant_messages(blocks: list[Json]) -> Iterator[Json]:
    """Yield the messages of a turn of the model. Blocks in another order than Chat Completions has them begin another message."""
    message: JsonObject = {}
    last = -1
    for block in blocks:
        kind = text(value_at(block, "type"))
        if kind not in _ORDER or (kind == "thinking" and not text(value_at(block, "thinking"))):
            if value_at(block, "signature") or value_at(block, "data"):
                message[SEALED_REASONING] = True
            continue
        if _ORDER[kind] < last or _ORDER[kind] == last == 0:
            yield {"role": "assistant", "content": None, **message}
            message = {}
        last = _ORDER[kind]
        match kind:
            case "thinking":
                message["reasoning"] = value_at(block, "thinking")
            case "text":
                message["content"] = [*items(message.get("content")), *items(_content([block]))]
            case _:
                message["tool_calls"] = [*items(message.get("tool_calls")), read_call(block)]
    yield {"role": "assistant", "content": None, **message}


def read_call(block: Json) -> JsonObject:
    """Return a `tool_use` block as an element of `tool_calls`.

    Input that is a text is wrong. With JSON of an object it was encoded once too often, and any other text is taken as it is.
    """
    written = value_at(block, "input")
    is_taken = isinstance(written, str) and not has_object(written)
    function: JsonObject = {
        "name": value_at(block, "name"),
        "arguments": written if is_taken else dumps_as_written(written),
    }
    return {"id": value_at(block, "id"), "type": "function", "function": function}


def has_object(written: str) -> bool:
    """Return True if a text is JSON of an object."""
    return bool(written.strip()) and parse_object(written) is not None


def _content(content: Json) -> Json:
    """Return a content whose parts have the form of Chat Completions."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    return [_part(block) for block in content if isinstance(block, dict)]


def _part(block: JsonObject) -> Json:
    match block:
        case {"type": "text", "text": shown}:
            return {"type": "text", "text": shown}
        case {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}:
            return {"type": "image_url", "image_url": {"url": f"data:{media};base64,{data}"}}
        case {"type": "image", "source": {"url": url}}:
            return {"type": "image_url", "image_url": {"url": url}}
        case _:
            return block


def _tools(request: JsonObject) -> JsonObject:
    tools: JsonObject = {}
    if isinstance(request.get("tools"), list):
        custom = [members(tool) for tool in items(request["tools"]) if value_at(tool, "type") in (None, "custom")]
        tools["tools"] = [{"type": "function", "function": _function(tool)} for tool in custom]
    choice = request.get("tool_choice")
    if value_at(choice, "disable_parallel_tool_use") is True:
        tools["parallel_tool_calls"] = False
    if value_at(choice, "type") == "tool":
        return {**tools, "tool_choice": {"type": "function", "function": {"name": value_at(choice, "name")}}}
    return tools if choice is None else {**tools, "tool_choice": _CHOICES.get(text(value_at(choice, "type")), choice)}


def _function(tool: JsonObject) -> JsonObject:
    function = {name: tool[name] for name in ("name", "description", "strict") if tool.get(name) is not None}
    return {**function, **({"parameters": tool["input_schema"]} if "input_schema" in tool else {})}


def _output_config(config: JsonObject) -> JsonObject:
    effort, form = config.get("effort"), config.get("format")
    level: JsonObject = {} if effort is None else {"reasoning_effort": _EFFORTS.get(text(effort), effort)}
    if value_at(form, "type") != "json_schema":
        return level
    described: JsonObject = {"name": SCHEMA_NAME, "schema": value_at(form, "schema"), "strict": True}
    return {**level, "response_format": {"type": "json_schema", "json_schema": described}}
