"""Ollama's /api/chat: JSON lines, `thinking`, arguments as objects (docs/api.md and api/types.go of Ollama)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from harmony_conformance.apis.adapter_helpers import (
    join_text_parts,
    neutral_values,
    omit_members,
    reject_unsupported,
    token_counts,
    translate_error,
)
from harmony_conformance.apis.api import Api, Framing, UnsupportedByApiError
from harmony_conformance.json_value import (
    Json,
    JsonObject,
    dumps_as_written,
    integer,
    items,
    members,
    parse_object,
    text,
    value_at,
)
from harmony_conformance.prompts.request_members import REASONING_FIELDS

SCHEMA_NAME = "answer"
"""The name of a response schema, which Ollama's `format` lacks."""

_OPTIONS: Mapping[str, str] = {
    "max_tokens": "num_predict",
    "max_completion_tokens": "num_predict",
    **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "seed", "stop")},
    **{name: name for name in ("presence_penalty", "frequency_penalty")},
}
"""Members of a chat request that become `options`."""

_CHAT_NAMES: Mapping[str, str] = {option: name for name, option in _OPTIONS.items()}
"""The reverse mapping. Of several names, the last one is used."""

_NEUTRAL = neutral_values(
    *("n", "tool_choice", "parallel_tool_calls", "logit_bias", "ignore_eos", "skip_special_tokens"),
    *("reasoning_format", "chat_template_kwargs", "functions", "function_call"),
)
"""Members that the API lacks, with the values without effect."""

_THINK: Mapping[str | bool, str] = {True: "medium", "max": "high"}
"""Values of `think` that differ from Harmony's effort levels."""


def write_request(request: JsonObject) -> JsonObject:
    """Write a chat request as a request of /api/chat. Malformed members are passed through.

    Raises:
        UnsupportedByApiError: The API lacks a requested feature.
    """
    reject_unsupported(request, _NEUTRAL)
    if any(value_at(tool, "function", "strict") is True for tool in items(request.get("tools"))):
        raise UnsupportedByApiError("`strict` functions")
    moved = {*_OPTIONS, *_NEUTRAL, "stream_options", "reasoning_effort", "response_format", "messages", "tools"}
    options: JsonObject = {option: request[name] for name, option in _OPTIONS.items() if request.get(name) is not None}
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]  # Ollama refuses a string
    return {
        **omit_members(request, moved),
        **({"messages": _write_messages(request["messages"])} if "messages" in request else {}),
        **({"tools": request["tools"]} if "tools" in request else {}),
        "stream": request.get("stream", False),
        **({"options": options} if options else {}),
        **({"think": request["reasoning_effort"]} if request.get("reasoning_effort") is not None else {}),
        **write_format(request.get("response_format")),
    }


def write_format(response_format: Json) -> JsonObject:
    """Return the member `format` for a `response_format`.

    Raises:
        UnsupportedByApiError: The type of `response_format` is unknown.
    """
    match value_at(response_format, "type"):
        case "json_object":
            return {"format": "json"}
        case "json_schema":
            return {"format": value_at(response_format, "json_schema", "schema")}
        case "text" | None:
            return {}
        case _:
            raise UnsupportedByApiError("`response_format` of this type")


def _write_messages(messages: Json) -> Json:
    if not isinstance(messages, list):
        return messages
    calls = (call for message in messages for call in items(value_at(message, "tool_calls")))
    functions = {text(value_at(call, "id")): text(value_at(call, "function", "name")) for call in calls}
    return [_write_message(message, functions) if isinstance(message, dict) else message for message in messages]


_MEMBERS = frozenset({"role", "content", "tool_calls", "name", "tool_call_id", "refusal", "annotations", "audio"})


def _write_message(message: JsonObject, functions: dict[str, str]) -> JsonObject:
    """Write a message. `functions` has the function names by the call ids."""
    if text(message.get("refusal")):
        raise UnsupportedByApiError("refusals in a history")
    thinking = [thought for name in REASONING_FIELDS if isinstance(thought := message.get(name), str)]
    calls = message.get("tool_calls")
    return {
        **omit_members(message, {*_MEMBERS, *REASONING_FIELDS}),
        "role": message.get("role"),
        "content": join_text_parts(message.get("content")),
        **({"thinking": thinking[0]} if thinking else {}),
        **({"tool_calls": list(map(_write_call, calls))} if isinstance(calls, list) else {}),
        **(_write_result(message, functions) if message.get("role") == "tool" else {}),
    }


