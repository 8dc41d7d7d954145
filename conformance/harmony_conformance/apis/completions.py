"""The Completions API: raw continuation of a prompt that the client renders (OpenAI API reference, Completions)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from harmony_conformance.apis.adapter_helpers import neutral_values, omit_members, reject_unsupported
from harmony_conformance.apis.api import Api
from harmony_conformance.apis.harmony_prompt import generation_settings, prompt_ids
from harmony_conformance.json_value import Json, JsonObject, items, members, text, value_at

KIND = "text_completion"
"""The member `object` of a response and of each chunk."""

_CHAT_ONLY = neutral_values("logprobs", "top_logprobs", "chat_template_kwargs", "reasoning_format")
"""Members that the API lacks or defines otherwise, with the values without effect."""


def _write_request(request: JsonObject) -> JsonObject:
    reject_unsupported(request, _CHAT_ONLY)
    others = generation_settings(omit_members(request, {*_CHAT_ONLY, "max_completion_tokens", "response_format"}))
    limit = request.get("max_completion_tokens")
    return {**others, **({} if limit is None else {"max_tokens": limit}), "prompt": [*prompt_ids(request)]}


def _read_request(request: Json) -> Json:
    """Return only the settings: a prompt has no messages, and `logprobs` is a number here."""
    return omit_members(request, {"prompt", "logprobs"}) if isinstance(request, dict) else request


def _read_response(body: Json) -> Json:
    if not items(value_at(body, "choices")):
        return body
    kind = "chat.completion"
    return _translate(members(body), kind, lambda text: {"message": {"role": "assistant", "content": text}})


def _read_events(values: Iterable[Json]) -> Iterator[Json]:
    for value in values:
        if isinstance(value_at(value, "choices"), list):
            kind = "chat.completion.chunk" if value_at(value, "object") == KIND else text(value_at(value, "object"))
            yield _translate(members(value), kind, lambda content: {"delta": {"content": content}})
        else:
            yield value


def _translate(body: JsonObject, kind: str, wrap: Callable[[Json], JsonObject]) -> JsonObject:
    choices = items(body["choices"])
    ids = value_at(choices[0], "prompt_token_ids") if choices else None
    translated: list[Json] = [
        {**omit_members(members(choice), {"text", "logprobs", "prompt_token_ids"}), **wrap(value_at(choice, "text"))}
        for choice in choices
    ]
    return {**body, "object": kind, "choices": translated, **({"prompt_token_ids": ids} if ids is not None else {})}


COMPLETIONS = Api(
    name="completions",
    title="Completions",
    path="/v1/completions",
    write_request=_write_request,
    read_request=_read_request,
    read_response=_read_response,
    read_events=_read_events,
    answer_member="choices: […] with a text",
    is_raw=True,
)
