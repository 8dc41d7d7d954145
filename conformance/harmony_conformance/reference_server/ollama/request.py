"""What requests of Ollama's API have in common, and its chat requests: read once and refused where they are wrong."""

from dataclasses import dataclass
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members
from harmony_conformance.reference_server.pipeline.prompt_run import id_of
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.chat_messages import ChatMessage, PastCall
from harmony_conformance.reference_server.requests.chat_request import ChatRequest
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_conformance.reference_server.requests.fields import MODEL, AnswerForm, Effort, Tool, ToolChoice

_EFFORTS: "dict[Json, Effort]" = {
    "low": Effort.LOW,
    "medium": Effort.MEDIUM,
    "high": Effort.HIGH,
    "max": Effort.HIGH,
}
_WHOLE = ("num_predict", "num_ctx", "num_keep", "seed", "top_k", "repeat_last_n", "num_batch", "num_gpu", "num_thread")
_NUMBERS = ("temperature", "top_p", "min_p", "typical_p", "repeat_penalty", "presence_penalty", "frequency_penalty")
_MOST_LOGPROBS = 20


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """How an answer is sent.

    Attributes:
        model: the name that the client used.
        logprobs: how many alternatives are told at each place; None for no probabilities at all.
        renders_only: whether the prompt is wanted and no answer.
        stops: texts that end the answer.
    """

    model: str
    streamed: bool
    shows_token_ids: bool
    logprobs: int | None
    renders_only: bool
    stops: tuple[str, ...]
    unloads: bool


def bad(message: str) -> ApiError:
    """A refusal, in Ollama's way: one sentence."""
    return ApiError(message)


def read_delivery(body: JsonObject) -> Delivery:
    """The members that every request has.

    Raises:
        ApiError: a 4xx.
    """
    _options(body.get("options"))
    return Delivery(
        model=_model(body.get("model")),
        streamed=_switch(body, "stream", otherwise=True),
        shows_token_ids=_switch(body, "return_token_ids"),
        logprobs=_logprobs(body),
        renders_only=_switch(body, "_debug_render_only"),
        stops=_stops(members(body.get("options")).get("stop")),
        unloads=body.get("keep_alive") in (0, "0", "0s"),
    )


def asked_of(body: JsonObject, messages: tuple[ChatMessage, ...]) -> ChatRequest:
    """What a request wants of the model, with these messages.

    Raises:
        ApiError: a 4xx.
    """
    form, schema = _form(body.get("format"))
    return ChatRequest(
        messages=messages,
        tools=_tools(body.get("tools")),
        choice=ToolChoice.AUTO,
        demanded=None,
        calls_in_parallel=True,
        effort=_effort(body.get("think")),
        form=form,
        schema=schema,
        schema_name="answer",
        limit=_limit(members(body.get("options")).get("num_predict")),
        streamed=_switch(body, "stream", otherwise=True),
        usage_in_stream=False,
        shows_token_ids=_switch(body, "return_token_ids"),
        script=fields.script(body),
        goes_on=fields.goes_on(body),
        token_delay=fields.token_delay(body),
        event_tokens=1,
        ends_at_stop=True,
    )


def read_messages(value: Json) -> tuple[ChatMessage, ...]:
    """The messages of a chat in order, each tool result under the name of its tool.

    Raises:
        ApiError: a 400.
    """
    if value is not None and not isinstance(value, list):
        raise bad("messages: a list is needed")
    called: list[PastCall] = []
    read: list[ChatMessage] = []
    for place, entry in enumerate(items(value)):
        message = _message(entry, place, called)
        called.extend(message.calls)
        read.append(message)
    return tuple(read)


def _message(entry: Json, place: int, called: list[PastCall]) -> ChatMessage:
    where = f"messages[{place}]"
    if not isinstance(entry, dict):
        raise bad(f"{where}: an object is needed")
    if entry.get("images"):
        raise bad("this model does not take images")
    text = _string(entry, "content", where) or ""
    role = (_string(entry, "role", where) or "").lower()
    match role:
        case "user" | "system" | "developer":
            return ChatMessage(role=role, text=text)
        case "assistant":
            given = enumerate(items(entry.get("tool_calls")))
            calls = tuple(_call(call, f"{where}.tool_calls[{place}]") for place, call in given)
            return ChatMessage(role=role, text=text or None, reasoning=_string(entry, "thinking", where), calls=calls)
        case "tool":
            return ChatMessage(role=role, text=text, tool=_tool_name(entry, where, called))
        case _:
            raise bad(f"invalid role {role!r}: one of system, user, assistant, tool is needed")


