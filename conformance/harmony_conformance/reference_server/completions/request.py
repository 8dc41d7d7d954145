"""A Completions request, read once and refused where it is wrong; behind this border its values are trusted."""

from dataclasses import dataclass

from harmony_conformance.json_value import Json, JsonObject
from harmony_conformance.reference_server.model.plain_text import TextOptions, marked_up
from harmony_conformance.reference_server.requests import fields
from harmony_conformance.reference_server.requests.errors import wrong_value
from harmony_ref import tokens

_NEUTRAL: dict[str, tuple[Json, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "suffix": (None, ""),
    "logit_bias": (None, {}),
}
_USUAL_LIMIT = 16
_MOST_LOGPROBS = 5
_MOST_STOPS = 4


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One prompt: its token ids, and the text that `echo` repeats."""

    ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, kw_only=True)
class CompletionsRequest:
    """All that the server reads of a request.

    Attributes:
        echoes: whether the prompt is part of the answer.
        logprobs: how many alternatives are told at each place; None for no probabilities at all.
        limit: most tokens to generate for each prompt; 0 only with `echo`.
        script: the token ids that the model is to produce; None for its own answer.
        token_delay: seconds that each token takes.
    """

    prompts: tuple[Prompt, ...]
    echoes: bool
    logprobs: int | None
    limit: int
    spelling: TextOptions
    streamed: bool
    usage_in_stream: bool
    shows_token_ids: bool
    script: tuple[int, ...] | None
    token_delay: float


def read_request(body: JsonObject) -> CompletionsRequest:
    """The request in a JSON body.

    Raises:
        ApiError: a 4xx that names the parameter.
    """
    fields.named_model(body)
    fields.refuse_unsupported(body, _NEUTRAL)
    fields.refuse_bad_sampling(body)
    echoes = fields.switch(body, "echo")
    streamed = fields.switch(body, "stream")
    shows_special = not fields.switch(body, "skip_special_tokens", otherwise=True)
    return CompletionsRequest(
        prompts=_prompts(body.get("prompt"), shows_special=shows_special),
        echoes=echoes,
        logprobs=_logprobs(body.get("logprobs")),
        limit=_limit(body, echoes=echoes),
        spelling=TextOptions(
            shows_special=shows_special,
            stops=stops(body.get("stop"), _MOST_STOPS),
            shows_stop=fields.switch(body, "include_stop_str_in_output"),
        ),
        streamed=streamed,
        usage_in_stream=fields.usage_in_stream(body.get("stream_options"), streamed=streamed),
        shows_token_ids=fields.switch(body, "return_token_ids"),
        script=fields.script(body),
        token_delay=fields.token_delay(body),
    )


def _prompts(value: Json, *, shows_special: bool) -> tuple[Prompt, ...]:
    match value:
        case str():
            return (Prompt(ids=tuple(marked_up(value)), text=value),)
        case [int(), *_]:
            return (_of_ids(value, "prompt", shows_special=shows_special),)
        case [_, *_]:
            return tuple(
                _prompts(entry, shows_special=shows_special)[0]
                if isinstance(entry, str)
                else _of_ids(entry, f"prompt[{place}]", shows_special=shows_special)
                for place, entry in enumerate(value)
            )
        case _:
            raise wrong_value("prompt", "a text, a list of token ids, or a list of several of one kind is needed.")


def _of_ids(value: Json, where: str, *, shows_special: bool) -> Prompt:
    listed = value if isinstance(value, list) else []
    ids = tuple(token for token in listed if isinstance(token, int) and not isinstance(token, bool))
    if not listed or len(ids) != len(listed) or not all(tokens.is_known(token) for token in ids):
        raise wrong_value(where, "a text or token ids of the vocabulary are needed.")
    shown = [token for token in ids if shows_special or not tokens.is_special(token)]
    return Prompt(ids=ids, text=tokens.decode(shown))


def stops(value: Json, most: int) -> tuple[str, ...]:
    """The texts of `stop`: one, or a list of a few."""
    listed = [value] if isinstance(value, str) else value
    if listed is None:
        return ()
    texts = [entry for entry in listed if isinstance(entry, str)] if isinstance(listed, list) else []
    if not isinstance(listed, list) or len(texts) != len(listed) or len(texts) > most:
        raise wrong_value("stop", f"a text or a list of at most {most} texts is needed.")
    return tuple(text for text in texts if text)


def _logprobs(value: Json) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_LOGPROBS:
        raise wrong_value("logprobs", f"a whole number from 0 to {_MOST_LOGPROBS} is needed.")
    return value


def _limit(body: JsonObject, *, echoes: bool) -> int:
    if echoes and body.get("max_tokens") == 0 and not isinstance(body["max_tokens"], bool):
        return 0
    found = fields.limit(body, "max_tokens")
    return _USUAL_LIMIT if found is None else found
