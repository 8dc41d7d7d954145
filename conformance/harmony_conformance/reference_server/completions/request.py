"""Parse and validate a Completions request."""

from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.model.plain_text import TextOptions, decode_ids, encode_raw_prompt
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.errors import wrong_value
from harmony_ref import tokens

_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "logit_bias": (None, {}),
}
_DEFAULT_LIMIT = 16
_MOST_LOGPROBS = 5
_MOST_PROMPTS = 2048


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """Token ids of a prompt, and the text that `echo` repeats."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class CompletionsRequest:
    """Validated request; without `script` the output is unscripted. The unit of `token_delay` is seconds."""

    prompts: tuple[Prompt, ...]
    echoes: bool  # the prompt is part of the answer
    logprobs: int | None  # number of alternatives per token; None: no log probabilities
    limit: int  # maximum number of tokens per prompt; 0 only with `echo`
    text_options: TextOptions
    is_streamed: bool
    usage_in_stream: bool
    shows_token_ids: bool
    script: tuple[int, ...] | None
    token_delay: float


def read_request(body: JsonObject) -> CompletionsRequest:
    """Parse a JSON body; raise an ApiError (4xx) that names an invalid parameter."""
    fields.validate_model(body)
    fields.refuse_unsupported(body, _NEUTRAL)
    fields.refuse_bad_sampling(body)
    echoes = fields.read_boolean(body, "echo")
    streamed = fields.read_boolean(body, "stream")
    shows_special = not fields.read_boolean(body, "skip_special_tokens", otherwise=True)
    return CompletionsRequest(
        prompts=_prompts(body.get("prompt"), shows_special=shows_special),
        echoes=echoes,
        logprobs=fields.whole_number(body, "logprobs", 0, _MOST_LOGPROBS),
        limit=_limit(body, echoes=echoes),
        text_options=TextOptions(
            shows_special=shows_special,
            stop_strings=fields.stop_strings(body.get("stop")),
            shows_stop=fields.read_boolean(body, "include_stop_str_in_output"),
        ),
        is_streamed=streamed,
        usage_in_stream=fields.usage_in_stream(body.get("stream_options"), streamed=streamed),
        shows_token_ids=fields.read_boolean(body, "return_token_ids"),
        script=fields.script(body),
        token_delay=fields.token_delay(body),
    )


def _prompts(value: Json, *, shows_special: bool) -> tuple[Prompt, ...]:
    match value:
        case str():
            return (Prompt(ids=tuple(encode_raw_prompt(value)), text=value),)
        case [int(), *_]:
            return (_of_ids(value, "prompt", shows_special=shows_special),)
        case [_, *_]:
            if len(value) > _MOST_PROMPTS:
                raise wrong_value("prompt", f"expected at most {_MOST_PROMPTS} prompts, got {len(value)}.")
            return tuple(
                _prompts(entry, shows_special=shows_special)[0]
                if isinstance(entry, str)
                else _of_ids(entry, f"prompt[{index}]", shows_special=shows_special)
                for index, entry in enumerate(value)
            )
        case _:
            raise wrong_value("prompt", "expected a string, a list of token ids, or a list of these.")


def _of_ids(value: Json, where: str, *, shows_special: bool) -> Prompt:
    values = value if isinstance(value, list) else []
    ids = tuple(token for token in values if isinstance(token, int) and not isinstance(token, bool))
    if not values or len(ids) != len(values) or not all(tokens.is_known(token) for token in ids):
        raise wrong_value(where, "expected a string or token ids of the vocabulary.")
    return Prompt(ids=ids, text=decode_ids(ids, shows_special=shows_special))


def _limit(body: JsonObject, *, echoes: bool) -> int:
    if echoes and body.get("max_tokens") == 0 and not isinstance(body["max_tokens"], bool):
        return 0
    return fields.limit(body, "max_tokens") or _DEFAULT_LIMIT
