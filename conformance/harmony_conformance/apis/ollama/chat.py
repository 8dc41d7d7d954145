"""Ollama's own chat, /api/chat: a JSON value a line, `thinking`, arguments as objects (docs/api.md and api/types.go of Ollama)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from harmony_conformance.apis.api import Api, Framing, UnsupportedByApiError
from harmony_conformance.apis.request_fields import failure, refuse_others, said_as_text, without
from harmony_conformance.json_value import Json, JsonObject, at, dumps, items, members, number, object_in, text
from harmony_conformance.prompts.chat_request import REASONING_FIELDS

SCHEMA_NAME = "answer"
"""What an answer's schema is called: `format` has no name."""

_OPTIONS: Mapping[str, str] = MappingProxyType(
    {
        "max_tokens": "num_predict",
        "max_completion_tokens": "num_predict",
        **{name: name for name in ("temperature", "top_p", "top_k", "min_p", "seed", "stop")},
        **{name: name for name in ("presence_penalty", "frequency_penalty")},
    }
)
"""Members of a chat request that are options here."""

_MEANT: Mapping[str, str] = MappingProxyType({option: name for name, option in _OPTIONS.items()})
"""The other way round: the last name of an option."""

_NEUTRAL: Mapping[str, tuple[Json, ...]] = MappingProxyType(
    {
        "n": (None, 1),
        "tool_choice": (None, "auto"),
        "parallel_tool_calls": (None, True),
        "logit_bias": (None, {}),
        "ignore_eos": (None, False),
        "skip_special_tokens": (None, True),
        "reasoning_format": (None,),
        "chat_template_kwargs": (None, {}),
        "functions": (None,),
        "function_call": (None,),
    }
)
"""Members that the API does not have, with the values that ask for nothing."""

_THINK: Mapping[str | bool, str] = MappingProxyType({True: "medium", "max": "high"})
"""Levels of `think` that are others by Harmony's names."""


# a request


def spell(request: JsonObject) -> JsonObject:
    """A chat request in Ollama's words; what is malformed stays as it is.

    Raises:
        NotSpelled: it asks for something that the API does not have.
    """
    refuse_others(request, _NEUTRAL)
    moved = {*_OPTIONS, *_NEUTRAL, "stream_options", "reasoning_effort", "response_format", "messages", "tools"}
    options: JsonObject = {option: request[name] for name, option in _OPTIONS.items() if request.get(name) is not None}
    return {
        **without(request, moved),
        **({"messages": _spelled_messages(request["messages"])} if "messages" in request else {}),
        **({"tools": _spelled_tools(request["tools"])} if "tools" in request else {}),
        "stream": request.get("stream", False),
        **({"options": options} if options else {}),
        **({"think": request["reasoning_effort"]} if request.get("reasoning_effort") is not None else {}),
        **spelled_format(request.get("response_format")),
    }


def spelled_format(asked: Json) -> JsonObject:
    """The member `format` for a `response_format`."""
    match at(asked, "type"):
        case "json_object":
            return {"format": "json"}
        case "json_schema":
            return {"format": at(asked, "json_schema", "schema")}
        case "text" | None:
            return {}
        case _:
            raise UnsupportedByApiError("`response_format` of this type")


def _spelled_tools(tools: Json) -> Json:
    if any(at(tool, "function", "strict") is True for tool in items(tools)):
        raise UnsupportedByApiError("`strict` functions")
    return tools


def _spelled_messages(messages: Json) -> Json:
    if not isinstance(messages, list):
        return messages
    calls = _calls_by_id(messages)
    return [_spelled_message(message, calls) if isinstance(message, dict) else message for message in messages]


def _calls_by_id(messages: list[Json]) -> dict[str, str]:
    """The functions of calls by the ids of the calls."""
    calls = (call for message in messages for call in items(at(message, "tool_calls")))
    return {text(at(call, "id")): text(at(call, "function", "name")) for call in calls}


_OF_A_MESSAGE = frozenset({"role", "content", "tool_calls", "name", "tool_call_id", "refusal", "annotations", "audio"})


def _spelled_message(message: JsonObject, calls: dict[str, str]) -> JsonObject:
    if text(message.get("refusal")):
        raise UnsupportedByApiError("refusals in a history")
    reasoning = next((name for name in REASONING_FIELDS if isinstance(message.get(name), str)), None)
    thinking: JsonObject = {} if reasoning is None else {"thinking": message[reasoning]}
    called: JsonObject = {}
    if isinstance(message.get("tool_calls"), list):
        called = {"tool_calls": [_spelled_call(call) for call in items(message["tool_calls"])]}
    return {
        **without(message, {*_OF_A_MESSAGE, *REASONING_FIELDS}),
        "role": message.get("role"),
        "content": said_as_text(message.get("content")),
        **thinking,
        **called,
        **(_result(message, calls) if message.get("role") == "tool" else {}),
    }


