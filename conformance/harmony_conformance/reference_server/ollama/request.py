"""Parse and validate chat requests, and the members common to all requests, of Ollama's API."""

from dataclasses import dataclass
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members
from harmony_conformance.reference_server.pipeline.prompt_run import derive_id
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage, PastCall
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.requests.fields import MODEL, AnswerForm, Effort, Tool, ToolChoice

_EFFORTS: "dict[Json, Effort]" = {"low": Effort.LOW, "medium": Effort.MEDIUM, "high": Effort.HIGH, "max": Effort.HIGH}
_WHOLE = ("num_predict", "num_ctx", "num_keep", "seed", "top_k", "repeat_last_n", "num_batch", "num_gpu", "num_thread")
_NUMBERS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
_MOST_LOGPROBS = 20


@dataclass(frozen=True, kw_only=True)
class DeliveryOptions:
    """Delivery options; `logprobs` is the number of alternatives per token, None for no log probabilities."""

    model: str
    is_streamed: bool
    shows_token_ids: bool
    logprobs: int | None
    renders_only: bool
    stop_strings: tuple[str, ...]
    unloads: bool  # `keep_alive` is 0


def bad_request(message: str) -> ApiError:
    """Return an error with status 400; Ollama's errors have only a message."""
    return ApiError(message)


def read_delivery(body: JsonObject) -> DeliveryOptions:
    """Parse the members that every request has; raise an ApiError (4xx) if one is invalid."""
    _options(body.get("options"))
    return DeliveryOptions(
        model=_model(body.get("model")),
        is_streamed=fields.read_boolean(body, "stream", otherwise=True),
        shows_token_ids=fields.read_boolean(body, "return_token_ids"),
        logprobs=_logprobs(body),
        renders_only=fields.read_boolean(body, "_debug_render_only"),
        stop_strings=_stops(members(body.get("options")).get("stop")),
        unloads=body.get("keep_alive") in (0, "0", "0s"),
    )


def read_chat_request(body: JsonObject, messages: tuple[ChatMessage, ...]) -> ChatRequest:
    """Return the generation options of a request, with these messages; raise an ApiError (4xx) if one is invalid."""
    form, schema = _form(body.get("format"))
    limit = members(body.get("options")).get("num_predict")  # None, zero and negative values mean no limit
    return ChatRequest(
        messages=messages,
        tools=_tools(body.get("tools")),
        tool_choice=ToolChoice.AUTO,
        required_tool=None,
        calls_in_parallel=True,
        effort=_effort(body.get("think")),
        form=form,
        schema=schema,
        schema_name="answer",
        limit=limit if isinstance(limit, int) and limit > 0 else None,
        is_streamed=fields.read_boolean(body, "stream", otherwise=True),
        usage_in_stream=False,
        shows_token_ids=fields.read_boolean(body, "return_token_ids"),
        script=fields.script(body),
        continues_after_script=fields.continues_after_script(body),
        token_delay=fields.token_delay(body),
        event_tokens=1,
        ends_at_stop=True,
    )


def read_messages(value: Json) -> tuple[ChatMessage, ...]:
    """Return the messages of a chat, tool results with their tool; raise an ApiError (400) if one is invalid."""
    if value is not None and not isinstance(value, list):
        raise bad_request("messages: expected a list")
    calls: list[PastCall] = []
    messages: list[ChatMessage] = []
    for position, entry in enumerate(items(value)):
        messages.append(_message(entry, f"messages[{position}]", calls))
        calls.extend(messages[-1].calls)
    return tuple(messages)


def _message(entry: Json, where: str, past_calls: list[PastCall]) -> ChatMessage:
    if not isinstance(entry, dict):
        raise bad_request(f"{where}: expected an object")
    if entry.get("images"):
        raise bad_request("this model does not take images")
    text = _string(entry, "content", where) or ""
    role = (_string(entry, "role", where) or "").lower()
    match role:
        case "user" | "system" | "developer":
            return ChatMessage(role=role, text=text)
        case "assistant":
            entries = enumerate(items(entry.get("tool_calls")))
            calls = tuple(_call(call, f"{where}.tool_calls[{index}]") for index, call in entries)
            return ChatMessage(role=role, text=text or None, reasoning=_string(entry, "thinking", where), calls=calls)
        case "tool":
            return ChatMessage(role=role, text=text, tool=_tool_name(entry, where, past_calls))
        case _:
            raise bad_request(f"invalid role {role!r}: expected one of system, user, assistant, tool")


