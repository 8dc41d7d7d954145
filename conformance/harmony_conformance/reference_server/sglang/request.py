"""A request to /generate, read once and refused in SGLang's words where it is wrong."""

from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject, dumps, members
from harmony_conformance.reference_server.model.plain_text import TextOptions, marked_up
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.errors import ApiError
from harmony_ref import tokens

GENERATE = "generate"
"""The code of what /generate refuses: its words are others than those of the other paths."""

_USUAL_LIMIT = 128
_SAMPLING = frozenset(
    {
        *("max_new_tokens", "stop", "stop_token_ids", "temperature", "top_p", "top_k", "min_p"),
        *("frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "ignore_eos"),
        *("skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "sampling_seed"),
    }
)
"""The sampling parameters that are read, or change nothing here."""


def refused(message: str) -> ApiError:
    """The refusal of a request to /generate."""
    return ApiError(message, code=GENERATE)


@dataclass(frozen=True, kw_only=True)
class SglangGenerateRequest:
    """All that the server reads of a request.

    Attributes:
        prompt: the token ids of the text, or those that were sent.
        ignores_stops: whether no token ends the generation.
        shows_prompt: whether the ids of the prompt are part of the answer.
        shows_logprobs: whether the log probabilities of what was written are.
        script: the token ids that the model is to produce; None for its own answer.
        token_delay: seconds that each token takes.
    """

    prompt: tuple[int, ...]
    limit: int
    ignores_stops: bool
    spelling: TextOptions
    streamed: bool
    shows_prompt: bool
    shows_logprobs: bool
    script: tuple[int, ...] | None
    token_delay: float


def read_request(body: JsonObject) -> SglangGenerateRequest:
    """The request in a JSON body.

    Raises:
        ApiError: a 400.
    """
    sampling = members(body.get("sampling_params"))
    unknown = next((name for name in sampling if name not in _SAMPLING), None)
    if unknown is not None:
        raise refused(f"unknown field `{unknown}`, expected one of {', '.join(sorted(_SAMPLING))}")
    return SglangGenerateRequest(
        prompt=_prompt(body),
        limit=_limit(sampling.get("max_new_tokens")),
        ignores_stops=fields.switch(sampling, "ignore_eos"),
        spelling=TextOptions(
            shows_special=not fields.switch(sampling, "skip_special_tokens", otherwise=True),
            stops=_stops(sampling.get("stop")),
            shows_stop=fields.switch(sampling, "no_stop_trim"),
        ),
        streamed=fields.switch(body, "stream"),
        shows_prompt=fields.switch(body, "return_prompt_token_ids"),
        shows_logprobs=fields.switch(body, "return_logprob"),
        script=fields.script(body),
        token_delay=fields.token_delay(body),
    )


def _prompt(body: JsonObject) -> tuple[int, ...]:
    written, listed = body.get("text"), body.get("input_ids")
    if (written is None) == (listed is None):
        raise refused("Either text, input_ids or input_embeds should be provided.")
    if isinstance(written, str):
        return tuple(marked_up(written))
    ids = tuple(one for one in listed if isinstance(one, int)) if isinstance(listed, list) else ()
    if not ids or not isinstance(listed, list) or len(ids) != len(listed) or not all(map(tokens.is_known, ids)):
        raise refused("One text, or the token ids of one, is needed: this server continues one prompt at a time.")
    return ids


def _limit(value: Json) -> int:
    if value is None:
        return _USUAL_LIMIT
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refused(f"max_new_tokens must be at least 0, got {dumps(value)}.")
    return value


def _stops(value: Json) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value if isinstance(value, list) else []
    return tuple(entry for entry in listed if isinstance(entry, str) and entry)
