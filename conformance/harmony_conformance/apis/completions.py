"""The Completions API: raw continuation of a prompt that the client rendered (OpenAI API reference, Completions)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.apis.api import Api
from harmony_conformance.apis.harmony_prompt import prompt_ids, settings
from harmony_conformance.apis.request_fields import refuse_others, without
from harmony_conformance.json_value import Json, JsonObject, at, items, members, text

KIND = "text_completion"
"""What an answer, and each chunk of one, says that it is."""

_CHAT_ONLY: Mapping[str, tuple[Json, ...]] = MappingProxyType(
    {
        "logprobs": (None, False),
        "top_logprobs": (None,),
        "chat_template_kwargs": (None, {}),
        "reasoning_format": (None,),
    }
)
"""Members that are others here, or none."""


def _spell(request: JsonObject) -> JsonObject:
    """The conversation as the ids of its prompt."""
    refuse_others(request, _CHAT_ONLY)
    named = settings(without(request, {*_CHAT_ONLY, "max_completion_tokens", "response_format"}))
    limit = request.get("max_completion_tokens")
    return {**named, **({} if limit is None else {"max_tokens": limit}), "prompt": [*prompt_ids(request)]}


def _asked(request: Json) -> Json:
    """The settings alone: the prompt is not made of messages, and its `logprobs` is a number."""
    return without(request, {"prompt", "logprobs"}) if isinstance(request, dict) else request


def _whole(body: Json) -> Json:
    if not items(at(body, "choices")):
        return body
    return _retold(members(body), "chat.completion", _message)


def _chunks(values: Iterable[Json]) -> Iterator[Json]:
    for value in values:
        if isinstance(at(value, "choices"), list):
            told = members(value)
            yield _retold(
                told, "chat.completion.chunk" if told.get("object") == KIND else text(told.get("object")), _delta
            )
        else:
            yield value


def _retold(body: JsonObject, kind: str, said: Callable[[Json], JsonObject]) -> JsonObject:
    choices = items(body["choices"])
    fed = at(choices[0], "prompt_token_ids") if choices else None
    told: list[Json] = [
        {**without(members(choice), {"text", "logprobs", "prompt_token_ids"}), **said(at(choice, "text"))}
        for choice in choices
    ]
    return {**body, "object": kind, "choices": told, **({"prompt_token_ids": fed} if fed is not None else {})}


def _message(written: Json) -> JsonObject:
    return {"message": {"role": "assistant", "content": written}}


def _delta(written: Json) -> JsonObject:
    return {"delta": {"content": written}}


COMPLETIONS = Api(
    name="completions",
    title="Completions",
    path="/v1/completions",
    write_request=_spell,
    read_request=_asked,
    read_response=_whole,
    read_events=_chunks,
    answer_member="choices: […] with a text",
    is_raw=True,
)
