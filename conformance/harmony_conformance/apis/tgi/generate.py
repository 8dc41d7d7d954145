"""TGI's /generate and /generate_stream: a prompt continued, with every token in the details."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from harmony_conformance.apis.api import Api, UnsupportedByApiError
from harmony_conformance.apis.harmony_prompt import prompt_text, settings
from harmony_conformance.apis.request_fields import failure, without
from harmony_conformance.json_value import Json, JsonObject, at, items, members, number, text

_ENDINGS: dict[str, str] = {"length": "length", "eos_token": "stop", "stop_sequence": "stop"}


_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "max_tokens": "max_new_tokens",
        "max_completion_tokens": "max_new_tokens",
        **{name: name for name in ("top_p", "seed", "stop", "frequency_penalty")},
    }
)
"""Members of a chat request that are parameters here."""


def _spell(request: JsonObject) -> JsonObject:
    """The conversation as the text of its prompt. A temperature of 0, which is refused here, is what the API does without one."""
    if request.get("stream") is True:
        raise UnsupportedByApiError("`stream` on this path")
    parameters: JsonObject = {
        named: request[name] for name, named in _PARAMETERS.items() if request.get(name) is not None
    }
    if request.get("temperature"):
        parameters["temperature"] = request["temperature"]
    if isinstance(parameters.get("stop"), str):
        parameters["stop"] = [parameters["stop"]]
    parameters["details"] = True
    if request.get("return_token_ids") is True:
        parameters["decoder_input_details"] = True
    moved = {*_PARAMETERS, "temperature", "stream", "stream_options", "return_token_ids"}
    return {**settings(without(request, moved)), "inputs": prompt_text(request), "parameters": parameters}


def _asked(request: Json) -> Json:
    """The settings alone: the prompt is not made of messages."""
    if not isinstance(request, dict):
        return request
    parameters = members(request.get("parameters"))
    limit = parameters.get("max_new_tokens")
    return {
        **{name: value for name, value in request.items() if name not in ("inputs", "parameters")},
        **{name: parameters[name] for name in ("temperature", "top_p", "seed", "stop") if name in parameters},
        **({"max_tokens": limit} if limit is not None else {}),
    }


def _whole(body: Json) -> Json:
    """The completion: an answer of `/generate`, or the list that `/` makes of it. With `best_of` the others stand in the details of the best."""
    told = at(body, 0) if isinstance(body, list) else body
    if not isinstance(at(told, "generated_text"), str):
        return failure(body)
    details = at(told, "details")
    fed = _ids(at(details, "prefill"))
    others = items(at(details, "best_of_sequences"))
    sequences: list[Json] = [{**members(details), "generated_text": at(told, "generated_text")}, *others]
    written = [number(at(one, "generated_tokens")) for one in sequences]
    spent = None if None in written else sum(one or 0 for one in written)
    return {
        "object": "chat.completion",
        "choices": [_choice(index, one) for index, one in enumerate(sequences)],
        **({"prompt_token_ids": fed} if fed else {}),
        **({"usage": _usage(len(fed) or None, spent)} if spent is not None else {}),
    }


def _choice(index: int, told: Json) -> Json:
    ids = _ids(at(told, "tokens"))
    return {
        "index": index,
        "message": {"role": "assistant", "content": at(told, "generated_text")},
        "finish_reason": _ending(told),
        **({"token_ids": ids} if ids else {}),
    }


def _chunks(values: Iterable[Json]) -> Iterator[Json]:
    for value in values:
        token = at(value, "token")
        if members(value).get("error") is not None or not isinstance(value, dict):
            yield failure(value)
        elif not isinstance(token, dict):
            yield {"object": "chat.completion.chunk", "choices": []}
        else:
            yield _chunk(value, token)


def _chunk(event: JsonObject, token: JsonObject) -> JsonObject:
    details = event.get("details")
    written = number(at(details, "generated_tokens"))
    choice: JsonObject = {
        "index": 0,
        "delta": {"content": "" if token.get("special") is True else text(token.get("text"))},
        "finish_reason": _ending(details),
        "token_ids": _ids([token]),
    }
    counted: JsonObject = {"usage": _usage(number(at(details, "input_length")), written)} if written is not None else {}
    return {"object": "chat.completion.chunk", "choices": [choice], **counted}


def _ids(tokens: Json) -> list[Json]:
    return [number(at(token, "id")) for token in items(tokens)]


def _ending(details: Json) -> Json:
    reason = at(details, "finish_reason")
    return _ENDINGS.get(reason, reason) if isinstance(reason, str) else None


def _usage(fed: int | None, written: int | None) -> JsonObject:
    total: JsonObject = {"total_tokens": fed + written} if fed is not None and written is not None else {}
    return {"prompt_tokens": fed, "completion_tokens": written, **total}


TGI_GENERATE = Api(
    name="tgi-generate",
    title="TGI's generate",
    path="/generate",
    write_request=_spell,
    read_request=_asked,
    read_response=_whole,
    read_events=_chunks,
    answer_member="generated_text: …",
    is_raw=True,
    option="tgi",
)
