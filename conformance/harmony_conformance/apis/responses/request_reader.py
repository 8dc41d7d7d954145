"""Read a request of the Responses API as a chat request."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at
from harmony_conformance.prompts.request_members import SEALED_REASONING

_TRANSLATED = {
    *("input", "instructions", "tools", "tool_choice", "text", "reasoning", "max_output_tokens"),
    *("chat_template_kwargs", "store", "include"),
}
_LOGPROBS = "message.output_text.logprobs"
_BUILT_IN: Mapping[str, str] = {"web_search": "browser", "browser_search": "browser", "code_interpreter": "python"}
"""The built-in tools of gpt-oss by the beginning of the API's tool types, which may be dated (`web_search_preview_2025_03_11`)."""
_TEXTS = frozenset({"input_text", "output_text", "reasoning_text", "summary_text", "text"})
_TRANSLATED_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output"})
_REASONING, _CONTENT, _CALL = 0, 1, 2
"""The parts of an assistant message, in the order that Chat Completions implies."""


def read_request(request: Json) -> Json:
    """Return the chat request, or the value itself if it is no object.

    Items that Chat Completions cannot express are omitted: calls of built-in, custom and namespaced tools with their results, references.
    `untranslated_items` then lists their types.
    """
    if not isinstance(request, dict):
        return request
    others: JsonObject = {name: value for name, value in request.items() if name not in _TRANSLATED}
    if request.get("store") is True:
        others["store"] = True
    if "max_output_tokens" in request:
        others["max_completion_tokens"] = request["max_output_tokens"]
    if request.get("stream") is True:
        others["stream_options"] = {"include_usage": True}  # the last event has the usage
    return {
        **others,
        **_messages(request),
        **_tools(request),
        **({"tool_choice": _tool_choice(request["tool_choice"])} if "tool_choice" in request else {}),
        **_text_settings(request),
        **_reasoning(request),
        **_logprobs(request),
    }


def _logprobs(request: JsonObject) -> JsonObject:
    include = request.get("include")
    if not isinstance(include, list):
        return {"include": include} if "include" in request else {}
    rest = [entry for entry in include if entry != _LOGPROBS]
    logprobs: JsonObject = {"logprobs": True} if rest != include else {}
    return {**logprobs, "include": rest} if rest or not logprobs else logprobs


def _messages(request: JsonObject) -> JsonObject:
    if "input" not in request and "instructions" not in request:
        return {}
    conversation, instructions = request.get("input"), request.get("instructions")
    messages: list[Json] = []
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    elif isinstance(instructions, list):
        messages += _read_items(instructions)
    if isinstance(conversation, str):
        return {"messages": [*messages, {"role": "user", "content": conversation}]}
    omitted: list[Json] = [text(value_at(entry, "type")) for entry in _untranslated(items(conversation))]
    others: JsonObject = {"untranslated_items": omitted} if omitted else {}
    return {"messages": [*messages, *_read_items(items(conversation))], **others}


def _untranslated(entries: list[Json]) -> Iterator[Json]:
    """Yield the items that no message can express."""
    calls: set[Json] = set()
    for entry in entries:
        kind = text(value_at(entry, "type")) or "message"
        is_namespaced = kind == "function_call" and bool(value_at(entry, "namespace"))
        call = value_at(entry, "call_id")
        if kind not in _TRANSLATED_ITEMS or is_namespaced or (isinstance(call, str) and call in calls):
            calls |= {call} if isinstance(call, str) else set()
            yield entry


def _read_items(entries: list[Json]) -> list[Json]:
    """Read items as messages. Consecutive items of the model become one message if their order allows it."""
    assistant = _AssistantMessage()
    messages: list[Json] = []
    omitted = [*map(id, _untranslated(entries))]
    for entry in entries:
        if id(entry) in omitted:
            continue
        kind = text(value_at(entry, "type")) or "message"
        if kind == "message" and value_at(entry, "role") != "assistant":
            messages += assistant.close()
            messages.append({"role": value_at(entry, "role"), "content": _content(value_at(entry, "content"))})
        elif kind == "function_call_output":
            messages += assistant.close()
            content = _content(value_at(entry, "output"))
            messages.append({"role": "tool", "tool_call_id": value_at(entry, "call_id"), "content": content})
        elif kind in ("message", "reasoning", "function_call"):
            messages += assistant.add(kind, members(entry))
    return [*messages, *assistant.close()]


