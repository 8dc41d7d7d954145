"""Write a chat request as a request of the Responses API.

Each request has the whole conversation, as in Chat Completions, so `store` is false unless requested.
The first system message becomes `instructions`, as clients of this API do. All other messages become items in the same order and role.
Reasoning becomes a reasoning item with `reasoning_text`: the form that gpt-oss servers return, and the only one that is no summary.
Reasoning that the server encrypted is sent back as it came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from harmony_conformance.apis.adapter_helpers import omit_members
from harmony_conformance.apis.api import UnsupportedByApiError
from harmony_conformance.apis.returned_reasoning import RETURNED_REASONING
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.prompts.request_members import REASONING_FIELDS

COMMENTARY: Final = "commentary"
FINAL_ANSWER: Final = "final_answer"

_UNSUPPORTED: Mapping[str, tuple[Json, ...]] = {
    "n": (None, 1),
    "stop": (None, []),
    "logit_bias": (None, {}),
    "frequency_penalty": (None, 0),
    "presence_penalty": (None, 0),
    "functions": (None, []),
    "function_call": (None,),
    "prediction": (None,),
}
"""Members that the API lacks, with the values without effect."""

_RENAMED: Mapping[str, str] = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
_TRANSLATED = {
    *("messages", "tools", "tool_choice", "response_format", "verbosity", "reasoning_effort", "stream_options"),
    *("store", "chat_template_kwargs", "logprobs", "top_logprobs"),
}
LOGPROBS: Final = "message.output_text.logprobs"
"""The value in `include` that requests log probabilities."""
_BUILT_IN: Mapping[str, JsonObject] = {
    "browser": {"type": "web_search_preview"},
    "python": {"type": "code_interpreter", "container": {"type": "auto"}},
}


def write_request(request: JsonObject) -> JsonObject:
    """Write the request. A value of the wrong type is passed through, for the server to reject.

    Raises:
        UnsupportedByApiError: The API lacks a requested feature.
    """
    for name, neutral in _UNSUPPORTED.items():
        if request.get(name) not in neutral:
            raise UnsupportedByApiError(f"`{name}`")
    others = omit_members(request, {*_TRANSLATED, *_UNSUPPORTED})
    others = {_RENAMED.get(name, name): value for name, value in others.items()}
    translated = {**_input(request), **_tools(request), **_text(request), **_logprobs(request)}
    body = {**others, **translated, "store": request.get("store") is True}
    if "tool_choice" in request:
        body["tool_choice"] = _choice(request["tool_choice"])
    if "reasoning_effort" in request:
        body["reasoning"] = {**members(others.get("reasoning")), "effort": request["reasoning_effort"]}
    return body


def _logprobs(request: JsonObject) -> JsonObject:
    if request.get("logprobs") not in (True, False, None):
        raise UnsupportedByApiError("a `logprobs` that is neither true nor false")
    include: JsonObject = {}
    if request.get("logprobs") is True:
        include["include"] = [*items(request.get("include")), LOGPROBS]
    if request.get("top_logprobs") is not None:
        include["top_logprobs"] = request["top_logprobs"]
    return include


def _input(request: JsonObject) -> JsonObject:
    messages = request.get("messages")
    if not isinstance(messages, list):
        return {"input": messages} if "messages" in request else {}
    first = messages[0] if messages else None
    instructions = text(value_at(first, "content")) if set(members(first)) == {"role", "content"} else ""
    if value_at(first, "role") == "system" and instructions and len(messages) > 1:
        return {"instructions": instructions, "input": [*_items(messages[1:], 1)]}
    return {"input": [*_items(messages, 0)]}


def _items(messages: list[Json], start: int) -> Iterator[Json]:
    for place, message in enumerate(messages, start):
        if not isinstance(message, dict):
            yield message
        elif message.get("name") and message.get("role") != "tool":
            raise UnsupportedByApiError("`name` of an author")
        elif message.get("role") == "assistant":
            is_continued = value_at(messages, place - start + 1, "role") == "assistant"
            yield from _assistant_items(message, place, is_continued=is_continued)
        elif message.get("role") == "tool":
            output = _parts(message.get("content"), "input_text")
            call: JsonObject = {"call_id": message["tool_call_id"]} if "tool_call_id" in message else {}
            yield {"type": "function_call_output", **call, "output": output}
        else:
            yield {**message, "content": _parts(message["content"], "input_text")} if "content" in message else message


def _assistant_items(message: JsonObject, place: int, *, is_continued: bool) -> Iterator[Json]:
    """Yield the items of an assistant message. Its text gets a `phase` if the items after it would make it ambiguous."""
    thought = next((thought for name in REASONING_FIELDS if (thought := text(message.get(name)))), "")
    calls = message.get("tool_calls")
    content = message.get("content")
    if content is None and message.get("refusal") is not None:
        content = list[Json]([{"type": "refusal", "refusal": message["refusal"]}])
    returned = items(message.get(RETURNED_REASONING))
    if returned:
        yield from returned
    elif thought:
        parts: list[Json] = [{"type": "reasoning_text", "text": thought}]
        yield {"type": "reasoning", "id": f"rs_{place}", "summary": [], "content": parts}
    if content or not (returned or thought or calls):
        phase: JsonObject = {"phase": COMMENTARY} if calls else {"phase": FINAL_ANSWER} if is_continued else {}
        yield {"type": "message", "role": "assistant", **phase, "content": _parts(content, "output_text")}
    yield from map(_call, calls) if isinstance(calls, list) else ()


def _parts(content: Json, kind: str) -> Json:
    """Return a content whose text parts have the type `kind`. Null becomes an empty text."""
    if not isinstance(content, list):
        return "" if content is None else content
    return [{**members(part), "type": kind} if value_at(part, "type") == "text" else part for part in content]


def _call(call: Json) -> Json:
    if not isinstance(call, dict):
        return call
    function: JsonObject = {name: value_at(call, "function", name) for name in ("name", "arguments")}
    return {"type": "function_call", "call_id": call.get("id"), **function}


def _tools(request: JsonObject) -> JsonObject:
    variables = members(request.get("chat_template_kwargs"))
    names = [name for one in items(variables.get("builtin_tools")) if (name := text(one)) in _BUILT_IN]
    others: JsonObject = {name: value for name, value in variables.items() if name != "builtin_tools"}
    template: JsonObject = {"chat_template_kwargs": others} if others else {}
    functions = request.get("tools")
    if functions is not None and not isinstance(functions, list):
        return {**template, "tools": functions}
    tools: list[Json] = [*(_BUILT_IN[name] for name in names), *map(_tool, items(functions))]
    return {**template, "tools": tools} if tools or functions is not None else template


def _tool(tool: Json) -> Json:
    """Move a function's members to the tool itself. The default of `strict` is true here and false in Chat Completions."""
    if not isinstance(tool, dict) or not isinstance(tool.get("function"), dict):
        return tool
    function = members(tool["function"])
    others: JsonObject = {name: value for name, value in tool.items() if name != "function"}
    return {**others, "parameters": None, "strict": False, **function}


def _choice(choice: Json) -> Json:
    match choice:
        case {"type": "function", "function": {"name": name}}:
            return {"type": "function", "name": name}
        case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}:
            return {"type": "allowed_tools", "mode": mode, "tools": [_choice(tool) for tool in tools]}
        case _:
            return choice


def _text(request: JsonObject) -> JsonObject:
    settings: JsonObject = {}
    if "verbosity" in request:
        settings["verbosity"] = request["verbosity"]
    form = request.get("response_format")
    if form is not None:
        schema = value_at(form, "json_schema")
        is_flat = value_at(form, "type") == "json_schema" and isinstance(schema, dict)
        settings["format"] = {"type": "json_schema", **members(schema)} if is_flat else form
    return {"text": settings} if settings else {}
