"""Write a chat request as a request of Messages.

The first instructions become `system`, later ones messages of the role system. Reasoning becomes a thinking block, a call a `tool_use`
block, and the results of a turn one user message of `tool_result` blocks. Thinking that the server signed is sent back as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Final

from harmony_conformance.apis.adapter_helpers import neutral_values, omit_members, reject_unsupported
from harmony_conformance.apis.api import UnsupportedByApiError
from harmony_conformance.apis.messages.request_reader import has_object
from harmony_conformance.apis.returned_reasoning import RETURNED_REASONING
from harmony_conformance.json_value import (
    InvalidJsonError,
    Json,
    JsonObject,
    items,
    loads,
    members,
    parse_object,
    text,
    value_at,
)
from harmony_conformance.prompts.request_members import INSTRUCTING, REASONING_FIELDS, has_instructions_after_answer

SIGNATURE: Final = "harmony-conformance"
"""The signature of thinking that no server signed. Servers of gpt-oss cannot verify one."""

DEFAULT_LIMIT: Final = 2048
"""The `max_tokens` of a request without a limit, since the API requires one."""


_NEUTRAL: Mapping[str, tuple[Json, ...]] = {
    **neutral_values("n", "logit_bias", "logprobs", "top_logprobs", "ignore_eos", "skip_special_tokens"),
    **neutral_values("reasoning_format", "chat_template_kwargs", "functions", "function_call"),
    **dict.fromkeys(("seed", "prediction", "verbosity"), (None,)),
    **dict.fromkeys(("presence_penalty", "frequency_penalty"), (None, 0)),
}
"""Members that the API lacks, with the values without effect."""

_TRANSLATED = frozenset(
    {
        *_NEUTRAL,
        *("messages", "tools", "tool_choice", "parallel_tool_calls", "stop", "max_tokens", "max_completion_tokens"),
        *("reasoning_effort", "response_format", "stream_options", "user", "metadata"),
    }
)


def write_request(request: JsonObject) -> JsonObject:
    """Write the request. A value of the wrong type is passed through, for the server to reject.

    Raises:
        UnsupportedByApiError: The API lacks a requested feature.
    """
    reject_unsupported(request, _NEUTRAL)
    limits = (request[name] for name in ("max_completion_tokens", "max_tokens") if request.get(name) is not None)
    stop = request.get("stop")
    return {
        **omit_members(request, _TRANSLATED),
        **_conversation(request),
        "max_tokens": next(limits, DEFAULT_LIMIT),
        **({"stop_sequences": [stop] if isinstance(stop, str) else stop} if stop is not None else {}),
        **_tools(request),
        **_output_config(request),
        **_metadata(request),
    }


def _metadata(request: JsonObject) -> JsonObject:
    """Return the end user's id. Metadata of other names would be refused."""
    if members(request.get("metadata")):
        raise UnsupportedByApiError("`metadata` of other names than user_id")
    return {"metadata": {"user_id": request["user"]}} if request.get("user") is not None else {}


def _conversation(request: JsonObject) -> JsonObject:
    messages = request.get("messages")
    if not isinstance(messages, list):
        return {"messages": messages} if "messages" in request else {}
    if has_instructions_after_answer(messages):
        raise UnsupportedByApiError("instructions after an answer")
    first = messages[0] if messages else None
    if text(value_at(first, "role")) not in INSTRUCTING or len(messages) == 1:
        return {"messages": [*_write_messages(messages)]}
    _refuse_name(members(first))
    return {"system": value_at(first, "content"), "messages": [*_write_messages(messages[1:])]}


def _write_messages(messages: list[Json]) -> Iterator[Json]:
    for role, group in groupby(messages, key=lambda message: value_at(message, "role")):
        if role == "tool":
            yield {"role": "user", "content": [_result(members(message)) for message in group]}
        else:
            yield from map(_write_message, group)


def _write_message(message: Json) -> Json:
    if not isinstance(message, dict):
        return message
    _refuse_name(message)
    role = message.get("role")
    if role == "assistant":
        return {"role": role, "content": _assistant_content(message)}
    content: JsonObject = {"content": _parts(message["content"])} if "content" in message else {}
    return {**message, "role": "system" if text(role) in INSTRUCTING else role, **content}


def _refuse_name(message: JsonObject) -> None:
    if message.get("name"):
        raise UnsupportedByApiError("`name` of an author")


