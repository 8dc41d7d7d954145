"""A Chat Completions request, read once and refused where it is wrong; behind this border its values are trusted."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from harmony_conformance.json_value import Json, JsonObject, members
from harmony_conformance.reference_server.chat_messages import ChatMessage, read_messages
from harmony_conformance.reference_server.errors import ApiError, unsupported, wrong_value
from harmony_ref import tokens

MODEL = "gpt-oss-reference"
"""The one model that is served."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST_DELAY = 60  # seconds a token


class Effort(StrEnum):
    """How much the model is to reason."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Choice(StrEnum):
    """What the client says about calls."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


class AnswerForm(StrEnum):
    """What the final answer is to be."""

    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function the client offers; `parameters` is its JSON schema, None where it takes none."""

    name: str
    description: str
    parameters: Json


@dataclass(frozen=True, kw_only=True)
class ChatRequest:
    """All that the server reads of a request.

    Attributes:
        demanded: a tool that has to be called (`tool_choice` names it, or demands any); None where none has to.
        calls_in_parallel: whether an answer may have several calls.
        schema: the JSON schema of the final answer, where `form` has one; `schema_name` is what the client calls it.
        limit: most tokens to generate; None for no limit.
        script: the token ids that the model is to produce; None for its own answer.
        goes_on: whether the model goes on in its own words where the script ends.
        token_delay: seconds that each token takes.
    """

    messages: tuple[ChatMessage, ...]
    tools: tuple[Tool, ...]
    choice: Choice
    demanded: Tool | None
    calls_in_parallel: bool
    effort: Effort
    form: AnswerForm
    schema: Json
    schema_name: str
    limit: int | None
    streamed: bool
    usage_in_stream: bool
    shows_token_ids: bool
    script: tuple[int, ...] | None
    goes_on: bool
    token_delay: float

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model gets to see."""
        return () if self.choice is Choice.NONE else self.tools


def read_request(body: JsonObject) -> ChatRequest:
    """The request in a JSON body.

    Raises:
        ApiError: a 4xx that names the parameter.
    """
    _model(body)
    for name in ("n", "stop", "logprobs", "top_logprobs", "logit_bias"):
        _refuse_unsupported(name, body.get(name))
    _refuse_bad_sampling(body)
    tools = _tools(body.get("tools"))
    choice, demanded = _tool_choice(body.get("tool_choice"), tools)
    streamed = _switch(body, "stream")
    form, schema = _answer_form(body.get("response_format"))
    return ChatRequest(
        messages=read_messages(body.get("messages")),
        tools=tools,
        choice=choice,
        demanded=demanded,
        calls_in_parallel=_switch(body, "parallel_tool_calls", otherwise=True),
        effort=_effort(body.get("reasoning_effort")),
        form=form,
        schema=schema,
        schema_name=_schema_name(body.get("response_format")),
        limit=_limit(body),
        streamed=streamed,
        usage_in_stream=_usage_in_stream(body.get("stream_options"), streamed=streamed),
        shows_token_ids=_switch(body, "return_token_ids"),
        script=_script(body.get("harmony_script")),
        goes_on=_goes_on(body.get("harmony_script_then"), body.get("harmony_script")),
        token_delay=_token_delay(body.get("harmony_token_delay")),
    )


def _model(body: JsonObject) -> None:
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise wrong_value("model", "the name of a model is needed.")
    if model != MODEL:
        raise ApiError(
            f"The model '{model}' does not exist; this server offers '{MODEL}'.",
            status=HTTPStatus.NOT_FOUND,
            param="model",
            code="model_not_found",
        )


_SAMPLING: dict[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "presence_penalty": (-2, 2),
    "frequency_penalty": (-2, 2),
}


def _refuse_bad_sampling(body: JsonObject) -> None:
    """Sampling settings do not matter to a scripted model; their types and ranges matter to a client."""
    for name, (least, most) in _SAMPLING.items():
        value = body.get(name)
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most
        ):
            raise wrong_value(name, f"a number from {least:g} to {most:g} is needed.")
    seed = body.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise wrong_value("seed", "a whole number is needed.")


_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "n": (None, 1),
    "stop": (None, [], ""),
    "logprobs": (None, False),
    "top_logprobs": (None, 0),
    "logit_bias": (None, {}),
}


def _refuse_unsupported(name: str, value: Json) -> None:
    if not any(value == neutral and isinstance(value, bool) == isinstance(neutral, bool) for neutral in _NEUTRAL[name]):
        raise unsupported(name, "this server only takes the default.")


def _switch(body: JsonObject, name: str, *, otherwise: bool = False) -> bool:
    value = body.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise wrong_value(name, "true or false is needed.")
    return value