def _call(entry: Json, where: str) -> PastCall:
    function = members(entry).get("function")
    name = members(function).get("name")
    arguments = members(function).get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise bad_request(f"{where}.function: expected a name, and arguments as an object")
    identity = members(entry).get("id")
    return PastCall(
        id=identity if isinstance(identity, str) and identity else derive_id("", where),
        name=name,
        arguments=dumps(arguments),
    )


def _tool_name(entry: JsonObject, where: str, past_calls: list[PastCall]) -> str:
    """Return the tool name in the message, else of the call with its id, else of the last call."""
    name = _string(entry, "tool_name", where) or _string(entry, "name", where)
    call = _string(entry, "tool_call_id", where)
    name = name or next((past.name for past in past_calls if past.id == call), None) if call else name
    name = name or (past_calls[-1].name if past_calls else None)
    if name is None:
        raise bad_request(f"{where}: expected a tool_name, since no earlier message calls a tool")
    return name


def _string(entry: JsonObject, name: str, where: str) -> str | None:
    value = entry.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_request(f"{where}.{name}: expected a string")
    return value


def _model(value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise bad_request("model is required")
    if value.removesuffix(":latest") != MODEL:
        raise ApiError(f"model '{value}' not found", status=HTTPStatus.NOT_FOUND)
    return value


def _effort(value: Json) -> Effort:
    """Return the effort for `think`; `false` is the lowest effort, since gpt-oss always reasons."""
    if value is None or value is True:
        return Effort.MEDIUM
    if value is False:
        return Effort.LOW
    if isinstance(value, str) and value in _EFFORTS:
        return _EFFORTS[value]
    raise bad_request(f'invalid think value: {dumps(value)} (must be "high", "medium", "low", "max", true, or false)')


def _form(value: Json) -> tuple[AnswerForm, Json]:
    match value:
        case None | "":
            return AnswerForm.TEXT, None
        case "json":
            return AnswerForm.JSON_OBJECT, None
        case dict():
            fields.refuse_bad_schema(value, "format")
            return AnswerForm.JSON_SCHEMA, value
        case _:
            raise bad_request(f'invalid format: {dumps(value)}; expected "json" or a valid JSON Schema object')


def _tools(value: Json) -> tuple[Tool, ...]:
    if value is not None and not isinstance(value, list):
        raise bad_request("tools: expected a list")
    tools = tuple(
        fields.function_tool(members(entry).get("function"), f"tools[{position}].function")
        for position, entry in enumerate(items(value))
    )
    fields.refuse_doubled(tools)
    return tools


def _options(value: Json) -> None:
    """Reject options of a wrong type; a scripted model ignores valid ones."""
    if value is not None and not isinstance(value, dict):
        raise bad_request("options: expected an object")
    for name, option in members(value).items():
        if option is None:
            continue
        if name in _WHOLE and (isinstance(option, bool) or not isinstance(option, int)):
            raise bad_request(f'option "{name}" must be of type integer')
        if name in _NUMBERS and (isinstance(option, bool) or not isinstance(option, int | float)):
            raise bad_request(f'option "{name}" must be of type float32')


def _stops(value: Json) -> tuple[str, ...]:
    if value is not None and not isinstance(value, list):
        raise bad_request('option "stop" must be of type array')
    texts = tuple(entry for entry in items(value) if isinstance(entry, str))
    if len(texts) != len(items(value)):
        raise bad_request('option "stop" must be of an array of strings')
    fields.refuse_long_stops(texts)
    return texts


def _logprobs(body: JsonObject) -> int | None:
    most = body.get("top_logprobs")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= _MOST_LOGPROBS):
        raise bad_request(f"top_logprobs must be between 0 and {_MOST_LOGPROBS}")
    return (most or 0) if fields.read_boolean(body, "logprobs") else None
