"""A request to /generate or /generate_stream, read once and refused in TGI's words where it is wrong."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus

from harmony_conformance.json_value import Json, JsonObject, dumps, members, text
from harmony_conformance.reference_server.model.plain_text import marked_up
from harmony_conformance.reference_server.model.schema_instance import instance
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_ref import encode, tokens

MOST_STOPS = 4
MOST_TOP_TOKENS = 5


def invalid(message: str) -> ApiError:
    """The refusal of a request that can be read but not granted."""
    return ApiError(f"Input validation error: {message}", status=HTTPStatus.UNPROCESSABLE_ENTITY, code="validation")


@dataclass(frozen=True, kw_only=True)
class TgiGenerateRequest:
    """All that the server reads of a request.

    Attributes:
        prompt: the token ids of the input, cut from the left where the client asks for it.
        inputs: the same as a text.
        top_tokens: how many alternatives are told at each place.
        script: the token ids that the model is to produce; None for its own answer.
        token_delay: seconds that each token takes.
    """

    inputs: str
    prompt: tuple[int, ...]
    limit: int | None
    stops: tuple[str, ...]
    seed: int | None
    shows_details: bool
    shows_prompt: bool
    returns_prompt: bool
    top_tokens: int
    streamed: bool
    script: tuple[int, ...] | None
    token_delay: float


def read_request(body: JsonObject, *, streamed: bool) -> TgiGenerateRequest:
    """The request in a JSON body.

    Raises:
        ApiError: a 422.
    """
    inputs = body.get("inputs")
    if not isinstance(inputs, str):
        raise invalid("`inputs`: a string is needed")
    if not inputs:
        raise invalid("`inputs` cannot be empty")
    asked = body.get("parameters")
    if asked is not None and not isinstance(asked, dict):
        raise invalid("`parameters`: an object is needed")
    parameters = members(asked)
    _refuse(parameters)
    shows_prompt = parameters.get("decoder_input_details") is True
    if shows_prompt and streamed:
        raise invalid("`decoder_input_details` == true is not supported when streaming tokens")
    prompt = tuple(marked_up(inputs))
    kept = parameters.get("truncate")
    return TgiGenerateRequest(
        inputs=inputs,
        prompt=prompt[-kept:] if isinstance(kept, int) and kept > 0 else prompt,
        limit=_whole(parameters, "max_new_tokens"),
        stops=_stops(parameters.get("stop")),
        seed=_whole(parameters, "seed"),
        shows_details=parameters.get("details") is True or shows_prompt,
        shows_prompt=shows_prompt,
        returns_prompt=parameters.get("return_full_text") is True,
        top_tokens=_whole(parameters, "top_n_tokens") or 0,
        streamed=streamed,
        script=fields.script(body) or _by_grammar(parameters.get("grammar")),
        token_delay=fields.token_delay(body),
    )


def _positive(value: float) -> bool:
    return value > 0


def _fraction(value: float) -> bool:
    return 0 < value < 1


_RULES: "dict[str, tuple[Callable[[float], bool], str]]" = {
    "temperature": (_positive, "must be strictly positive"),
    "repetition_penalty": (_positive, "must be strictly positive"),
    "top_p": (_fraction, "must be > 0.0 and < 1.0"),
    "typical_p": (_fraction, "must be > 0.0 and < 1.0"),
    "frequency_penalty": (lambda value: -2 <= value <= 2, "must be >= -2.0 and <= 2.0"),  # noqa: PLR2004 - the range itself
    "top_k": (_positive, "must be strictly positive"),
    "max_new_tokens": (_positive, "must be strictly positive"),
    "truncate": (_positive, "must be strictly positive"),
    "best_of": (lambda value: value == 1, "must be 1: this server samples nothing"),
    "top_n_tokens": (lambda value: 0 <= value <= MOST_TOP_TOKENS, f"must be >= 0 and <= {MOST_TOP_TOKENS}"),
}
_SWITCHES = ("details", "decoder_input_details", "return_full_text", "do_sample", "watermark")


def _refuse(parameters: JsonObject) -> None:
    for name, (holds, rule) in _RULES.items():
        value = parameters.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not holds(value)):
            raise invalid(f"`{name}` {rule}")
    for name in _SWITCHES:
        if not isinstance(parameters.get(name, False), bool | None):
            raise invalid(f"`{name}`: true or false is needed")


def _whole(parameters: JsonObject, name: str) -> int | None:
    value = parameters.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise invalid(f"`{name}`: a whole number is needed")
    return value


def _stops(value: Json) -> tuple[str, ...]:
    listed = [] if value is None else value
    texts = [entry for entry in listed if isinstance(entry, str)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(texts) != len(listed):
        raise invalid("`stop`: a list of strings is needed")
    if len(texts) > MOST_STOPS:
        raise invalid(f"`stop` supports up to {MOST_STOPS} stop sequences. Given: {len(texts)}")
    return tuple(entry for entry in texts if entry)


def _by_grammar(value: Json) -> tuple[int, ...] | None:
    """What a grammar leaves the model to say."""
    if value is None:
        return None
    if text(members(value).get("type")) not in {"json", "json_object", "json_schema"}:
        raise invalid("`grammar`: only JSON schemas are offered here")
    schema = members(members(value).get("value"))
    return (*encode(dumps(instance(schema.get("schema", schema)))), tokens.RETURN)