class _AssistantMessage:
    """Joins consecutive items of the model to one assistant message."""

    def __init__(self) -> None:
        self._message: JsonObject = {}
        self._last = -1
        self._is_final = False

    def add(self, kind: str, item: JsonObject) -> Iterator[Json]:
        """Add an item. Yield the message before it if the item cannot be a part of that."""
        match kind:
            case "reasoning":
                if thought := reasoning_text(item):
                    yield from self._begin_part(_REASONING)
                    self._message["reasoning"] = thought
                elif item.get("encrypted_content"):
                    yield from self._begin_part(_REASONING)
                    self._message[SEALED_REASONING] = True
            case "function_call":
                yield from self._begin_part(_CALL)
                function: JsonObject = {"name": item.get("name"), "arguments": item.get("arguments")}
                call: JsonObject = {"id": item.get("call_id"), "type": "function", "function": function}
                self._message["tool_calls"] = [*items(self._message.get("tool_calls")), call]
            case _:
                yield from self._begin_part(_CONTENT)
                self._message["content"] = _content(item.get("content"))
                phase = item.get("phase")
                self._is_final = phase == "final_answer"
                if isinstance(phase, str):
                    self._message["phase"] = phase

    def _begin_part(self, part: int) -> Iterator[Json]:
        if self._is_final or not (self._last < part or self._last == part == _CALL):
            yield from self.close()
        self._last = part

    def close(self) -> Iterator[Json]:
        """Yield the message, if there is one, and begin another."""
        if self._last >= 0:
            yield {"role": "assistant", "content": None, **self._message}
        self._message, self._last, self._is_final = {}, -1, False


def reasoning_text(item: JsonObject) -> str:
    """Return the text of a reasoning item: its content, else its summary, else an empty text."""
    for value in (item.get("content"), item.get("summary")):
        thought = value if isinstance(value, str) else "".join(text(value_at(part, "text")) for part in items(value))
        if thought:
            return thought
    return ""


def _content(content: Json) -> Json:
    """Return a content whose text parts have the type that Chat Completions gives them."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    return [
        {"type": "text", "text": value_at(part, "text")} if text(value_at(part, "type")) in _TEXTS else part
        for part in content
        if isinstance(part, dict)
    ]


def _tools(request: JsonObject) -> JsonObject:
    variables = members(request.get("chat_template_kwargs"))
    if not isinstance(request.get("tools"), list):
        return {"chat_template_kwargs": variables} if variables else {}
    functions: list[Json] = []
    others: list[Json] = []
    built_in: list[Json] = []
    for tool in items(request["tools"]):
        kind = text(value_at(tool, "type"))
        if kind == "function":
            functions.append({"type": "function", "function": _function(members(tool))})
        elif kind and not kind.startswith(tuple(_BUILT_IN)):
            others.append({"type": kind, kind: _function(members(tool))})
        built_in += [name for prefix, name in _BUILT_IN.items() if kind.startswith(prefix) and name not in built_in]
    template: JsonObject = {"chat_template_kwargs": {**variables, "builtin_tools": built_in}} if built_in else {}
    return {**template, "tools": [*functions, *others]}


def _function(tool: JsonObject) -> JsonObject:
    neutral: dict[str, tuple[Json, ...]] = {"strict": (None, False), "parameters": (None,)}
    return {name: value for name, value in tool.items() if name != "type" and value not in neutral.get(name, ())}


def _tool_choice(choice: Json) -> Json:
    match choice:
        case {"type": "function", "name": name}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": mode, "tools": list(tools)}:
            allowed: JsonObject = {"mode": mode, "tools": list(map(_tool_choice, tools))}
            return {"type": "allowed_tools", "allowed_tools": allowed}
        case _:
            return choice


def _text_settings(request: JsonObject) -> JsonObject:
    settings = members(request.get("text"))
    verbosity: JsonObject = {"verbosity": settings["verbosity"]} if "verbosity" in settings else {}
    form = settings.get("format")
    if form is None:
        return verbosity
    if value_at(form, "type") != "json_schema":
        return {**verbosity, "response_format": form}
    schema: JsonObject = {name: value for name, value in members(form).items() if name != "type"}
    return {**verbosity, "response_format": {"type": "json_schema", "json_schema": schema}}


def _reasoning(request: JsonObject) -> JsonObject:
    reasoning = members(request.get("reasoning"))
    others: JsonObject = {name: value for name, value in reasoning.items() if name != "effort"}
    settings: JsonObject = {"reasoning": others} if others else {}
    return {**settings, "reasoning_effort": reasoning["effort"]} if "effort" in reasoning else settings
