"""Parse request members that several APIs share.

Every function raises an ApiError with status 4xx that names the invalid member.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from http import HTTPStatus
from math import inf
from typing import Final

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError

from harmony_conformance.json_value import Json, JsonObject, dumps, loads, members
from harmony_conformance.reference_server.requests.errors import ApiError, unsupported, wrong_value
from harmony_ref import tokens

MODEL = "gpt-oss-reference"
"""Name of the only model."""

TOOL_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST_DELAY = 60  # seconds per token
_MOST_STOPS = 4
_MOST_TOOLS = 1024

MOST_STOPS_OF_ANY_API = 16
LONGEST_STOP = 1000
"""Maximum characters of a stop string."""

LARGEST_SCHEMA = 65_536
"""Maximum characters of a JSON schema: validation takes about a millisecond per subschema."""

LARGEST_ANSWER = 1_000_000
"""Maximum number of token entries of an answer: the tokens of all choices, each with its alternatives."""


class Effort(StrEnum):
    """Reasoning effort."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class ToolChoice(StrEnum):
    """Values of `tool_choice`."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


class AnswerForm(StrEnum):
    """Response format."""

    TEXT = "text"
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"


FUNCTIONS: Final = "functions"
"""Namespace of functions that name no other."""


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function of the client; `parameters` is its JSON schema, None if it has no parameters."""

    name: str
    description: str
    parameters: Json
    namespace: str = FUNCTIONS
    namespace_description: str | None = None
    kind: str = "function"  # type of the tool in the Responses API

    @property
    def recipient(self) -> str:
        """Recipient of its calls in Harmony."""
        return f"{self.namespace}.{self.name}"

    @property
    def qualified_name(self) -> str:
        """Name by which a call is found: without the namespace `functions`."""
        return self.name if self.namespace == FUNCTIONS else self.recipient


@dataclass(frozen=True, kw_only=True)
class RequestOptions:
    """Generation options common to all APIs."""

    tools: tuple[Tool, ...]
    tool_choice: ToolChoice
    required_tool: Tool | None  # must be called: `tool_choice` names it or requires any
    calls_in_parallel: bool  # an answer may have several calls
    effort: Effort
    form: AnswerForm
    schema: Json  # JSON schema of the final answer if `form` is `json_schema`
    schema_name: str
    limit: int | None  # maximum number of tokens to generate
    is_streamed: bool
    shows_token_ids: bool
    script: tuple[int, ...] | None  # None: unscripted output
    continues_after_script: bool  # the model continues unscripted after the script
    token_delay: float  # seconds per token

    @property
    def can_call_tools(self) -> bool:
        """True if the model may call tools."""
        return self.tool_choice is not ToolChoice.NONE

    @property
    def declared_tools(self) -> tuple[Tool, ...]:
        """Tools that the prompt declares."""
        return self.tools if self.can_call_tools else ()


def validate_model(body: JsonObject) -> None:
    """Reject a request without the name of the served model."""
    model = body.get("model")
    if not isinstance(model, str) or not model:
        raise wrong_value("model", "expected the name of a model.")
    if model != MODEL:
        raise ApiError(
            f"The model '{model}' does not exist; available: '{MODEL}'.",
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
    """Reject sampling parameters of a wrong type or range; a scripted model ignores valid ones."""
    for name, (least, most) in _SAMPLING.items():
        _number(body, name, least, most)
    seed = body.get("seed")
    if seed is not None and (isinstance(seed, bool) or not isinstance(seed, int)):
        raise wrong_value("seed", "expected a whole number.")


def _number(body: JsonObject, name: str, least: float, most: float) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise wrong_value(name, f"expected a number from {least:g} to {most:g}, got {value!r}.")
    return value


def refuse_unsupported(body: JsonObject, neutral: "dict[str, tuple[Json, ...]]") -> None:
    """Reject the members that have another value than the supported ones in `neutral`."""
    for name, values in neutral.items():
        actual = body.get(name)
        if not any(actual == value and isinstance(actual, bool) == isinstance(value, bool) for value in values):
            raise unsupported(name, "this server only accepts the default.")


def read_boolean(body: JsonObject, name: str, *, otherwise: bool = False) -> bool:
    """Return the boolean member `name`, or `otherwise` if it is absent."""
    value = body.get(name)
    if value is None:
        return otherwise
    if not isinstance(value, bool):
        raise wrong_value(name, "expected true or false.")
    return value


def whole_number(body: JsonObject, name: str, least: int, most: float = inf) -> int | None:
    """Return the integer member `name`; None if it is absent."""
    value = body.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most):
        bounds = f"of at least {least}" if most == inf else f"from {least} to {most}"
        raise wrong_value(name, f"expected a whole number {bounds}, got {value!r}.")
    return value