def _effort(value: Json) -> Effort:
    if value is None:
        return Effort.MEDIUM
    if isinstance(value, str) and value in set(Effort):
        return Effort(value)
    raise wrong_value("reasoning_effort", f"{value!r} is none of 'low', 'medium', 'high', the levels of Harmony.")


def _answer_form(value: Json) -> tuple[AnswerForm, Json]:
    if value is None:
        return AnswerForm.TEXT, None
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(kind, str) or kind not in set(AnswerForm):
        raise wrong_value("response_format", "an object is needed whose type is text, json_object or json_schema.")
    if kind != AnswerForm.JSON_SCHEMA:
        return AnswerForm(kind), None
    described = value.get("json_schema")
    schema = described.get("schema") if isinstance(described, dict) else None
    if not isinstance(schema, dict):
        raise wrong_value("response_format.json_schema", "an object with a member 'schema' is needed.")
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as problem:
        raise wrong_value("response_format.json_schema.schema", f"it is no JSON schema: {problem.message}") from None
    return AnswerForm.JSON_SCHEMA, schema


def _schema_name(value: Json) -> str:
    name = members(members(value).get("json_schema")).get("name")
    return name if isinstance(name, str) and name else "answer"


def _limit(body: JsonObject) -> int | None:
    found: int | None = None
    for name in ("max_tokens", "max_completion_tokens"):
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_value(name, "a whole number is needed.")
        if value < 1:
            raise wrong_value(name, f"at least 1 is needed, not {value}.")
        found = value
    return found


def _usage_in_stream(value: Json, *, streamed: bool) -> bool:
    if value is None:
        return False
    if not isinstance(value, dict):
        raise wrong_value("stream_options", "an object is needed.")
    if not streamed:
        raise wrong_value("stream_options", "it is only allowed when 'stream' is true.")
    wanted = value.get("include_usage")
    if wanted is not None and not isinstance(wanted, bool):
        raise wrong_value("stream_options.include_usage", "true or false is needed.")
    return wanted is True


def _tools(value: Json) -> tuple[Tool, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise wrong_value("tools", "a list is needed.")
    tools = tuple(_tool(entry, f"tools[{position}]") for position, entry in enumerate(value))
    names = [tool.name for tool in tools]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise wrong_value("tools", f"the function '{doubled}' is declared twice.")
    return tools


def _tool(entry: Json, where: str) -> Tool:
    if not isinstance(entry, dict) or entry.get("type") != "function":
        raise wrong_value(where, "an object of type 'function' is needed.")
    function = entry.get("function")
    if not isinstance(function, dict):
        raise wrong_value(f"{where}.function", "an object is needed.")
    name = function.get("name")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise wrong_value(f"{where}.function.name", "1 to 64 letters, digits, '_', '-' or '.' are needed.")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise wrong_value(f"{where}.function.description", "a string is needed.")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise wrong_value(f"{where}.function.parameters", "a JSON schema, which is an object, is needed.")
    return Tool(name=name, description=description or "", parameters=parameters)


def _tool_choice(value: Json, tools: Sequence[Tool]) -> tuple[Choice, Tool | None]:
    if value is None:
        return Choice.AUTO, None
    if isinstance(value, str):
        if value not in set(Choice):
            raise wrong_value("tool_choice", f"{value!r} is none of 'none', 'auto', 'required' and no object.")
        if value == Choice.REQUIRED and not tools:
            raise wrong_value("tool_choice", "'required' is only allowed with 'tools'.")
        return Choice(value), tools[0] if value == Choice.REQUIRED else None
    function = value.get("function") if isinstance(value, dict) and value.get("type") == "function" else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise wrong_value("tool_choice", 'an object is needed like {"type": "function", "function": {"name": …}}.')
    named = next((tool for tool in tools if tool.name == name), None)
    if named is None:
        raise wrong_value("tool_choice", f"the function '{name}' is not among 'tools'.")
    return Choice.REQUIRED, named


def _script(value: Json) -> tuple[int, ...] | None:
    match value:
        case None:
            return None
        case str():
            return tuple(tokens.encode_with_special_tokens(value))
        case list():
            ids = tuple(token for token in value if isinstance(token, int) and not isinstance(token, bool))
            if len(ids) == len(value) and all(tokens.is_known(token) for token in ids):
                return ids
        case _:
            pass
    raise wrong_value("harmony_script", "a text or a list of token ids of the vocabulary is needed.")


def _goes_on(value: Json, script: Json) -> bool:
    if value not in (None, "model") or (value is not None and script is None):
        raise wrong_value("harmony_script_then", "'model' is needed, and a 'harmony_script' that begins the answer.")
    return value is not None


def _token_delay(value: Json) -> float:
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_DELAY:
        raise wrong_value("harmony_token_delay", f"seconds between 0 and {_LONGEST_DELAY} are needed.")
    return float(value)
