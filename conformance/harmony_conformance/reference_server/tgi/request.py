"""Parse and validate a request to /generate or /generate_stream, with TGI's error messages."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TypeAlias

from harmony_conformance.json_value import Json, JsonObject, dumps, members, text
from harmony_conformance.reference_server.model.plain_text import encode_raw_prompt
from harmony_conformance.reference_server.model.schema_instance import InstanceSizeError, instance
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_ref import encode, tokens

MOST_STOPS = 4
MOST_TOP_TOKENS = 5


def invalid(message: str) -> ApiError:
    """Return TGI's validation error."""
    return ApiError(f"Input validation error: {message}", status=HTTPStatus.UNPROCESSABLE_ENTITY, code="validation")


@dataclass(frozen=True, kw_only=True)
class TgiGenerateRequest:
    """Validated request; without `script` the output is unscripted."""

    inputs: str
    prompt: tuple[int, ...]  # token ids of `inputs`, truncated on the left if requested
    limit: int | None
    stop_strings: tuple[str, ...]
    seed: int | None
    shows_details: bool
    shows_prompt: bool
    returns_prompt: bool
    top_tokens: int  # number of alternatives per token
    is_streamed: bool
    script: tuple[int, ...] | None
    token_delay: float  # seconds per token


def read_request(body: JsonObject, *, streamed: bool) -> TgiGenerateRequest:
    """Parse a JSON body; raise an ApiError (422) if it is invalid."""
    inputs = body.get("inputs")
    if not isinstance(inputs, str):
        raise invalid("`inputs`: expected a string")
    if not inputs:
        raise invalid("`inputs` cannot be empty")
    if not isinstance(body.get("parameters", {}), dict):
        raise invalid("`parameters`: expected an object")
    parameters = members(body.get("parameters"))
    _validate(parameters)
    shows_prompt = parameters.get("decoder_input_details") is True
    if shows_prompt and streamed:
        raise invalid("`decoder_input_details` == true is not supported when streaming tokens")
    prompt = tuple(encode_raw_prompt(inputs))
    most = parameters.get("truncate")
    return TgiGenerateRequest(
        inputs=inputs,
        prompt=prompt[-most:] if isinstance(most, int) and most > 0 else prompt,
        limit=_whole(parameters, "max_new_tokens"),
        stop_strings=stop_strings(parameters.get("stop")),
        seed=_whole(parameters, "seed"),
        shows_details=parameters.get("details") is True or shows_prompt,
        shows_prompt=shows_prompt,
        returns_prompt=parameters.get("return_full_text") is True,
        top_tokens=_whole(parameters, "top_n_tokens") or 0,
        is_streamed=streamed,
        script=fields.script(body) or _by_grammar(parameters.get("grammar")),
        token_delay=fields.token_delay(body),
    )


_Rule: TypeAlias = "tuple[Callable[[float], bool], str]"
_POSITIVE: _Rule = (lambda value: value > 0, "must be strictly positive")
_FRACTION: _Rule = (lambda value: 0 < value < 1, "must be > 0.0 and < 1.0")
_RULES: dict[str, _Rule] = {
    **dict.fromkeys(("temperature", "repetition_penalty"), _POSITIVE),
    **dict.fromkeys(("top_p", "typical_p"), _FRACTION),
    "frequency_penalty": (lambda value: -2 <= value <= 2, "must be >= -2.0 and <= 2.0"),  # noqa: PLR2004 - the range itself
    **dict.fromkeys(("top_k", "max_new_tokens", "truncate"), _POSITIVE),
    "seed": (lambda value: value >= 0, "must be a whole number of at least 0"),
    "best_of": (lambda value: value == 1, "must be 1: this server does not sample"),
    "top_n_tokens": (lambda value: 0 <= value <= MOST_TOP_TOKENS, f"must be >= 0 and <= {MOST_TOP_TOKENS}"),
}
_SWITCHES = ("details", "decoder_input_details", "return_full_text", "do_sample", "watermark")


def _validate(parameters: JsonObject) -> None:
    for name, (is_valid, rule) in _RULES.items():
        value = parameters.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not is_valid(value)):
            raise invalid(f"`{name}` {rule}")
    for name in _SWITCHES:
        if not isinstance(parameters.get(name, False), bool | None):
            raise invalid(f"`{name}`: expected true or false")


def _whole(parameters: JsonObject, name: str) -> int | None:
    value = parameters.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise invalid(f"`{name}`: expected a whole number")
    return value


def stop_strings(value: Json) -> tuple[str, ...]:
    """Return the non-empty strings of `stop`; raise an ApiError (422) if it is invalid."""
    values = [] if value is None else value
    texts = [entry for entry in values if isinstance(entry, str)] if isinstance(values, list) else []
    if not isinstance(values, list) or len(texts) != len(values):
        raise invalid("`stop`: expected a list of strings")
    if len(texts) > MOST_STOPS:
        raise invalid(f"`stop` supports up to {MOST_STOPS} stop sequences. Given: {len(texts)}")
    longest = max(map(len, texts), default=0)
    if longest > fields.LONGEST_STOP:
        raise invalid(f"`stop`: expected at most {fields.LONGEST_STOP} characters, got {longest}")
    return tuple(entry for entry in texts if entry)


def require_properties(schema: Json) -> None:
    """Raise an ApiError (422) if a grammar has no properties: TGI makes none of such a schema."""
    if "properties" not in members(schema):
        raise invalid("grammar is not valid: Grammar must have a 'properties' field")


def _by_grammar(value: Json) -> tuple[int, ...] | None:
    """Return a small output that satisfies the grammar."""
    if value is None:
        return None
    if text(members(value).get("type")) not in {"json", "json_object", "json_schema"}:
        raise invalid("`grammar`: only JSON schemas are supported")
    given = members(members(value).get("value"))
    schema = members(given.get("schema")) if members(value).get("type") == "json_schema" else given
    require_properties(schema)
    try:
        return (*encode(dumps(instance(schema))), tokens.RETURN)
    except InstanceSizeError as problem:
        raise invalid(f"`grammar`: {problem}") from None