def stop_strings(value: Json) -> tuple[str, ...]:
    """Return the non-empty strings of `stop`: one string, or a list of up to 4."""
    values = value if isinstance(value, list) else [] if value is None else [value]
    stops = tuple(stop for stop in values if isinstance(stop, str))
    if len(stops) < len(values) or len(stops) > _MOST_STOPS:
        raise wrong_value("stop", f"expected a string or a list of up to {_MOST_STOPS} strings.")
    refuse_long_stops(stops)
    return tuple(filter(None, stops))


def refuse_long_stops(stops: Sequence[str]) -> None:
    """Reject stop strings that make the search for them slow, and more of them than any API allows."""
    if len(stops) > MOST_STOPS_OF_ANY_API:
        raise wrong_value("stop", f"expected at most {MOST_STOPS_OF_ANY_API} strings, got {len(stops)}.")
    longest = max(map(len, stops), default=0)
    if longest > LONGEST_STOP:
        raise wrong_value("stop", f"expected at most {LONGEST_STOP} characters, got {longest}.")


def limit(body: JsonObject, *names: str) -> int | None:
    """Return the token limit under the last of `names` that is present; None for no limit."""
    values = [whole_number(body, name, 1) for name in names]
    return next((value for value in reversed(values) if value is not None), None)


def effort(value: Json, where: str) -> Effort:
    """Return the reasoning effort; medium if absent."""
    if value is None:
        return Effort.MEDIUM
    if isinstance(value, str) and value in set(Effort):
        return Effort(value)
    raise wrong_value(where, f"expected one of 'low', 'medium', 'high', got {value!r}.")


def usage_in_stream(value: Json, *, streamed: bool) -> bool:
    """Return `stream_options.include_usage`."""
    if value is None:
        return False
    if not isinstance(value, dict):
        raise wrong_value("stream_options", "expected an object.")
    if not streamed:
        raise wrong_value("stream_options", "it is only allowed when 'stream' is true.")
    included = value.get("include_usage")
    if included is not None and not isinstance(included, bool):
        raise wrong_value("stream_options.include_usage", "expected true or false.")
    return included is True


def function_tool(function: Json, where: str) -> Tool:
    """Return a function declaration."""
    if not isinstance(function, dict):
        raise wrong_value(where, "expected an object.")
    name = function.get("name")
    if not isinstance(name, str) or not TOOL_NAME.fullmatch(name):
        raise wrong_value(f"{where}.name", "expected 1 to 64 letters, digits, '_', '-' or '.'.")
    description = function.get("description")
    if description is not None and not isinstance(description, str):
        raise wrong_value(f"{where}.description", "expected a string.")
    parameters = function.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise wrong_value(f"{where}.parameters", "expected a JSON schema object.")
    return Tool(name=name, description=description or "", parameters=parameters)


def refuse_doubled(tools: Sequence[Tool]) -> None:
    """Reject two functions of one name, and more functions than a request may declare."""
    if len(tools) > _MOST_TOOLS:
        raise wrong_value("tools", f"expected at most {_MOST_TOOLS} functions, got {len(tools)}.")
    names = [tool.qualified_name for tool in tools]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise wrong_value("tools", f"the function '{doubled}' is declared twice.")


def refuse_large_answer(token_count: int, limit: int | None, *, choices: int = 1, alternatives: int = 0) -> None:
    """Reject an answer with more token entries than LARGEST_ANSWER."""
    entries = min(token_count, token_count if limit is None else limit) * choices * (1 + alternatives)
    if entries > LARGEST_ANSWER:
        wanted = f"at most {LARGEST_ANSWER} tokens in all choices and their alternatives"
        raise wrong_value("harmony_script", f"expected {wanted}, got {entries}.")


