"""llama.cpp's /completion: a prompt continued as it stands, with the ids of what was written. As b11549 answers.

The ids of a stream are not read: of tokens that are one character together an event tells the last alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.apis.api import Api
from harmony_conformance.apis.harmony_prompt import prompt_ids, settings
from harmony_conformance.apis.request_fields import refuse_others, without
from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text

_ENDINGS: Mapping[str, str] = MappingProxyType({"eos": "stop", "word": "stop", "limit": "length"})
_NOT_HERE: Mapping[str, tuple[Json, ...]] = MappingProxyType({"logprobs": (None, False), "top_logprobs": (None,)})
"""Members of a chat request that it does not have; `n_probs` tells more than they do."""
_LIMITS = ("max_completion_tokens", "max_tokens")


def _spell(request: JsonObject) -> JsonObject:
    """The conversation as the ids of its prompt."""
    refuse_others(request, _NOT_HERE)
    limit = next((request[name] for name in _LIMITS if request.get(name) is not None), None)
    named = settings(without(request, {*_LIMITS, *_NOT_HERE, "stream_options", "response_format"}))
    if isinstance(named.get("stop"), str):
        named = {**named, "stop": [named["stop"]]}
    limited: JsonObject = {} if limit is None else {"n_predict": limit}
    return {**named, **limited, "prompt": list[Json](prompt_ids(request)), "return_tokens": True}


def _asked(request: Json) -> Json:
    """The settings alone: the prompt is not made of messages."""
    if not isinstance(request, dict):
        return request
    limit = request.get("n_predict")
    return {**without(request, {"prompt", "n_predict"}), **({} if limit is None else {"max_tokens": limit})}


def _whole(body: Json) -> Json:
    if not isinstance(at(body, "content"), str):
        return body
    held = members(body)
    choice: JsonObject = {
        "index": 0,
        "message": {"role": "assistant", "content": held["content"]},
        "finish_reason": _ending(held),
        **_written(held),
    }
    return {
        "object": "chat.completion",
        "model": held.get("model"),
        "system_fingerprint": held.get("system_fingerprint"),
        "choices": [choice],
        **_usage(held),
    }


def _chunks(values: Iterable[Json]) -> Iterator[Json]:
    for value in values:
        if not isinstance(at(value, "content"), str):
            yield value
            continue
        held = members(value)
        is_last = held.get("stop") is True
        choice: JsonObject = {
            "index": 0,
            "delta": {"content": held["content"]},
            "finish_reason": _ending(held) if is_last else None,
        }
        yield {"object": "chat.completion.chunk", "choices": [choice], **(_usage(held) if is_last else {})}


def _written(held: JsonObject) -> JsonObject:
    """The ids that `return_tokens` asks for; without it the list is empty."""
    return {"token_ids": held["tokens"]} if items(held.get("tokens")) else {}


def _ending(held: JsonObject) -> Json:
    reason = held.get("stop_type")
    return _ENDINGS.get(text(reason), reason)


def _usage(held: JsonObject) -> JsonObject:
    fed, written = number(held.get("tokens_evaluated")), number(held.get("tokens_predicted"))
    if fed is None or written is None:
        return {}
    return {"usage": {"prompt_tokens": fed, "completion_tokens": written, "total_tokens": fed + written}}


LLAMACPP_COMPLETION = Api(
    name="llamacpp-completion",
    title="llama.cpp's completion",
    path="/completion",
    write_request=_spell,
    read_request=_asked,
    read_response=_whole,
    read_events=_chunks,
    answer_member="content: …, stop: true",
    is_raw=True,
    option="completions",
)
