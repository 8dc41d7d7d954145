"""A request of the Responses API as the chat request that it means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.json_value import Json, JsonObject, at, items, members, text

_READ = frozenset(
    {
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "text",
        "reasoning",
        "max_output_tokens",
        "chat_template_kwargs",
        "store",
        "include",
    }
)
_LOGPROBS = "message.output_text.logprobs"
_BUILT_IN: Mapping[str, str] = MappingProxyType(
    {
        "web_search": "browser",
        "web_search_preview": "browser",
        "browser_search": "browser",
        "code_interpreter": "python",
    }
)
"""The tools of gpt-oss by the types under which the API offers them; dated types (`web_search_preview_2025_03_11`) begin alike."""
_TEXTS = frozenset({"input_text", "output_text", "reasoning_text", "summary_text", "text"})
_REASONING, _CONTENT, _CALL = 0, 1, 2
"""The parts of a message of the assistant, in the order in which chat says them."""


def chat_request(request: Json) -> Json:
    """The chat request; what is no object stays as it is. Items that chat has no word for (calls of built-in tools, references) are left out."""
    if not isinstance(request, dict):
        return request
    told: JsonObject = {name: value for name, value in request.items() if name not in _READ}
    if request.get("store") is True:
        told["store"] = True
    if "max_output_tokens" in request:
        told["max_completion_tokens"] = request["max_output_tokens"]
    if request.get("stream") is True:
        told["stream_options"] = {"include_usage": True}  # the last event has the whole answer
    return {
        **told,
        **_messages(request),
        **_tools(request),
        **({"tool_choice": _chosen(request["tool_choice"])} if "tool_choice" in request else {}),
        **_form(request),
        **_reasoning(request),
        **_logprobs(request),
    }


def _logprobs(request: JsonObject) -> JsonObject:
    """What is to be included, as chat says it."""
    included = request.get("include")
    if not isinstance(included, list):
        return {"include": included} if "include" in request else {}
    rest = [entry for entry in included if entry != _LOGPROBS]
    wanted: JsonObject = {"logprobs": True} if rest != included else {}
    return {**wanted, "include": rest} if rest or not wanted else wanted


def _messages(request: JsonObject) -> JsonObject:
    said = request.get("input")
    if "input" not in request and "instructions" not in request:
        return {}
    instructions = request.get("instructions")
    messages: list[Json] = []
    if isinstance(instructions, str) and instructions:
        messages.append({"role": "system", "content": instructions})
    elif isinstance(instructions, list):
        messages += _read(instructions)
    if isinstance(said, str):
        messages.append({"role": "user", "content": said})
    else:
        messages += _read(items(said))
    return {"messages": messages}


def _read(entries: list[Json]) -> list[Json]:
    """The items as messages: what the model wrote in one go is one message, as far as chat can say it in that order."""
    open_message = _Joined()
    messages: list[Json] = []
    for entry in entries:
        kind = text(at(entry, "type")) or "message"
        if kind == "message" and at(entry, "role") != "assistant":
            messages += open_message.closed()
            messages.append({"role": at(entry, "role"), "content": _content(at(entry, "content"))})
        elif kind in ("function_call_output", "custom_tool_call_output"):
            messages += open_message.closed()
            content = _content(at(entry, "output"))
            messages.append({"role": "tool", "tool_call_id": at(entry, "call_id"), "content": content})
        elif kind in ("message", "reasoning", "function_call"):
            messages += open_message.take(kind, members(entry))
    return [*messages, *open_message.closed()]


class _Joined:
    """State: the message of the assistant that is being put together."""

    def __init__(self) -> None:
        self._message: JsonObject = {}
        self._last = -1
        self._is_final = False

    def take(self, kind: str, item: JsonObject) -> Iterator[Json]:
        """One more item; the message before it, where it can not be a part of that."""
        match kind:
            case "reasoning":
                thought = thought_of(item)
                if thought:
                    yield from self._room_for(_REASONING)
                    self._message["reasoning"] = thought
            case "function_call":
                yield from self._room_for(_CALL)
                function: JsonObject = {"name": item.get("name"), "arguments": item.get("arguments")}
                call: JsonObject = {"id": item.get("call_id"), "type": "function", "function": function}
                self._message["tool_calls"] = [*items(self._message.get("tool_calls")), call]
            case _:
                yield from self._room_for(_CONTENT)
                self._message["content"] = _content(item.get("content"))
                phase = item.get("phase")
                self._is_final = phase == "final_answer"
                if isinstance(phase, str):
                    self._message["phase"] = phase

    def _room_for(self, part: int) -> Iterator[Json]:
        follows = self._last < part or (part == _CALL and self._last == _CALL)
        if not follows or self._is_final:
            yield from self.closed()
        self._last = part

    def closed(self) -> Iterator[Json]:
        """The message, if there is one; then there is none."""
        if self._last >= 0:
            yield {"role": "assistant", "content": None, **self._message}
        self._message, self._last, self._is_final = {}, -1, False


def thought_of(item: JsonObject) -> str:
    """The text of a reasoning item: its content, or else its summary."""
    for name in ("content", "summary"):
        said = item.get(name)
        thought = said if isinstance(said, str) else "".join(text(at(part, "text")) for part in items(said))
        if thought:
            return thought
    return ""


def _content(content: Json) -> Json:
    """A content, its parts of text under the name they have in chat."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else None
    return [
        {"type": "text", "text": at(part, "text")} if at(part, "type") in _TEXTS else part
        for part in content
        if isinstance(part, dict)
    ]


def _tools(request: JsonObject) -> JsonObject:
    variables = members(request.get("chat_template_kwargs"))
    if not isinstance(request.get("tools"), list):
        return {"chat_template_kwargs": variables} if variables else {}
    functions: list[Json] = []
    named: list[Json] = []
    for tool in items(request["tools"]):
        kind = text(at(tool, "type"))
        if kind == "function":
            functions.append({"type": "function", "function": _function(members(tool))})
        named += [name for prefix, name in _BUILT_IN.items() if kind.startswith(prefix) and name not in named]
    told: JsonObject = {"chat_template_kwargs": {**variables, "builtin_tools": named}} if named else {}
    return {**told, "tools": functions}


def _function(tool: JsonObject) -> JsonObject:
    neutral: dict[str, tuple[Json, ...]] = {"strict": (None, False), "parameters": (None,)}
    return {
        name: value
        for name, value in tool.items()
        if name != "type" and not (name in neutral and value in neutral[name])
    }


def _chosen(choice: Json) -> Json:
    match choice:
        case {"type": "function", "name": name}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": mode, "tools": list(tools)}:
            return {
                "type": "allowed_tools",
                "allowed_tools": {"mode": mode, "tools": [_chosen(tool) for tool in tools]},
            }
        case _:
            return choice


def _form(request: JsonObject) -> JsonObject:
    said = members(request.get("text"))
    told: JsonObject = {"verbosity": said["verbosity"]} if "verbosity" in said else {}
    form = said.get("format")
    if form is None:
        return told
    if at(form, "type") != "json_schema":
        return {**told, "response_format": form}
    described: JsonObject = {name: value for name, value in members(form).items() if name != "type"}
    return {**told, "response_format": {"type": "json_schema", "json_schema": described}}


def _reasoning(request: JsonObject) -> JsonObject:
    said = request.get("reasoning")
    if not isinstance(said, dict):
        return {}
    others: JsonObject = {name: value for name, value in said.items() if name != "effort"}
    told: JsonObject = {"reasoning": others} if others else {}
    return {**told, "reasoning_effort": said["effort"]} if "effort" in said else told