def _call(entry: Json, where: str) -> PastCall:
    function = members(entry).get("function")
    name = members(function).get("name")
    arguments = members(function).get("arguments")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise bad(f"{where}.function: a name and arguments, which are an object, are needed")
    identity = members(entry).get("id")
    return PastCall(
        id=identity if isinstance(identity, str) and identity else id_of("", where),
        name=name,
        arguments=dumps(arguments),
    )


def _tool_name(entry: JsonObject, where: str, called: list[PastCall]) -> str:
    """The name that is said, else that of the call with this id, else that of the last call."""
    name = _string(entry, "tool_name", where) or _string(entry, "name", where)
    call = _string(entry, "tool_call_id", where)
    by_id = next((past.name for past in called if call and past.id == call), None)
    found = name or by_id or (called[-1].name if called else None)
    if found is None:
        raise bad(f"{where}: a tool_name is needed, since no earlier message calls a tool")
    return found


def _string(entry: JsonObject, name: str, where: str) -> str | None:
    value = entry.get(name)
    if value is not None and not isinstance(value, str):
        raise bad(f"{where}.{name}: a string is needed")
    return value


def _model(value: Json) -> str:
    if not isinstance(value, str) or not value:
        raise bad("model is required")
    if value.removesuffix(":latest") != MODEL:
        raise ApiError(f"model '{value}' not found", status=HTTPStatus.NOT_FOUND)
    return value


def _switch(body: JsonObject, name: str, *, otherwise: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise bad(f"{name}: true or false is needed")
    return value


def _effort(value: Json) -> Effort:
    """The level that `think` asks for. gpt-oss cannot be kept from thinking: `false` asks for as little as there is."""
    if value is None or value is True:
        return Effort.MEDIUM
    if value is False:
        return Effort.LOW
    if isinstance(value, str) and value in _EFFORTS:
        return _EFFORTS[value]
    raise bad(f'invalid think value: {dumps(value)} (must be "high", "medium", "low", "max", true, or false)')


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
            raise bad(f'invalid format: {dumps(value)}; expected "json" or a valid JSON Schema object')


def _tools(value: Json) -> tuple[Tool, ...]:
    if value is not None and not isinstance(value, list):
        raise bad("tools: a list is needed")
    tools = tuple(
        fields.function_tool(members(entry).get("function"), f"tools[{place}].function")
        for place, entry in enumerate(items(value))
    )
    fields.refuse_doubled(tools)
    return tools


def _options(value: Json) -> None:
    """Sampling settings do not matter to a scripted model; their types matter to a client."""
    if value is not None and not isinstance(value, dict):
        raise bad("options: an object is needed")
    for name, given in members(value).items():
        if name in _WHOLE and given is not None and (isinstance(given, bool) or not isinstance(given, int)):
            raise bad(f'option "{name}" must be of type integer')
        if name in _NUMBERS and given is not None and (isinstance(given, bool) or not isinstance(given, int | float)):
            raise bad(f'option "{name}" must be of type float32')


def _limit(value: Json) -> int | None:
    """`num_predict`; nothing, zero and less are no limit."""
    return value if isinstance(value, int) and value > 0 else None


def _stops(value: Json) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else items(value)
    texts = tuple(entry for entry in listed if isinstance(entry, str))
    if len(texts) != len(listed):
        raise bad('option "stop" must be of an array of strings')
    return texts


def _logprobs(body: JsonObject) -> int | None:
    most = body.get("top_logprobs")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int) or not 0 <= most <= _MOST_LOGPROBS):
        raise bad(f"top_logprobs must be between 0 and {_MOST_LOGPROBS}")
    return (most or 0) if _switch(body, "logprobs") else None
