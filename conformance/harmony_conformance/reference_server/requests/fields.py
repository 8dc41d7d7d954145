"""Members that requests of several APIs have, read the same way and refused in the same words.

Every function takes what the client sent and the name it has there, and raises the ApiError of a 4xx that names it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from http import HTTPStatus

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from harmony_conformance.json_value import Json, JsonObject, dumps, loads, members
from harmony_conformance.reference_server.requests.errors import ApiError, unsupported, wrong_value
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


class ToolChoice(StrEnum):
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
class RequestOptions:
    """What a request wants of the model, whatever API it came by.

    Attributes:
        demanded: a tool that has to be called (`tool_choice` names it, or demands any); None where none has to.
        calls_in_parallel: whether an answer may have several calls.
        schema: the JSON schema of the final answer, where `form` has one; `schema_name` is what the client calls it.
        limit: most tokens to generate; None for no limit.
        script: the token ids that the model is to produce; None for its own answer.
        goes_on: whether the model goes on in its own words where the script ends.
        token_delay: seconds that each token takes.
    """

    tools: tuple[Tool, ...]
    choice: ToolChoice
    demanded: Tool | None
    calls_in_parallel: bool
    effort: Effort
    form: AnswerForm
    schema: Json
    schema_name: str
    limit: int | None
    streamed: bool
    shows_token_ids: bool
    script: tuple[int, ...] | None
    goes_on: bool
    token_delay: float

    @property
    def calls_allowed(self) -> bool:
        """Whether the model may call anything."""
        return self.choice is not ToolChoice.NONE

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that the model gets to see."""
        return self.tools if self.calls_allowed else ()


def named_model(body: JsonObject) -> None:
    """Refuse a request that names no model, or another one."""
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


def refuse_bad_sampling(body: JsonObject) -> None:
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


def refuse_unsupported(body: JsonObject, neutral: "dict[str, tuple[Json, ...]]") -> None:
    """Refuse the members that have another value than one of the neutral ones."""
    for name, values in neutral.items():
        given = body.get(name)
        if not any(given == value and isinstance(given, bool) == isinstance(value, bool) for value in values):
            raise unsupported(name, "this server only takes the default.")


def switch(body: JsonObject, name: str, *, otherwise: bool = False) -> bool:
    """True or false, `otherwise` where nothing is said."""
    value = body.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise wrong_value(name, "true or false is needed.")
    return value


def limit(body: JsonObject, *names: str) -> int | None:
    """The number of tokens under the last of the names that is given; None for no limit."""
    found: int | None = None
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_value(name, "a whole number is needed.")
        if value < 1:
            raise wrong_value(name, f"at least 1 is needed, not {value}.")
        found = value
    return found


def effort(value: Json, where: str) -> Effort:
    """The level of reasoning; medium where nothing is said."""
    if value is None:
        return Effort.MEDIUM
    if isinstance(value, str) and value in set(Effort):
        return Effort(value)
    raise wrong_value(where, f"{value!r} is none of 'low', 'medium', 'high', the levels of Harmony.")


def usage_in_stream(value: Json, *, streamed: bool) -> bool:
    """`stream_options.include_usage`."""
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


def function_tool(function: Json, where: str) -> Tool:
    """A function's name, description and parameters."""
    if not isinstance(function, dict):
        raise wrong_value(where, "an object is needed.")
    name = function.get("name")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise wrong_value(f"{where}.name", "1 to 64 letters, digits, '_', '-' or '.' are needed.")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise wrong_value(f"{where}.description", "a string is needed.")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise wrong_value(f"{where}.parameters", "a JSON schema, which is an object, is needed.")
    return Tool(name=name, description=description or "", parameters=parameters)


def refuse_doubled(tools: Sequence[Tool]) -> None:
    """Refuse two functions of one name."""
    names = [tool.name for tool in tools]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise wrong_value("tools", f"the function '{doubled}' is declared twice.")


def tool_choice_word(value: str, tools: Sequence[Tool]) -> "tuple[ToolChoice, Tool | None]":
    """A `tool_choice` that is a word, and the tool that has to be called then."""
    if value not in set(ToolChoice):
        raise wrong_value("tool_choice", f"{value!r} is none of 'none', 'auto', 'required' and no object.")
    if value == ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "'required' is only allowed with 'tools'.")
    return ToolChoice(value), tools[0] if value == ToolChoice.REQUIRED else None


def chosen_tool(name: str, tools: Sequence[Tool]) -> Tool:
    """The function that `tool_choice` names."""
    named = next((tool for tool in tools if tool.name == name), None)
    if named is None:
        raise wrong_value("tool_choice", f"the function '{name}' is not among 'tools'.")
    return named


def refuse_bad_schema(schema: JsonObject, where: str) -> None:
    """Refuse what is no JSON schema."""
    if problem := _problem_of_schema(dumps(schema)):
        raise wrong_value(where, f"it is no JSON schema: {problem}")


@lru_cache(maxsize=1024)
def _problem_of_schema(schema: str) -> str:
    """Why a text is no JSON schema, empty where it is one. Remembered: to see it takes longer than all the rest of a request."""
    try:
        Draft202012Validator.check_schema(members(loads(schema)))
    except SchemaError as problem:
        return str(problem.message)
    return ""


def script(body: JsonObject) -> tuple[int, ...] | None:
    """`harmony_script`: what the model is to produce, as token ids or as a text with special tokens."""
    match body.get("harmony_script"):
        case None:
            return None
        case str() as value:
            return tuple(tokens.encode_with_special_tokens(value))
        case list() as value:
            ids = tuple(token for token in value if isinstance(token, int) and not isinstance(token, bool))
            if len(ids) == len(value) and all(tokens.is_known(token) for token in ids):
                return ids
        case _:
            pass
    raise wrong_value("harmony_script", "a text or a list of token ids of the vocabulary is needed.")


def goes_on(body: JsonObject) -> bool:
    """`harmony_script_then`: whether the model goes on in its own words where the script ends."""
    value = body.get("harmony_script_then")
    if value not in (None, "model") or (value is not None and body.get("harmony_script") is None):
        raise wrong_value("harmony_script_then", "'model' is needed, and a 'harmony_script' that begins the answer.")
    return value is not None


def token_delay(body: JsonObject) -> float:
    """`harmony_token_delay`: the seconds that each token takes."""
    value = body.get("harmony_token_delay")
    if value is None:
        return 0.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _LONGEST_DELAY:
        raise wrong_value("harmony_token_delay", f"seconds between 0 and {_LONGEST_DELAY} are needed.")
    return float(value)


def event_tokens(body: JsonObject) -> int:
    """`harmony_event_tokens`: how many tokens go in one event of a stream."""
    value = body.get("harmony_event_tokens")
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise wrong_value("harmony_event_tokens", "a whole number from 1 is needed.")
    return value