def _write_call(call: Json) -> Json:
    arguments = value_at(call, "function", "arguments")
    arguments = parse_object(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(arguments, dict):
        raise UnsupportedByApiError("arguments that are no object")
    function: JsonObject = {"name": value_at(call, "function", "name"), "arguments": arguments}
    return {**({"id": value_at(call, "id")} if text(value_at(call, "id")) else {}), "function": function}


def _write_result(message: JsonObject, functions: dict[str, str]) -> JsonObject:
    identity = text(message.get("tool_call_id"))
    name = functions.get(identity) or text(message.get("name"))
    if not name:
        raise UnsupportedByApiError("results that name no function")
    return {"tool_name": name, **({"tool_call_id": identity} if identity else {})}


def read_request(request: Json) -> Json:
    """Read a request of /api/chat as a chat request."""
    if not isinstance(request, dict):
        return request
    history = _History()
    messages = [history.read(message, place) for place, message in enumerate(items(request.get("messages")))]
    return {
        **read_settings(request),
        **({"messages": messages} if "messages" in request else {}),
        **({"tools": request["tools"]} if request.get("tools") is not None else {}),
    }


def read_settings(request: JsonObject) -> JsonObject:
    """Return a request's settings as members of a chat request: everything but the conversation and the tools."""
    is_streamed = request.get("stream", True) is not False
    think = request.get("think")
    options = members(request.get("options"))
    limit = integer(options.get("num_predict"))
    options = omit_members(options, {"num_predict"} if limit is None or limit <= 0 else set())
    return {
        **omit_members(request, {"options", "think", "format", "messages", "tools", "stream", "prompt", "system"}),
        "stream": is_streamed,
        **({"stream_options": {"include_usage": True}} if is_streamed else {}),
        **{_CHAT_NAMES[name]: value for name, value in options.items() if name in _CHAT_NAMES},
        **({"reasoning_effort": _THINK.get(think, think)} if isinstance(think, str) or think is True else {}),
        **_read_format(request.get("format")),
    }


def _read_format(form: Json) -> JsonObject:
    match form:
        case "json":
            return {"response_format": {"type": "json_object"}}
        case dict():
            described: JsonObject = {"name": SCHEMA_NAME, "schema": form, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": described}}
        case _:
            return {}


@dataclass(kw_only=True)
class _History:
    """The ids of the calls so far, by function. A call without id gets one, so that results can refer to it."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    last_call_id: str = ""

    def read(self, message: Json, place: int) -> Json:
        if not isinstance(message, dict):
            return {}
        calls = [self._call(call, f"{place}.{index}") for index, call in enumerate(items(message.get("tool_calls")))]
        role = text(message.get("role")).lower()
        # the id that a result names, else that of the last call of the function it names, else of the last call
        function = text(message.get("tool_name")) or text(message.get("name"))
        call_id = text(message.get("tool_call_id")) or (self.ids.get(function, "") if function else self.last_call_id)
        return {
            **omit_members(message, {"role", "tool_calls", "tool_name", "tool_call_id", "thinking"}),
            "role": role,
            **({"reasoning": message["thinking"]} if isinstance(message.get("thinking"), str) else {}),
            **({"tool_calls": [*calls]} if calls else {}),
            **({"tool_call_id": call_id} if role == "tool" else {}),
        }

    def _call(self, call: Json, place: str) -> JsonObject:
        name, identity = text(value_at(call, "function", "name")), text(value_at(call, "id")) or place
        self.ids[name], self.last_call_id = identity, identity
        return {"id": identity, "type": "function", "function": translate_function(value_at(call, "function"))}


def translate_function(function: Json) -> JsonObject:
    """Return the `function` of a tool call, with its arguments as text."""
    arguments = value_at(function, "arguments")
    arguments = arguments if isinstance(arguments, str) else dumps_as_written(arguments)
    return {"name": text(value_at(function, "name")), "arguments": arguments}


def read_response(body: Json) -> Json:
    """Read a response of /api/chat that is no stream as a `chat.completion`."""
    message = value_at(body, "message")
    if not isinstance(message, dict):
        return translate_error(body)
    return build_completion(members(body), {**message_texts(message), "role": message.get("role")}, read_calls(message))


def build_completion(body: JsonObject, texts: JsonObject, calls: list[Json]) -> JsonObject:
    """Return a `chat.completion` with the texts and calls of a response, and the members that both endpoints share."""
    message: JsonObject = {**texts, **({"tool_calls": calls} if calls else {})}
    choice: JsonObject = {"index": 0, "message": message, **_finish_reason(body, calls), **_tokens(body)}
    return {**_envelope(body, "chat.completion"), "choices": [choice], **_usage(body)}


def read_events(values: Iterable[Json]) -> Iterator[Json]:
    """Yield a `chat.completion.chunk` for each line of a stream."""
    reader = StreamTranslator()
    for value in values:
        message = value_at(value, "message")
        if isinstance(message, dict):
            calls = read_calls(message, reader.call_count)
            yield reader.chunk(members(value), message_texts(message), calls, message.get("role"))
        else:
            yield read_other_line(value)


def read_other_line(value: Json) -> Json:
    """Translate a line without output: an error, or a chunk without choices."""
    if not isinstance(value, dict) or value.get("error") is not None:
        return translate_error(value)
    return {"object": CHUNK, "choices": [], **_usage(value)}


CHUNK = "chat.completion.chunk"


@dataclass(kw_only=True)
class StreamTranslator:
    """Translates the lines of a stream. Its state is the last role and the calls so far; each line has complete calls."""

    role: Json = None
    calls: list[Json] = field(default_factory=list[Json])

    @property
    def call_count(self) -> int:
        """The number of calls so far."""
        return len(self.calls)

    def chunk(self, line: JsonObject, texts: JsonObject, calls: list[Json], role: Json) -> JsonObject:
        """Return the chunk for a line with these texts, calls and role."""
        numbered: list[Json] = [{**members(call), "index": len(self.calls) + place} for place, call in enumerate(calls)]
        self.calls += numbered
        delta: JsonObject = {
            **({"role": role} if role != self.role else {}),
            **{name: value for name, value in texts.items() if value != "" or self.role is None},
            **({"tool_calls": numbered} if numbered else {}),
        }
        self.role = role
        choice: JsonObject = {"index": 0, "delta": delta, **_finish_reason(line, self.calls), **_tokens(line)}
        return {**_envelope(line, CHUNK), "choices": [choice], **_usage(line)}


def message_texts(message: JsonObject) -> JsonObject:
    """Return the texts of a message, the reasoning as `reasoning`."""
    thinking: JsonObject = {"reasoning": message["thinking"]} if "thinking" in message else {}
    return {**omit_members(message, {"role", "tool_calls", "thinking"}), **thinking}


def read_calls(message: JsonObject, before: int = 0) -> list[Json]:
    """Return the tool calls of a message, after `before` others in the stream. A call without id gets its place as id."""
    return [
        {
            "id": text(value_at(call, "id")) or f"call {place}",
            "type": "function",
            "function": translate_function(value_at(call, "function")),
        }
        for place, call in enumerate(items(message.get("tool_calls")), before)
    ]


def _finish_reason(body: JsonObject, calls: list[Json]) -> JsonObject:
    """Return the finish reason. Ollama has none for calls."""
    reason = body.get("done_reason")
    return {"finish_reason": "tool_calls" if calls and reason == "stop" else reason}


def _tokens(body: JsonObject) -> JsonObject:
    entries = body.get("logprobs")
    logprobs: JsonObject = {"logprobs": {"content": entries}} if isinstance(entries, list) else {}
    return {**logprobs, **({"token_ids": body["token_ids"]} if "token_ids" in body else {})}


def _envelope(body: JsonObject, kind: str) -> JsonObject:
    prompt: JsonObject = {"prompt_token_ids": body["prompt_token_ids"]} if "prompt_token_ids" in body else {}
    return {"object": kind, "model": body.get("model"), **prompt}


def _usage(body: JsonObject) -> JsonObject:
    """Return the usage of a finished response. Ollama omits counts of zero: possible for the output, never for the prompt."""
    if body.get("done") is not True:
        return {}
    return {"usage": token_counts(integer(body.get("prompt_eval_count")), integer(body.get("eval_count", 0)))}


OLLAMA = Api(
    name="ollama",
    title="Ollama's chat",
    path="/api/chat",
    write_request=write_request,
    read_request=read_request,
    read_response=read_response,
    read_events=read_events,
    answer_member="message: {…}, done: true",
    framing=Framing.LINES,
    has_text_arguments=False,
    counts_reasoning=False,
)