def _assistant_content(message: JsonObject) -> Json:
    """Return the blocks of an assistant message, or its text alone."""
    if text(message.get("refusal")):
        raise UnsupportedByApiError("refusals in a history")
    thought = next((thought for name in REASONING_FIELDS if (thought := text(message.get(name)))), "")
    content, calls = message.get("content"), message.get("tool_calls")
    thinking: list[Json] = items(message.get(RETURNED_REASONING))
    if not thought and not calls and not thinking:
        return _parts(content)
    if thought and not thinking:
        thinking = [{"type": "thinking", "thinking": thought, "signature": SIGNATURE}]
    texts: list[Json] = [{"type": "text", "text": content}] if isinstance(content, str) and content else []
    blocks: list[Json] = [*thinking, *texts, *items(_parts(items(content))), *map(_call, items(calls))]
    return blocks


def _parts(content: Json) -> Json:
    """Return the content as the API has it: a text or blocks. Null becomes an empty text."""
    if not isinstance(content, list):
        return "" if content is None else content
    return [*map(_part, content)]


def _part(part: Json) -> Json:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            head, comma, data = url.partition(",")
            if not (comma and head.startswith("data:")):
                return {"type": "image", "source": {"type": "url", "url": url}}
            media = head.removeprefix("data:").partition(";")[0]
            return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}
        case {"type": "text"}:
            return part
        case _:
            raise UnsupportedByApiError(f"content parts of the type {text(value_at(part, 'type'))}")


def _call(call: Json) -> Json:
    arguments = value_at(call, "function", "arguments")
    written = _input(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(written, dict | str):
        raise UnsupportedByApiError("arguments that are no object")
    name = value_at(call, "function", "name")
    return {"type": "tool_use", "id": value_at(call, "id"), "name": name, "input": written}


def _input(arguments: str) -> Json:
    """Return the object in the arguments, or the text that a server returned in its place. None for others."""
    with suppress(InvalidJsonError):
        value = loads(arguments)
        if isinstance(value, str) and has_object(value):
            return value
    return parse_object(arguments)


def _result(message: JsonObject) -> Json:
    call: JsonObject = {"tool_use_id": message["tool_call_id"]} if "tool_call_id" in message else {}
    return {"type": "tool_result", **call, "content": _parts(message.get("content"))}


def _tools(request: JsonObject) -> JsonObject:
    functions = request.get("tools")
    tools: JsonObject = {}
    if functions is not None:
        tools["tools"] = [*map(_tool, functions)] if isinstance(functions, list) else functions
    choice = _choice(request.get("tool_choice"))
    if request.get("parallel_tool_calls") is False and value_at(choice, "type") != "none" and functions:
        choice = {**(members(choice) or {"type": "auto"}), "disable_parallel_tool_use": True}
    return tools if choice is None else {**tools, "tool_choice": choice}


def _tool(tool: Json) -> Json:
    """Return a function as a tool. The API requires a schema, so a function without parameters gets an empty one."""
    if not isinstance(tool, dict) or not isinstance(tool.get("function"), dict):
        return tool
    function = members(tool["function"])
    parameters = function.get("parameters")
    schema: Json = {"type": "object", "properties": {}} if parameters is None else parameters
    return {**omit_members(function, {"parameters"}), "input_schema": schema}


def _choice(choice: Json) -> Json:
    match choice:
        case None:
            return None
        case "none" | "auto":
            return {"type": choice}
        case "required":
            return {"type": "any"}
        case {"type": "function", "function": {"name": name}}:
            return {"type": "tool", "name": name}
        case {"type": "allowed_tools"}:
            raise UnsupportedByApiError("`tool_choice` of several functions")
        case _:
            return choice


def _output_config(request: JsonObject) -> JsonObject:
    """Return the effort and the schema of the answer. `thinking` is left out: it has a budget, and no level."""
    config: JsonObject = {}
    if request.get("reasoning_effort") is not None:
        config["effort"] = request["reasoning_effort"]
    form = request.get("response_format")
    match value_at(form, "type"):
        case "json_schema":
            config["format"] = {"type": "json_schema", "schema": value_at(form, "json_schema", "schema")}
        case "text" | None:
            pass
        case _:
            raise UnsupportedByApiError("`response_format` of this type")
    return {"output_config": config} if config else {}
