"""llama.cpp's /completion (as of b11549): raw continuation of a prompt, with the emitted token ids.

The ids in a stream are not read: of several tokens that form one character, an event has only the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from harmony_conformance.apis.adapter_helpers import neutral_values, omit_members, reject_unsupported, token_counts
from harmony_conformance.apis.api import Api
from harmony_conformance.apis.harmony_prompt import generation_settings, prompt_ids
from harmony_conformance.json_value import Json, JsonObject, integer, items, members, text, value_at

_FINISH_REASONS: Mapping[str, str] = {"eos": "stop", "word": "stop", "limit": "length"}
_UNSUPPORTED = neutral_values("logprobs", "top_logprobs")
"""Members that the API lacks, with the values without effect. Its own `n_probs` differs."""
_LIMITS = ("max_completion_tokens", "max_tokens")


def _write_request(request: JsonObject) -> JsonObject:
    reject_unsupported(request, _UNSUPPORTED)
    limit = next((request[name] for name in _LIMITS if request.get(name) is not None), None)
    others = generation_settings(omit_members(request, {*_LIMITS, *_UNSUPPORTED, "stream_options", "response_format"}))
    if isinstance(others.get("stop"), str):
        others = {**others, "stop": [others["stop"]]}
    limited: JsonObject = {} if limit is None else {"n_predict": limit}
    return {**others, **limited, "prompt": [*prompt_ids(request)], "return_tokens": True}


def _read_request(request: Json) -> Json:
    """Return only the settings: a prompt has no messages."""
    if not isinstance(request, dict):
        return request
    limit = request.get("n_predict")
    return {**omit_members(request, {"prompt", "n_predict"}), **({} if limit is None else {"max_tokens": limit})}


def _read_response(body: Json) -> Json:
    if not isinstance(value_at(body, "content"), str):
        return body
    answer = members(body)
    choice: JsonObject = {
        "index": 0,
        "message": {"role": "assistant", "content": answer["content"]},
        "finish_reason": _finish_reason(answer),
        # the list is empty if `return_tokens` was not requested
        **({"token_ids": answer["tokens"]} if items(answer.get("tokens")) else {}),
    }
    return {
        "object": "chat.completion",
        "model": answer.get("model"),
        "system_fingerprint": answer.get("system_fingerprint"),
        "choices": [choice],
        **_usage(answer),
    }


def _read_events(values: Iterable[Json]) -> Iterator[Json]:
    for value in values:
        if not isinstance(value_at(value, "content"), str):
            yield value
            continue
        event = members(value)
        is_last = event.get("stop") is True
        finish = _finish_reason(event) if is_last else None
        choice: JsonObject = {"index": 0, "delta": {"content": event["content"]}, "finish_reason": finish}
        yield {"object": "chat.completion.chunk", "choices": [choice], **(_usage(event) if is_last else {})}


def _finish_reason(answer: JsonObject) -> Json:
    reason = answer.get("stop_type")
    return _FINISH_REASONS.get(text(reason), reason)


def _usage(answer: JsonObject) -> JsonObject:
    prompt, output = integer(answer.get("tokens_evaluated")), integer(answer.get("tokens_predicted"))
    return {"usage": token_counts(prompt, output)} if prompt is not None and output is not None else {}


LLAMACPP_COMPLETION = Api(
    name="llamacpp-completion",
    title="llama.cpp's completion",
    path="/completion",
    write_request=_write_request,
    read_request=_read_request,
    read_response=_read_response,
    read_events=_read_events,
    answer_member="content: …, stop: true",
    is_raw=True,
    option="completions",
)
