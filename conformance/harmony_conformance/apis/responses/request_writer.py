"""A chat request in the words of the Responses API.

The whole conversation goes into each request, as it does in chat: `store` is false, as it is in chat unless it is asked for. The first system message
becomes `instructions`, which is what clients of this API use; all others stay items in their place, under their role, so that nothing changes its order.
A thought becomes a reasoning item with its text (`reasoning_text`): the form that gpt-oss servers return, and the only one that is no summary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

from harmony_conformance.apis.api import UnsupportedByApiError
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text
from harmony_conformance.prompts.chat_request import REASONING_FIELDS

COMMENTARY: Final = "commentary"
FINAL_ANSWER: Final = "final_answer"

_NOTHING: Mapping[str, tuple[Json, ...]] = MappingProxyType(
    {
        "n": (None, 1),
        "stop": (None, []),
        "logit_bias": (None, {}),
        "frequency_penalty": (None, 0),
        "presence_penalty": (None, 0),
        "functions": (None, []),
        "function_call": (None,),
        "prediction": (None,),
    }
)
"""Members of a chat request that the API does not have, each with the values that ask for nothing."""

_RENAMED: Mapping[str, str] = MappingProxyType(
    {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
)
_READ = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "response_format",
        "verbosity",
        "reasoning_effort",
        "stream_options",
        "store",
        "chat_template_kwargs",
        "logprobs",
        "top_logprobs",
    }
)
LOGPROBS: Final = "message.output_text.logprobs"
"""What `include` lists where the log probabilities of the answer's tokens are to be told."""
_BUILT_IN: Mapping[str, JsonObject] = MappingProxyType(
    {
        "browser": {"type": "web_search_preview"},
        "python": {"type": "code_interpreter", "container": {"type": "auto"}},
    }
)


def spelled(request: JsonObject) -> JsonObject:
    """The request in the API's words. What has another type than chat's reference gives it is handed on as it is, for the server to refuse.

    Raises:
        NotSpelled: it asks for something that the API does not have.
    """
    for name, neutral in _NOTHING.items():
        if request.get(name) not in neutral:
            raise UnsupportedByApiError(f"`{name}`")
    said: JsonObject = {
        _RENAMED.get(name, name): value for name, value in request.items() if name not in _READ and name not in _NOTHING
    }
    told = {
        **said,
        **_input(request),
        **_tools(request),
        **_text(request),
        **_logprobs(request),
        "store": request.get("store") is True,
    }
    if "tool_choice" in request:
        told["tool_choice"] = _choice(request["tool_choice"])
    if "reasoning_effort" in request:
        told["reasoning"] = {**members(said.get("reasoning")), "effort": request["reasoning_effort"]}
    return told


def _logprobs(request: JsonObject) -> JsonObject:
    """The log probabilities among what is to be included, and how many likely tokens are told with each."""
    if request.get("logprobs") not in (True, False, None):
        raise UnsupportedByApiError("a `logprobs` that is neither true nor false")
    listed: JsonObject = {}
    if request.get("logprobs") is True:
        listed["include"] = [*items(request.get("include")), LOGPROBS]
    if request.get("top_logprobs") is not None:
        listed["top_logprobs"] = request["top_logprobs"]
    return listed


def _input(request: JsonObject) -> JsonObject:
    messages = request.get("messages")
    if not isinstance(messages, list):
        return {"input": messages} if "messages" in request else {}
    first = messages[0] if messages else None
    instructions = text(at(first, "content")) if set(members(first)) == {"role", "content"} else ""
    if at(first, "role") == "system" and instructions and len(messages) > 1:
        return {"instructions": instructions, "input": [*_items(messages[1:], 1)]}
    return {"input": [*_items(messages, 0)]}


def _items(messages: list[Json], start: int) -> Iterator[Json]:
    for place, message in enumerate(messages, start):
        if not isinstance(message, dict):
            yield message
        elif message.get("name") and message.get("role") != "tool":
            raise UnsupportedByApiError("`name` of an author")
        elif message.get("role") == "assistant":
            goes_on = at(messages, place - start + 1, "role") == "assistant"
            yield from _of_the_model(message, place, goes_on=goes_on)
        elif message.get("role") == "tool":
            output = _parts(message.get("content"), "input_text")
            call: JsonObject = {"call_id": message["tool_call_id"]} if "tool_call_id" in message else {}
            yield {"type": "function_call_output", **call, "output": output}
        else:
            yield {**message, "content": _parts(message["content"], "input_text")} if "content" in message else message


def _of_the_model(message: JsonObject, place: int, *, goes_on: bool) -> Iterator[Json]:
    """The items of a message; its text is labelled where the items that follow would make another thing of it."""
    thought = next((said for name in REASONING_FIELDS if (said := text(message.get(name)))), "")
    calls = message.get("tool_calls")
    content = message.get("content")
    if content is None and message.get("refusal") is not None:
        refusals: list[Json] = [{"type": "refusal", "refusal": message["refusal"]}]
        content = refusals
    if thought:
        parts: list[Json] = [{"type": "reasoning_text", "text": thought}]
        yield {"type": "reasoning", "id": f"rs_{place}", "summary": [], "content": parts}
    if content or not (thought or calls):
        phase: JsonObject = {"phase": COMMENTARY} if calls else {"phase": FINAL_ANSWER} if goes_on else {}
        yield {"type": "message", "role": "assistant", **phase, "content": _parts(content, "output_text")}
    yield from map(_call, calls) if isinstance(calls, list) else ()


def _parts(content: Json, kind: str) -> Json:
    """A content, its parts of text under the name they have here; no content is an empty one."""
    if not isinstance(content, list):
        return "" if content is None else content
    return [{**members(part), "type": kind} if at(part, "type") == "text" else part for part in content]


def _call(call: Json) -> Json:
    if not isinstance(call, dict):
        return call
    function = members(call.get("function"))
    return {
        "type": "function_call",
        "call_id": call.get("id"),
        "name": function.get("name"),
        "arguments": function.get("arguments"),
    }


def _tools(request: JsonObject) -> JsonObject:
    variables = members(request.get("chat_template_kwargs"))
    named = [name for one in items(variables.get("builtin_tools")) if (name := text(one)) in _BUILT_IN]
    others: JsonObject = {name: value for name, value in variables.items() if name != "builtin_tools"}
    told: JsonObject = {"chat_template_kwargs": others} if others else {}
    offered = request.get("tools")
    if offered is not None and not isinstance(offered, list):
        return {**told, "tools": offered}
    tools: list[Json] = [*(_BUILT_IN[name] for name in named), *map(_tool, items(offered))]
    return {**told, "tools": tools} if tools or offered is not None else told


def _tool(tool: Json) -> Json:
    """A function's members stand in the tool itself; `strict`, which is on here unless it is switched off, is off in chat."""
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
    told: JsonObject = {}
    if "verbosity" in request:
        told["verbosity"] = request["verbosity"]
    form = request.get("response_format")
    if form is not None:
        described = at(form, "json_schema")
        is_flat = at(form, "type") == "json_schema" and isinstance(described, dict)
        told["format"] = {"type": "json_schema", **members(described)} if is_flat else form
    return {"text": told} if told else {}
