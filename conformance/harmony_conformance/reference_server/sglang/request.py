"""Parse and validate a request to /generate, with SGLang's error messages."""

from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, dumps, items, members
from harmony_conformance.reference_server.model.plain_text import TextOptions, encode_raw_prompt
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_ref import tokens

GENERATE = "generate"
"""Error code of /generate, whose error bodies differ from those of the other paths."""

_DEFAULT_LIMIT = 128
_SAMPLING = frozenset(
    {
        *("max_new_tokens", "stop", "stop_token_ids", "temperature", "top_p", "top_k", "min_p"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "ignore_eos"),
        *("skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "sampling_seed"),
    }
)
"""Accepted sampling parameters; some have no effect."""


def generate_error(message: str) -> ApiError:
    """Return an error of /generate."""
    return ApiError(message, code=GENERATE)


@dataclass(frozen=True, kw_only=True)
class SglangGenerateRequest:
    """Validated request; without `script` the output is unscripted. The unit of `token_delay` is seconds."""

    prompt: tuple[int, ...]  # token ids of `text`, or `input_ids`
    limit: int
    ignores_stops: bool  # no token ends the generation
    text_options: TextOptions
    is_streamed: bool
    shows_prompt: bool
    shows_logprobs: bool
    script: tuple[int, ...] | None
    token_delay: float


def read_request(body: JsonObject) -> SglangGenerateRequest:
    """Parse a JSON body; raise an ApiError (400) if it is invalid."""
    sampling = members(body.get("sampling_params"))
    unknown = next((name for name in sampling if name not in _SAMPLING), None)
    if unknown is not None:
        raise generate_error(f"unknown field `{unknown}`, expected one of {', '.join(sorted(_SAMPLING))}")
    stop = sampling.get("stop")
    stops = tuple(entry for entry in ([stop] if isinstance(stop, str) else items(stop)) if isinstance(entry, str))
    fields.refuse_long_stops(stops)
    return SglangGenerateRequest(
        prompt=_prompt(body),
        limit=_limit(sampling.get("max_new_tokens")),
        ignores_stops=fields.read_boolean(sampling, "ignore_eos"),
        text_options=TextOptions(
            shows_special=not fields.read_boolean(sampling, "skip_special_tokens", otherwise=True),
            stop_strings=tuple(filter(None, stops)),
            shows_stop=fields.read_boolean(sampling, "no_stop_trim"),
        ),
        is_streamed=fields.read_boolean(body, "stream"),
        shows_prompt=fields.read_boolean(body, "return_prompt_token_ids"),
        shows_logprobs=fields.read_boolean(body, "return_logprob"),
        script=fields.script(body),
        token_delay=fields.token_delay(body),
    )


def _prompt(body: JsonObject) -> tuple[int, ...]:
    text, values = body.get("text"), body.get("input_ids")
    if (text is None) == (values is None):
        raise generate_error("Either text, input_ids or input_embeds should be provided.")
    if isinstance(text, str):
        return tuple(encode_raw_prompt(text))
    ids = tuple(one for one in values if isinstance(one, int)) if isinstance(values, list) else ()
    if not ids or not isinstance(values, list) or len(ids) != len(values) or not all(map(tokens.is_known, ids)):
        raise generate_error("Expected one text or the token ids of one: this server accepts one prompt per request.")
    return ids


def _limit(value: Json) -> int:
    if value is None:
        return _DEFAULT_LIMIT
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise generate_error(f"max_new_tokens must be at least 0, got {dumps(value)}.")
    return value