def _spelled_call(call: Json) -> Json:
    arguments = at(call, "function", "arguments")
    read = object_in(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(read, dict):
        raise UnsupportedByApiError("arguments that are no object")
    named: JsonObject = {"name": at(call, "function", "name"), "arguments": read}
    return {**({"id": at(call, "id")} if text(at(call, "id")) else {}), "function": named}


def _result(message: JsonObject, calls: dict[str, str]) -> JsonObject:
    identity = text(message.get("tool_call_id"))
    name = calls.get(identity) or text(message.get("name"))
    if not name:
        raise UnsupportedByApiError("results that name no function")
    return {"tool_name": name, **({"tool_call_id": identity} if identity else {})}


# a request, read


def asked(request: Json) -> Json:
    """The chat request that a request to /api/chat means."""
    if not isinstance(request, dict):
        return request
    tools = request.get("tools")
    return {
        **asked_settings(request),
        **({"messages": _meant_messages(request["messages"])} if "messages" in request else {}),
        **({"tools": tools} if tools is not None else {}),
    }


def asked_settings(request: JsonObject) -> JsonObject:
    """All of a request but what the model is to answer: settings under the names that Chat Completions has for them."""
    kept = without(request, {"options", "think", "format", "messages", "tools", "stream", "prompt", "system"})
    is_streamed = request.get("stream", True) is not False
    return {
        **kept,
        "stream": is_streamed,
        **({"stream_options": {"include_usage": True}} if is_streamed else {}),
        **_meant_options(members(request.get("options"))),
        **_meant_effort(request.get("think")),
        **_meant_format(request.get("format")),
    }


def _meant_options(options: JsonObject) -> JsonObject:
    limit = number(options.get("num_predict"))
    given = without(options, {"num_predict"} if limit is None or limit <= 0 else set())
    return {_MEANT[name]: value for name, value in given.items() if name in _MEANT}


def _meant_effort(think: Json) -> JsonObject:
    if isinstance(think, str) or think is True:
        return {"reasoning_effort": _THINK.get(think, think)}
    return {}


def _meant_format(form: Json) -> JsonObject:
    match form:
        case "json":
            return {"response_format": {"type": "json_object"}}
        case dict():
            described: JsonObject = {"name": SCHEMA_NAME, "schema": form, "strict": True}
            return {"response_format": {"type": "json_schema", "json_schema": described}}
        case _:
            return {}


def _meant_messages(messages: Json) -> Json:
    history = _History()
    return [history.read(message, place) for place, message in enumerate(items(messages))]


@dataclass(kw_only=True)
class _History:
    """State: the ids of the calls so far, by the function; those without get one, by which their results name them."""

    ids: dict[str, str] = field(default_factory=dict[str, str])
    last: str = ""

    def read(self, message: Json, place: int) -> Json:
        """The next message."""
        if not isinstance(message, dict):
            return {}
        calls = [self._call(call, f"{place}.{index}") for index, call in enumerate(items(message.get("tool_calls")))]
        role = text(message.get("role")).lower()
        return {
            **without(message, {"role", "tool_calls", "tool_name", "tool_call_id", "thinking"}),
            "role": role,
            **({"reasoning": message["thinking"]} if isinstance(message.get("thinking"), str) else {}),
            **({"tool_calls": [*calls]} if calls else {}),
            **({"tool_call_id": self._answered(message)} if role == "tool" else {}),
        }

    def _call(self, call: Json, place: str) -> JsonObject:
        name, identity = text(at(call, "function", "name")), text(at(call, "id")) or place
        self.ids[name], self.last = identity, identity
        return {"id": identity, "type": "function", "function": as_called(at(call, "function"))}

    def _answered(self, message: JsonObject) -> str:
        """The call with the id that the result names, else the last of the function that it names, else the last."""
        name = text(message.get("tool_name")) or text(message.get("name"))
        return text(message.get("tool_call_id")) or (self.ids.get(name, "") if name else self.last)


def as_called(function: Json) -> JsonObject:
    """A called function with its arguments as a text."""
    arguments = at(function, "arguments")
    return {
        "name": text(at(function, "name")),
        "arguments": arguments if isinstance(arguments, str) else dumps(arguments),
    }


# an answer


def whole(body: Json) -> Json:
    """The completion that an answer in one piece is."""
    said = at(body, "message")
    if not isinstance(said, dict):
        return failure(body)
    return completion(members(body), {**told(said), "role": said.get("role")}, calls_of(said))


def completion(body: JsonObject, said: JsonObject, calls: list[Json]) -> JsonObject:
    """A `chat.completion` of what an answer says, its calls, and the members that both endpoints have."""
    message: JsonObject = {**said, **({"tool_calls": calls} if calls else {})}
    choice: JsonObject = {"index": 0, "message": message, **_ending(body, calls), **_of_tokens(body)}
    return {**_envelope(body, "chat.completion"), "choices": [choice], **_usage(body)}


def chunks(values: Iterable[Json]) -> Iterator[Json]:
    """A chunk for each line."""
    reader = Lines()
    for value in values:
        said = at(value, "message")
        if isinstance(said, dict):
            yield reader.chunk(members(value), told(said), calls_of(said, reader.called), said.get("role"))
        else:
            yield unread(value)


def unread(value: Json) -> Json:
    """What becomes of a line that says nothing."""
    is_error = members(value).get("error") is not None
    return (
        failure(value) if is_error or not isinstance(value, dict) else {"object": CHUNK, "choices": [], **_usage(value)}
    )


CHUNK = "chat.completion.chunk"


@dataclass(kw_only=True)
class Lines:
    """State: the role as it was told last, and how many calls there were. Calls come whole, so that each is one of its own."""

    role: Json = None
    calls: list[Json] = field(default_factory=list[Json])

    @property
    def called(self) -> int:
        """How many calls there were."""
        return len(self.calls)

    def chunk(self, line: JsonObject, said: JsonObject, calls: list[Json], role: Json) -> JsonObject:
        """The chunk that a line is."""
        numbered: list[Json] = [{**members(call), "index": len(self.calls) + place} for place, call in enumerate(calls)]
        self.calls += numbered
        delta: JsonObject = {
            **({"role": role} if role != self.role else {}),
            **{name: value for name, value in said.items() if value != "" or self.role is None},
            **({"tool_calls": numbered} if numbered else {}),
        }
        self.role = role
        choice: JsonObject = {"index": 0, "delta": delta, **_ending(line, self.calls), **_of_tokens(line)}
        return {**_envelope(line, CHUNK), "choices": [choice], **_usage(line)}


def told(said: JsonObject) -> JsonObject:
    """What a message says in texts."""
    thinking: JsonObject = {"reasoning": said["thinking"]} if "thinking" in said else {}
    return {**without(said, {"role", "tool_calls", "thinking"}), **thinking}


def calls_of(said: JsonObject, before: int = 0) -> list[Json]:
    """The calls of an answer, of a line of it those behind as many before. Where one has no id, its place is one: the API's results name functions."""
    return [
        {"id": text(at(call, "id")) or f"call {place}", "type": "function", "function": as_called(at(call, "function"))}
        for place, call in enumerate(items(said.get("tool_calls")), before)
    ]


def _ending(body: JsonObject, calls: list[Json]) -> JsonObject:
    """The finish reason; the API has none for calls."""
    reason = body.get("done_reason")
    return {"finish_reason": "tool_calls" if calls and reason == "stop" else reason}


def _of_tokens(body: JsonObject) -> JsonObject:
    entries = body.get("logprobs")
    return {
        **({"logprobs": {"content": entries}} if isinstance(entries, list) else {}),
        **({"token_ids": body["token_ids"]} if "token_ids" in body else {}),
    }


def _envelope(body: JsonObject, kind: str) -> JsonObject:
    shown: JsonObject = {name: body[name] for name in ("prompt_token_ids",) if name in body}
    return {"object": kind, "model": body.get("model"), **shown}


def _usage(body: JsonObject) -> JsonObject:
    """The counts, where the answer is done. The API leaves out what is zero: that may be right of what was written, and never of the prompt."""
    if body.get("done") is not True:
        return {}
    fed, written = number(body.get("prompt_eval_count")), number(body.get("eval_count", 0))
    total: JsonObject = {"total_tokens": fed + written} if fed is not None and written is not None else {}
    return {"usage": {"prompt_tokens": fed, "completion_tokens": written, **total}}


OLLAMA = Api(
    name="ollama",
    title="Ollama's chat",
    path="/api/chat",
    write_request=spell,
    read_request=asked,
    read_response=whole,
    read_events=chunks,
    answer_member="message: {…}, done: true",
    framing=Framing.LINES,
    arguments_are_texts=False,
    counts_reasoning=False,
)