def tool_choice_word(value: str, tools: Sequence[Tool]) -> "tuple[ToolChoice, Tool | None]":
    """Return the mode for a string `tool_choice`, and the tool that must be called."""
    if value not in set(ToolChoice):
        raise wrong_value("tool_choice", f"expected 'none', 'auto', 'required' or an object, got {value!r}.")
    if value == ToolChoice.REQUIRED and not tools:
        raise wrong_value("tool_choice", "'required' is only allowed with 'tools'.")
    return ToolChoice(value), tools[0] if value == ToolChoice.REQUIRED else None


def chosen_tool(name: str, tools: Sequence[Tool]) -> Tool:
    """Return the function that `tool_choice` names."""
    function = next((tool for tool in tools if name in (tool.name, tool.qualified_name)), None)
    if function is None:
        raise wrong_value("tool_choice", f"the function '{name}' is not among 'tools'.")
    return function


def refuse_bad_schema(schema: JsonObject, where: str) -> None:
    """Reject an invalid JSON schema."""
    document = dumps(schema)
    if len(document) > LARGEST_SCHEMA:
        raise wrong_value(where, f"expected at most {LARGEST_SCHEMA} characters, got {len(document)}.")
    if problem := _schema_problem(document):
        raise wrong_value(where, f"expected a valid JSON schema: {problem}")


@lru_cache(maxsize=1024)
def _schema_problem(schema: str) -> str:
    """Return the validation error, or ""; cached, because validation takes longer than the rest of a request."""
    try:
        Draft202012Validator.check_schema(members(loads(schema)))
    except SchemaError as problem:
        return str(problem.message)
    return ""


def optional_object(body: JsonObject, name: str) -> JsonObject:
    """Return a member that is an object, or an empty one if it is missing."""
    value = body.get(name)
    if value is not None and not isinstance(value, dict):
        raise wrong_value(name, "expected an object.")
    return members(value)


def string(entry: JsonObject, name: str, where: str) -> str:
    """Return the string member `name` of the object at `where`."""
    value = entry.get(name)
    if not isinstance(value, str):
        raise wrong_value(f"{where}.{name}", "expected a string.")
    return value


def text_part(part: Json, where: str, kinds: Mapping[str, str], condition: str = "") -> str:
    """Return the text of a content part; `kinds` maps the allowed types of parts to their member with the text."""
    if not isinstance(part, dict):
        raise wrong_value(where, "expected an object.")
    kind = part.get("type")
    if not isinstance(kind, str) or kind not in kinds:
        raise wrong_value(f"{where}.type", f"expected {' or '.join(kinds)}{condition}, got {kind!r}.")
    return string(part, kinds[kind], where)


def script(body: JsonObject) -> tuple[int, ...] | None:
    """Return the token ids of `harmony_script`, sent as a list of token ids or as a text with special tokens."""
    match body.get("harmony_script"):
        case None:
            return None
        case str() as value:
            ids = tuple(tokens.encode_with_special_tokens(value))
            refuse_large_answer(len(ids), None)
            return ids
        case list() as value:
            ids = tuple(token for token in value if isinstance(token, int) and not isinstance(token, bool))
            if len(ids) == len(value) and all(tokens.is_known(token) for token in ids):
                refuse_large_answer(len(ids), None)
                return ids
        case _:
            pass
    raise wrong_value("harmony_script", "expected a text or a list of token ids of the vocabulary.")


def continues_after_script(body: JsonObject) -> bool:
    """Return True if `harmony_script_then` is "model": the model continues unscripted after the script."""
    value = body.get("harmony_script_then")
    if value not in (None, "model") or (value is not None and body.get("harmony_script") is None):
        raise wrong_value("harmony_script_then", "expected 'model', and a 'harmony_script' that begins the answer.")
    return value is not None


def token_delay(body: JsonObject) -> float:
    """Return `harmony_token_delay`, in seconds per token."""
    return float(_number(body, "harmony_token_delay", 0, _LONGEST_DELAY) or 0)


def event_tokens(body: JsonObject) -> int:
    """Return `harmony_event_tokens`, the number of tokens per stream event."""
    return whole_number(body, "harmony_event_tokens", 1) or 1
